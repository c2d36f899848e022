"""Instances shared by the tests of the scheduler; makes the folder's drawn blocks importable."""

import json
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def public_instances():
    """The ten public instances as (content, recorded optimum)."""
    recorded = json.loads((DATA / "schedule_instances.json").read_text())
    return {entry["name"]: entry for entry in recorded["instances"]}
