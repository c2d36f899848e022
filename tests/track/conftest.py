import shutil
from pathlib import Path

import pytest

from phaze_opt.track import deliver
from phaze_opt.track.destination import Destination, default_uri


@pytest.fixture(autouse=True)
def _no_tracking_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(autouse=True)
def _no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails in this process is given up at once."""
    monkeypatch.setattr(deliver, "LAST_ANSWER_S", 0.0)
    monkeypatch.setattr(deliver, "FIRST_PAUSE_S", 0.01)


@pytest.fixture
def work_dir(tmp_path: Path, empty_store: Path) -> Path:
    """With an empty store."""
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    return tmp_path


@pytest.fixture
def destination(work_dir: Path) -> Destination:
    return Destination(default_uri(work_dir), work_dir)
