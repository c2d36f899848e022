"""Evaluations shared through an RDB storage, on a real PostgreSQL and on sqlite."""

import gc
import math
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine, make_url
from sqlalchemy.exc import OperationalError
from store_worker import DIGEST, open_store, point_with

from phaze_opt.errors import InputError, PluginError, SolverError, StorageError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import SerialEvaluator
from phaze_opt.search.result import KnownEvaluation
from phaze_opt.study.execution.engine import shared_engine
from phaze_opt.study.stores import optuna_store
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.optuna_store import OptunaStore
from phaze_opt.study.stores.store import MirroredStore, StoreEvaluator
from phaze_opt.testing.problems import ToyObjective, ToyScenario

WORKER = Path(__file__).parent / "outside" / "store_worker.py"
POINT = point_with(4)
OTHER = replace(POINT, num_tc=4)
PATIENCE_S = 120
"""For what must come, however busy the machine is."""


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


def kill_one_with_a_claim(database: str, store: OptunaStore) -> None:
    with start_worker("hang", database) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert not store.claim(DIGEST, POINT)
        process.kill()


def test_a_killed_worker_loses_its_claim_and_the_second_death_is_an_error(database: str) -> None:
    store = open_store(database)
    kill_one_with_a_claim(database, store)
    deadline = time.monotonic() + PATIENCE_S
    while not store.claim(DIGEST, POINT):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    store.release(DIGEST, POINT)
    kill_one_with_a_claim(database, store)
    with pytest.raises(SolverError, match="two workers ended"):
        while time.monotonic() < deadline + PATIENCE_S:
            store.claim(DIGEST, POINT)
            time.sleep(0.3)
    store.close()
    resumed = open_store(database)
    assert resumed.claim(DIGEST, POINT), "who comes after the error may try again"
    resumed.close()


@pytest.mark.slow
def test_a_slow_worker_keeps_its_claim_by_heartbeats(database: str) -> None:
    slow, other = open_store(database, grace_s=4), open_store(database, grace_s=4)
    assert slow.claim(DIGEST, POINT)
    end = time.monotonic() + 5
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
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phaze_opt.study.stores.rdb_storage.PATIENCE_S", 0.5)
    local = LocalStore(tmp_path)
    store = MirroredStore(local, open_store(database))
    dropped = []

    class Drops:
        def evaluate(self, point: DesignPoint) -> Evaluation:
            drop(database)
            dropped.append(point)
            return known(point).evaluation

    evaluator = StoreEvaluator(store, DIGEST, SerialEvaluator(Drops))
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
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    beats = []

    def beat(trial_id: int) -> None:
        beats.append(trial_id)
        raise OperationalError("update", {}, ConnectionError("gone for a moment"))

    monkeypatch.setattr(store.storage, "heartbeat_interval", 0.01)
    assert store.claim(DIGEST, POINT)
    monkeypatch.setattr(store.storage, "record_heartbeat", beat)
    deadline = time.monotonic() + PATIENCE_S
    while len(beats) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    monkeypatch.undo()
    store.close()


def test_workers_that_race_evaluate_every_point_exactly_once(database: str) -> None:
    workers = [start_worker("race", database) for _ in range(2)]
    claimed = [line for worker in workers for line in worker.communicate(timeout=PATIENCE_S)[0].splitlines()]
    assert all(worker.returncode == 0 for worker in workers)
    assert sorted(map(int, claimed)) == list(range(1, 21))


