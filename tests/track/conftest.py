import shutil
from pathlib import Path

import pytest

from phaze_opt.track.destination import Destination, default_uri


@pytest.fixture(autouse=True)
def _no_tracking_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def work_dir(tmp_path: Path, empty_store: Path) -> Path:
    """With an empty store."""
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def destination(work_dir: Path) -> Destination:
    return Destination(default_uri(work_dir), work_dir)
