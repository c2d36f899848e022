"""Which store a configuration means, which addresses are refused, and that no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.track.destination import redact_uri, resolve_destination
from phaze_opt.track.protocol import TrackerConfig


def test_the_option_wins_over_the_variable_and_that_over_the_default(tmp_path: Path, monkeypatch) -> None:
    assert resolve_destination(TrackerConfig(work_dir=tmp_path)).tracking_uri == f"sqlite:///{tmp_path}/mlflow.db"
    assert resolve_destination(TrackerConfig(work_dir=tmp_path)).is_default
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://variable:5000")
    assert resolve_destination(TrackerConfig(work_dir=tmp_path)).tracking_uri == "http://variable:5000"
    config = TrackerConfig("http://option:5000", work_dir=tmp_path)
    assert resolve_destination(config).tracking_uri == "http://option:5000"
    assert resolve_destination(config).is_server


@pytest.mark.parametrize("uri", ["mlruns", "./mlruns", "file:///tmp/mlruns", "ftp://host", "http://", "sqlite", "://"])
def test_addresses_that_mlflow_cannot_write_are_refused(uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--tracking-uri"):
        resolve_destination(TrackerConfig(uri, work_dir=tmp_path))


@pytest.mark.parametrize("experiment", ["", "  ", "x" * 501])
def test_unusable_experiment_names_are_refused(experiment: str) -> None:
    with pytest.raises(InputError, match="--experiment"):
        resolve_destination(TrackerConfig(experiment=experiment))


def test_a_directory_is_no_sqlite_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        resolve_destination(TrackerConfig(f"sqlite:///{tmp_path}"))


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////a/mlflow.db", "sqlite:////a/mlflow.db"),
        ("http://host:5000", "http://host:5000"),
        ("https://me:secret@host:5000/x", "https://***@host:5000/x"),
        ("postgresql://me:sec@ret@db/mlflow", "postgresql://***@db/mlflow"),
        ("postgresql://db/mlflow?password=secret", "postgresql://db/mlflow"),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str) -> None:
    assert redact_uri(uri) == shown