class Cutter:
    """Loses the connection before a statement or a commit is done, or after a commit so that nobody knows of it."""

    def __init__(self, engine: Engine, *, is_done: bool) -> None:
        self.left, self.is_done = 0, is_done
        event.listen(engine, "commit", self._meet)
        if not is_done:
            event.listen(engine, "before_cursor_execute", self._meet)

    def _meet(self, connection: Connection, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            if self.is_done:
                connection.connection.dbapi_connection.commit()
            connection.invalidate()
            raise OperationalError("statement", {}, ConnectionError("the server is away"))


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_done", [True, False])
def test_a_connection_lost_at_any_statement_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_done: bool, every: int
) -> None:
    """`make test` loses it at every third statement."""
    monkeypatch.setattr(optuna_store, "POLL_S", 0.0)
    monkeypatch.setattr("time.sleep", lambda _: None)  # Optuna waits too where a statement fails
    store, reader = (open_store(f"sqlite:///{tmp_path / 'store.db'}", heartbeat_s=60, grace_s=120) for _ in range(2))
    cutter = Cutter(store.storage.engine, is_done=is_done)
    for place in count(1, every):
        cutter.left, digest = place, f"{place}"
        store.insistence.lost_s = -math.inf
        caplog.clear()
        assert store.known(digest, POINT) is None
        assert store.claim(digest, POINT)
        assert store.complete(digest, POINT, known(POINT)) == known(POINT)
        assert store.claim(digest, OTHER)
        if cutter.left > 0:
            break
        assert "as from a dead one" not in caplog.text
        assert not reader.claim(digest, POINT)
        assert not reader.claim(digest, OTHER)
        assert reader.known(digest, POINT) == known(POINT)
        assert not reader._kinds[digest]._num_failed
    assert place > (10 if is_done else 40), "all were met"
    store.close()
    reader.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Optuna drops its engine
def test_a_database_that_may_not_be_written_is_said_to_be_so(database: str, tmp_path: Path) -> None:
    name = tmp_path / "store.db"
    open_store(f"sqlite:///{name}").close()
    for address in (
        f"sqlite:///file:{name}?mode=ro&uri=true",
        f"{database}&options=-c%20default_transaction_read_only%3Don",
    ):
        with pytest.raises(InputError, match="may not be written .*; give an address whose user may write"):
            open_store(address).claim(DIGEST, POINT)
    gc.collect()


def test_a_database_that_is_restarted_ends_nothing(restart: Callable[[], None], database: str, tmp_path: Path) -> None:
    store = MirroredStore(LocalStore(tmp_path), open_store(database))
    evaluator = StoreEvaluator(store, DIGEST, SerialEvaluator(lambda: ToyObjective(ToyScenario())))
    evaluator.submit((POINT,))
    assert store.claim(DIGEST, OTHER)
    restart()
    store.complete(DIGEST, OTHER, known(OTHER))
    third = replace(POINT, num_tc=8)
    restart()
    evaluator.submit((third,))
    store.close()
    again = open_store(database)
    assert not again.claim(DIGEST, OTHER)
    assert again.known(DIGEST, OTHER) == known(OTHER)
    assert {POINT, OTHER, third} <= set(again._kinds[DIGEST].known)
    again.close()


SECRET = "s3cret"  # noqa: S105


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://u:{SECRET}@[::1/db",
        f"postgresql://u:a/{SECRET}@127.0.0.1:1/db",
        f"postgresql://u:a#{SECRET}@127.0.0.1:1/db",
        f"postgresql://u:{SECRET}@{SECRET}@127.0.0.1:1/db",
        f"postgresql://127.0.0.1:1/db?user=u&password={SECRET}",
        f"postgresql://u:{SECRET}@127.0.0.1:1/db",
        f"nosuch://u:{SECRET}@127.0.0.1:1/db",
        f"http://u:{SECRET}@127.0.0.1:1/db",
        SECRET,
    ],
)
def test_an_address_that_leads_nowhere_is_one_sentence_without_its_secret(address: str) -> None:
    with pytest.raises((InputError, PluginError)) as caught:
        shared_engine(storage=address)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_never_speaks_is_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phaze_opt.study.stores.rdb_storage.CONNECT_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"postgresql://u:{SECRET}@127.0.0.1:{mute.getsockname()[1]}/db"
        with pytest.raises(InputError, match="does not answer") as caught:
            shared_engine(storage=address)
    assert SECRET not in str(caught.value)


def test_the_engine_of_a_database_shows_no_secret(database: str) -> None:
    address = make_url(database).set(password=SECRET).render_as_string(hide_password=False)
    assert SECRET not in repr(shared_engine(storage=address))


def test_sqlite_serves_one_machine(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    assert store.claim(DIGEST, POINT)
    store.complete(DIGEST, POINT, known(POINT))
    store.close()
    again = open_store(f"sqlite:///{tmp_path / 'store.db'}")
    assert not again.claim(DIGEST, POINT)
    assert again.known(DIGEST, POINT) == known(POINT)
    again.close()
