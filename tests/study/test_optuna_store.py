"""Evaluations shared through an RDB storage, on a real PostgreSQL and on sqlite."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from phaze_opt.errors import InputError, SolverError, StorageError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.mirrored_store import MirroredStore
from phaze_opt.study.stores.optuna_store import OptunaStore
from phaze_opt.study.stores.rdb_storage import hide_password, open_rdb_storage, with_driver
from phaze_opt.study.stores.store import StoreEvaluator
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

WORKER = Path(__file__).parent / "outside" / "store_worker.py"
DIGEST = "d" * 64
POINT = DesignPoint(2, 4, 16, 16, 16, 2 << 20, 32 << 30, 1)
OTHER = DesignPoint(4, 4, 16, 16, 16, 2 << 20, 32 << 30, 1)


def open_store(url: str, *, heartbeat_s: int = 1, grace_s: int = 2) -> OptunaStore:
    return OptunaStore(open_rdb_storage(url, heartbeat_s=heartbeat_s, grace_s=grace_s))


def known(point: DesignPoint) -> KnownEvaluation:
    return KnownEvaluation(ToyObjective(ToyScenario()).evaluate(point), 0.25)


def test_an_evaluation_is_claimed_once_and_seen_by_all(database: str) -> None:
    first, second = open_store(database), open_store(database)
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


def test_what_is_released_may_be_claimed_again_and_is_no_attempt(database: str) -> None:
    first, second = open_store(database), open_store(database)
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


def kill_one_with_a_claim(database: str) -> None:
    with start_worker("hang", database) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.kill()


def test_a_killed_worker_loses_its_claim_and_the_second_death_is_an_error(database: str) -> None:
    kill_one_with_a_claim(database)
    store = open_store(database)
    assert not store.claim(DIGEST, POINT)
    deadline = time.monotonic() + 20
    while not store.claim(DIGEST, POINT):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    store.release(DIGEST, POINT)
    kill_one_with_a_claim(database)
    with pytest.raises(SolverError, match="two workers ended"):
        while time.monotonic() < deadline + 20:
            store.claim(DIGEST, POINT)
            time.sleep(0.3)
    store.close()
    resumed = open_store(database)
    assert resumed.claim(DIGEST, POINT), "who comes after the error may try again"
    resumed.close()


def test_a_slow_worker_keeps_its_claim_by_heartbeats(database: str) -> None:
    slow, other = open_store(database), open_store(database)
    assert slow.claim(DIGEST, POINT)
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert not other.claim(DIGEST, POINT)
        time.sleep(0.3)
    slow.complete(DIGEST, POINT, known(POINT))
    slow.close()
    other.close()


def drop(database: str) -> None:
    """What a server that goes away looks like: its database is gone, with all connections to it."""
    import psycopg

    name = database.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(database.replace(f"/{name}?", "/postgres?"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_that_is_lost_in_the_middle_is_one_sentence_and_the_evaluation_is_kept(
    database: str, tmp_path: Path
) -> None:
    local = LocalStore(tmp_path)
    store = MirroredStore(local, open_store(database))
    dropped = []

    class Drops:
        def evaluate(self, point: DesignPoint) -> Evaluation:
            drop(database)
            dropped.append(point)
            return known(point).evaluation

    evaluator = StoreEvaluator(store, DIGEST, Drops)
    with pytest.raises(
        StorageError, match=r"^the database of --storage failed \(.*\); what is finished is kept"
    ) as caught:
        evaluator.submit((POINT,))
    assert dropped == [POINT]
    assert "\n" not in str(caught.value)
    kept = local.known(DIGEST, POINT)
    assert kept is not None
    assert kept.evaluation == known(POINT).evaluation
    with pytest.raises(StorageError):
        store.claim(DIGEST, OTHER)
    store.close()


def test_heartbeats_go_on_after_an_error_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.exc import OperationalError

    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    beats = []

    def beat(trial_id: int) -> None:
        beats.append(trial_id)
        raise OperationalError("update", {}, ConnectionError("gone for a moment"))

    monkeypatch.setattr(store.storage, "heartbeat_interval", 0.01)
    assert store.claim(DIGEST, POINT)
    monkeypatch.setattr(store.storage, "record_heartbeat", beat)
    deadline = time.monotonic() + 10
    while len(beats) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.undo()
    store.close()


def test_workers_that_race_evaluate_every_point_exactly_once(database: str) -> None:
    workers = [start_worker("race", database) for _ in range(3)]
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
