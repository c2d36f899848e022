"""Runs of a study's searches that cannot be looked up are no failure."""

import logging
from pathlib import Path

import pytest

from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.store import find_search_runs


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert find_search_runs(Destination(default_uri(tmp_path), tmp_path), "study") == {}
    assert not list(tmp_path.iterdir())


def test_a_broken_store_says_so_and_gives_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlflow.db").write_text("no database")
    with caplog.at_level(logging.WARNING):
        assert find_search_runs(Destination(default_uri(tmp_path), tmp_path), "study") == {}
    assert "cannot be looked up" in caplog.text
