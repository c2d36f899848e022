"""Fixtures of the search tests."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

OUTSIDE = Path(__file__).parent / "outside"


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`search_faults`, under a name that worker processes can import too."""
    monkeypatch.syspath_prepend(OUTSIDE)
    return importlib.import_module("search_faults")
