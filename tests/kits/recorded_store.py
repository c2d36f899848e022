"""Records events in a store of a test's own, and asks the store what it holds."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from phaze_opt.search.events import SearchEvent
from phaze_opt.testing.events import record_search
from phaze_opt.track.deliver import follow, open_clock
from phaze_opt.track.destination import Destination
from phaze_opt.track.mlflow import MLflowSession, MLflowTracker
from phaze_opt.track.pending_delivery import OrderFile
from phaze_opt.track.protocol import TrackerConfig
from phaze_opt.track.sources import count_pending
from phaze_opt.track.store import StoreClock

AT_THE_END = MLflowTracker(is_background=False)
"""Delivers in this process when a session closes."""


def tell(
    work_dir: Path, events: tuple[SearchEvent, ...], uri: str = "", *, tracker: MLflowTracker = AT_THE_END, **options
) -> MLflowSession:
    """A session that has been told of a search, and is open."""
    session = tracker.open(TrackerConfig(uri, work_dir=work_dir))
    for event in record_search(work_dir, events, **options):
        session.observe(event)
    return session


def deliver_all(destination: Destination, *, place: OrderFile | None = None, clock: StoreClock | None = None) -> int:
    """Deliver a record and what else waits for a store; how much is still waiting."""
    ended = threading.Event()
    ended.set()
    follow(place, destination, ended=ended, clock=clock or open_clock(destination))
    return count_pending(destination)


def rows(work_dir: Path, query: str, *values: object) -> list[tuple]:
    """What a query or a change of the store gives."""
    with closing(sqlite3.connect(work_dir / "mlflow.db")) as connection, connection:
        return connection.execute(query, values).fetchall()


class FlakyClient:
    """Passes calls on, but the n-th does its work and then fails, as when an answer is lost."""

    def __init__(self, client, failing_call: int) -> None:
        self._client = client
        self._calls_left = failing_call

    def __getattr__(self, name: str):
        method = getattr(self._client, name)

        def call(*args, **kwargs):
            answer = method(*args, **kwargs)
            self._calls_left -= 1
            if self._calls_left == 0:
                message = f"a cat stood in the way of {name}"
                raise ConnectionError(message)
            return answer

        return call
