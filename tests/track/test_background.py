"""The process that delivers beside a search: it ends with the search, in bounded time, whatever the store does."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from phaze_opt.testing.events import example_search, record_search
from phaze_opt.track.deliver import follow, open_clock
from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.mlflow import MLflowTracker
from phaze_opt.track.order import list_orders
from phaze_opt.track.protocol import TrackerConfig

EVENTS = example_search(4)


def test_a_search_never_imports_mlflow_and_is_delivered_by_another_process(
    tmp_path: Path, make_store: Callable[[Path], None]
) -> None:
    make_store(tmp_path)
    program = f"""
import pathlib, sys
from phaze_opt.testing.events import example_search
from phaze_opt.testing.events import record_search
from phaze_opt.track.guard import open_tracker
from phaze_opt.track.protocol import TrackerConfig
work_dir = pathlib.Path({str(tmp_path)!r})
session = open_tracker("mlflow", TrackerConfig(work_dir=work_dir))
for event in record_search(work_dir, example_search(4)):
    session.observe(event)
seen = []
delivery = session.close(lambda done, total: seen.append((done, total)))
assert delivery.is_complete, delivery
assert seen[-1] == (5, 5), seen
assert session.run_id
assert "mlflow" not in sys.modules
"""
    (tmp_path / "mlflow.py").write_text("raise ImportError('a file in the working directory')")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0,), done.stderr
    assert done.stderr == ""
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        assert connection.execute("select count(*) from runs where status = 'FINISHED'").fetchone() == (5,)


@pytest.mark.slow
def test_a_locked_database_is_waited_for(tmp_path: Path, make_store: Callable[[Path], None]) -> None:
    make_store(tmp_path)
    session = MLflowTracker().open(TrackerConfig(work_dir=tmp_path))
    with closing(sqlite3.connect(tmp_path / "mlflow.db", isolation_level=None)) as connection:
        connection.execute("begin exclusive")
        for event in record_search(tmp_path, EVENTS):
            session.observe(event)
        time.sleep(8)
        connection.execute("rollback")
    assert session.close().is_complete


def test_a_growing_record_is_followed_until_told(tmp_path: Path, make_store: Callable[[Path], None]) -> None:
    make_store(tmp_path)
    session = MLflowTracker(is_background=False).open(TrackerConfig(work_dir=tmp_path))
    destination = Destination(default_uri(tmp_path), tmp_path)
    ended = threading.Event()
    answers: list[bool] = []
    for event in record_search(tmp_path, EVENTS[:2]):
        session.observe(event)
    (place,) = list_orders(tmp_path)
    clock = open_clock(destination)
    thread = threading.Thread(target=lambda: answers.append(follow(place, destination, ended=ended, clock=clock)))
    thread.start()
    for event in record_search(tmp_path, EVENTS, is_resumed=True)[2:]:
        session.observe(event)
    ended.set()
    thread.join(60)
    assert answers == [True]
    assert session.close().num_delivered == 5
