"""A folder for files that are refused."""

from pathlib import Path

import pytest
from sample_files import NETWORK

from phaze_opt.workload.zoo import read_zoo_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files that a study names lie."""
    (tmp_path / "net.toml").write_text(NETWORK)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(read_zoo_text("tiny"))
    return tmp_path
