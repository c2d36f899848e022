"""The process that delivers beside a search: it ends with the search, in bounded time, whatever the store does."""

import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from child_process import run_python
from kits.recorded_store import AT_THE_END, rows

from phaze_opt.testing.events import example_search, record_search
from phaze_opt.track.deliver import follow, open_clock
from phaze_opt.track.destination import Destination
from phaze_opt.track.mlflow import MLflowTracker
from phaze_opt.track.pending_delivery import list_orders
from phaze_opt.track.protocol import TrackerConfig

EVENTS = example_search(4)


def test_a_search_never_imports_mlflow_and_is_delivered_by_another_process(work_dir: Path) -> None:
    program = f"""
import pathlib, sys
from phaze_opt.testing.events import example_search
from phaze_opt.testing.events import record_search
from phaze_opt.track.protocol import open_tracker
from phaze_opt.track.protocol import TrackerConfig
work_dir = pathlib.Path({str(work_dir)!r})
session = open_tracker("mlflow", TrackerConfig(work_dir=work_dir))
for event in record_search(work_dir, example_search(4)):
    session.observe(event)
delivery = session.close()
assert delivery.is_complete, delivery
assert delivery.num_delivered == 5, delivery
assert session.run_id
assert "mlflow" not in sys.modules
"""
    (work_dir / "mlflow.py").write_text("raise ImportError('a file in the working directory')")
    done = run_python("-c", program, cwd=work_dir)
    assert done.returncode in (0,), done.stderr
    assert done.stderr == ""
    assert rows(work_dir, "select count(*) from runs where status = 'FINISHED'") == [(5,)]


@pytest.mark.slow
def test_a_locked_database_is_waited_for(work_dir: Path) -> None:
    session = MLflowTracker().open(TrackerConfig(work_dir=work_dir))
    with closing(sqlite3.connect(work_dir / "mlflow.db", isolation_level=None)) as connection:
        connection.execute("begin exclusive")
        for event in record_search(work_dir, EVENTS):
            session.observe(event)
        time.sleep(8)
        connection.execute("rollback")
    assert session.close().is_complete


def test_a_growing_record_is_followed_until_told(work_dir: Path, destination: Destination) -> None:
    session = AT_THE_END.open(TrackerConfig(work_dir=work_dir))
    ended = threading.Event()
    answers: list[bool] = []
    for event in record_search(work_dir, EVENTS[:2]):
        session.observe(event)
    (place,) = list_orders(work_dir)
    clock = open_clock(destination)
    thread = threading.Thread(target=lambda: answers.append(follow(place, destination, ended=ended, clock=clock)))
    thread.start()
    for event in record_search(work_dir, EVENTS, is_resumed=True)[2:]:
        session.observe(event)
    ended.set()
    thread.join(60)
    assert answers == [True]
    assert session.close().num_delivered == 5
