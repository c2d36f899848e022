"""A folder for files that are refused."""

from pathlib import Path

import pytest
from sample_files import fill_study_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the files that a study names lie."""
    return fill_study_folder(tmp_path)
