"""Runs of a study's searches are found again, in any store that has them, and their absence is no failure."""

import logging
from pathlib import Path

import pytest
from kits.recorded_store import AT_THE_END

from phaze_opt.study.events import CellFinished, StudyStarted
from phaze_opt.testing.events import example_study, record_study
from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.protocol import TrackerConfig
from phaze_opt.track.store import find_search_runs

EVENTS = example_study(1, num_seeds=1, strategies=("tpe", "random"))


def test_every_search_has_its_run(work_dir: Path, destination: Destination) -> None:
    session = AT_THE_END.open_study(TrackerConfig(work_dir=work_dir))
    for event in record_study(work_dir, EVENTS):
        session.observe(event)
    assert session.close().is_complete
    started = next(event for event in EVENTS if isinstance(event, StudyStarted))
    runs = find_search_runs(destination, started.study_id)
    assert set(runs) == {event.result.cell.key for event in EVENTS if isinstance(event, CellFinished)}
    assert len(set(runs.values())) == len(runs)
    assert find_search_runs(destination, "another") == {}


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert find_search_runs(Destination(default_uri(tmp_path), tmp_path), "study") == {}
    assert not list(tmp_path.iterdir())


def test_a_broken_store_says_so_and_gives_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    with caplog.at_level(logging.WARNING):
        assert find_search_runs(Destination(default_uri(tmp_path), tmp_path), "study") == {}
    assert "cannot be looked up" in caplog.text
