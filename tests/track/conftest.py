import shutil
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
def work_dir(tmp_path: Path, empty_store: Path) -> Path:
    """With an empty store."""
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def destination(work_dir: Path) -> Destination:
    return Destination(default_uri(work_dir), work_dir)
