"""Which store a configuration means, which addresses are refused, and that no password is shown."""

from pathlib import Path

import pytest

from phaze_opt.errors import InputError
from phaze_opt.track.destination import Destination, resolve_destination
from phaze_opt.track.protocol import TrackerConfig
from phaze_opt.track.store import describe_trouble


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
    "uri",
    [
        "postgresql://u:secret@[::1/db",
        "http://u:secret@h[/x",
        "http://u:se/cret@host:5000",
        "https://u:se#cret@host",
        "u:secret@host/db",
        "ftp://u:secret@host/db",
        "postgresql://db/mlflow@host?password=secret",
        "postgresql://me:se@cret@db/mlflow",
    ],
)
def test_broken_addresses_are_refused_without_their_secret(uri: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        resolve_destination(TrackerConfig(uri, work_dir=tmp_path))
    assert caught.value.source == "--tracking-uri"
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("sqlite:////a/mlflow.db", "sqlite:////a/mlflow.db"),
        ("http://host:5000", "http://host:5000"),
        ("https://me:secret@host:5000/x", "https://***@host:5000/x"),
        ("postgresql://me:se#cret@db/mlflow", "postgresql://***@db/mlflow"),
        ("postgresql://me:se/cret@db:9/mlflow", "postgresql://***@db:9/mlflow"),
        ("postgresql://db/mlflow?password=secret", "postgresql://db/mlflow"),
        ("databricks", "databricks"),
        ("databricks://profile", "databricks://profile"),
    ],
)
def test_passwords_are_not_shown(uri: str, shown: str, tmp_path: Path) -> None:
    destination = resolve_destination(TrackerConfig(uri, work_dir=tmp_path))
    assert destination.shown == shown
    assert "cret" not in repr(destination) + destination.ui_command


def test_errors_of_other_libraries_lose_their_secrets(tmp_path: Path) -> None:
    destination = Destination("https://me:s3cret@host:5000", tmp_path)
    error = ValueError("API request to https://me:s3cret@host:5000/api failed for me with s3cret")
    assert "s3cret" not in describe_trouble(error, destination)


@pytest.mark.parametrize(
    ("error", "word"),
    [
        ("Max retries exceeded with url: /x (Caused by ResponseError('too many 500 error responses'))", "HTTP 500"),
        ("API request to endpoint /x failed with error code 502 != 200", "HTTP 502"),
        ("HTTPConnectionPool: Max retries exceeded (Caused by ... Connection refused)", "no server"),
        ("HTTPConnectionPool(host='h', port=1): Read timed out. (read timeout=8)", "in time"),
        ("JSONDecodeError: Expecting value: line 1 column 1", "no MLflow server"),
    ],
)
def test_troubles_are_told_apart(error: str, word: str, tmp_path: Path) -> None:
    assert word in describe_trouble(ValueError(error), Destination("http://h:1", tmp_path))
