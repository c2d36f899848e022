"""Stores that hang, fail, vanish and return: a search goes on, is told in one sentence, and loses nothing."""

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kits.recorded_store import deliver_all, rows, tell

from phaze_opt.testing.events import example_search
from phaze_opt.track import deliver, store
from phaze_opt.track.destination import Destination
from phaze_opt.track.mlflow import MLflowTracker
from phaze_opt.track.pending_delivery import list_orders
from phaze_opt.track.store import StoreClock

NUM_TRIALS = 4
EVENTS = example_search(NUM_TRIALS)
ANSWERS = {
    "500": b"HTTP/1.1 500 X\r\nContent-Length: 4\r\nConnection: close\r\n\r\nboom",
    "html": b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n<html></html>",
    "close": b"",
}


Lose = Callable[[range], None]


@contextmanager
def fake_server(answer: bytes | None) -> Iterator[str]:
    """The address of a server that always answers the same; with None it takes every question and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    held.append(connection)
                    if answer is not None:
                        connection.recv(65536)
                        connection.sendall(answer)
                        connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for connection in held:
            connection.close()


@pytest.mark.parametrize(
    ("answer", "word"), [("500", "HTTP 500"), ("html", "no MLflow server"), ("close", "no server answers")]
)
def test_a_server_of_another_kind_is_said_to_be_such(answer: str, word: str, tmp_path: Path) -> None:
    with fake_server(ANSWERS[answer]) as place:
        delivery = tell(tmp_path, EVENTS, f"http://me:secret@{place}").close()
    assert delivery.num_delivered == 0
    assert word in delivery.reason
    assert "secret" not in delivery.reason
    assert "phaze-opt ui --tracking-uri" in delivery.reason


def test_a_server_that_never_answers_is_said_to_be_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with fake_server(None) as place:
        delivery = tell(tmp_path, EVENTS, f"http://me:secret@{place}").close()
    assert delivery.num_delivered == 0
    assert "does not answer in time" in delivery.reason


def test_a_store_that_never_answers_is_given_up_while_the_search_goes_on(tmp_path: Path) -> None:
    """A driver of a database waits without end, so the process that delivers is ended."""
    said = threading.Event()
    sentences: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            sentences.append(record.getMessage())
            said.set()

    listener = Listener()
    logging.getLogger("phaze_opt.track.mlflow").addHandler(listener)
    try:
        with fake_server(None) as place:
            tracker = MLflowTracker(first_answer_s=0.5)
            session = tell(tmp_path, EVENTS, f"postgresql://me:secret@{place}/db", tracker=tracker)
            assert said.wait(120), "the search is still running, and nobody has said that it is not tracked"
            delivery = session.close()
    finally:
        logging.getLogger("phaze_opt.track.mlflow").removeHandler(listener)
    assert delivery.num_delivered == 0
    (sentence,) = sentences
    assert "goes on untracked" in sentence
    assert "secret" not in sentence + delivery.reason
    assert str(tmp_path) in delivery.reason


class LostClient:
    """Passes calls on; from one call to another every one of them fails."""

    num_calls = 0

    def __init__(self, client, lost: range) -> None:
        self._client, self._lost = client, lost

    def __getattr__(self, name: str):
        def call(*args, **kwargs):
            LostClient.num_calls += 1
            if LostClient.num_calls in self._lost:
                message = "the database is gone"
                raise ConnectionError(message)
            return getattr(self._client, name)(*args, **kwargs)

        return call


@pytest.fixture
def lose(monkeypatch: pytest.MonkeyPatch) -> Lose:
    """Makes the calls of a range fail."""
    monkeypatch.setattr(LostClient, "num_calls", 0)
    real = store.open_client

    def apply(calls: range) -> None:
        monkeypatch.setattr(store, "open_client", lambda where: LostClient(real(where), calls))

    return apply


def test_a_store_that_returns_gets_everything_once(
    work_dir: Path, destination: Destination, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(work_dir, EVENTS)
    monkeypatch.setattr(deliver, "LAST_ANSWER_S", 60.0)
    lose(range(9, 13))
    (place,) = list_orders(work_dir)
    assert deliver_all(destination, place=place, clock=StoreClock(0.0, 60.0)) == 0
    assert rows(work_dir, "select count(*) from runs") == [(NUM_TRIALS + 1,)]


def test_a_store_that_stays_away_is_given_up_and_gets_everything_later(
    work_dir: Path, destination: Destination, lose: Lose
) -> None:
    session = tell(work_dir, EVENTS)
    lose(range(9, 10_000))
    (place,) = list_orders(work_dir)
    assert deliver_all(destination, place=place) > 0
    order = place.read()
    assert order is not None
    assert "the database is gone" in place.state(order).reason
    lose(range(0))
    assert deliver_all(destination) == 0
    assert session.close().is_complete
