"""EXAMPLES multiplies what property tests draw, whether they state a number of their own or not."""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from more_examples import SHARE

CONFTEST = """
import sys

from hypothesis import settings

sys.path.insert(0, {0!r})
from more_examples import draw_more

settings.register_profile("same", derandomize=True)
settings.register_profile("drawn", derandomize=False)


def pytest_collection_modifyitems(items):
    draw_more(items)
"""
TESTS = """
import pytest
from more_examples import SHARE
from hypothesis import given, settings
from hypothesis import strategies as st

drawn = {"own": 0, "default": 0, "method": 0}


@pytest.mark.parametrize("again", [1, 2])
@settings(max_examples=7, derandomize=True)
@given(st.integers())
def test_own(again, number):
    drawn["own"] += 1


@given(st.integers())
def test_default(number):
    drawn["default"] += 1


class TestMethod:
    @settings(max_examples=3)
    @given(st.integers())
    def test_method(self, number):
        drawn["method"] += 1


def test_numbers():
    print("drawn", drawn["own"] // 2, drawn["default"], drawn["method"])
"""


SHARED = " ".join(str(math.ceil(SHARE * number)) for number in (7, 100, 3))


@pytest.mark.parametrize(
    ("profile", "factor", "numbers"),
    [("same", "", SHARED), pytest.param("same", "3", "21 300 9", marks=pytest.mark.slow), ("drawn", "", "7 100 3")],
)
def test_examples_are_multiplied(factor: str, numbers: str, profile: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(str(Path(__file__).parent)))
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = {key: value for key, value in os.environ.items() if key != "EXAMPLES"}
    environment |= {"EXAMPLES": factor} if factor else {}
    command = [sys.executable, "-m", "pytest", "-s", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--hypothesis-profile={profile}", "--rootdir", str(tmp_path), "-c", os.devnull]
    result = subprocess.run(
        [*command, str(tmp_path)], check=True, capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert f"drawn {numbers}" in result.stdout
