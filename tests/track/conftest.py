from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from phaze_opt.track.destination import Destination, default_uri
from phaze_opt.track.store import open_client, quiet_mlflow


@pytest.fixture(autouse=True)
def _no_tracking_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sqlite store with tables and no runs: making one takes seconds, copying it none."""
    directory = tmp_path_factory.mktemp("store")
    with quiet_mlflow():
        open_client(Destination(default_uri(directory), directory))
    return directory / "mlflow.db"


@pytest.fixture
def make_store(empty_store: Path) -> Callable[[Path], None]:
    def make(work_dir: Path) -> None:
        shutil.copyfile(empty_store, work_dir / "mlflow.db")

    return make
