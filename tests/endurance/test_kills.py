"""kill -9, SIGTERM and Ctrl-C at random moments: what is resumed ends as what was never disturbed, byte for byte.

KILLS says how many must land on each command, 3 unless given; RECORD=folder keeps the counts as JSON. LONG_TRIALS are
those of a study of cheap trials that is killed ten times.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
from killed_commands import CASES, LONG_COMMANDS, PATIENCE_S, Campaign, content, disturb, start, write_inputs

UndisturbedRun = Callable[[str], tuple[dict[str, object], float]]
"""What a command leaves and how long it takes, s."""
NUM_KILLS = int(os.environ.get("KILLS", "3"))
NUM_LONG_TRIALS = int(os.environ.get("LONG_TRIALS", "5000"))
NUM_LONG_KILLS = 10


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "jobs", "store"), CASES)
def test_killed_commands_resume_to_the_same(
    name: str, jobs: int, store: str, undisturbed: UndisturbedRun, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    command = f"{LONG_COMMANDS[name]} --jobs {jobs}"
    expected, longest_s = undisturbed(name)
    campaign = Campaign(f"{name}-{jobs}-{store}")
    rng = random.Random(campaign.name)
    stores = make_stores(store, request)
    while campaign.num_landed < NUM_KILLS:
        directory = tmp_path / f"{campaign.num_rounds}"
        write_inputs(directory)
        resumed = f"{command}{next(stores)}"
        words = disturb(resumed, directory, campaign, longest_s=longest_s, rng=rng)
        assert not words or store == "dask", words  # Dask's own processes log what was killed
        process = start(resumed, directory, "--resume")
        _, words = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, words
        campaign.num_rounds += 1
        found = content(directory)
        campaign.num_equal += found == expected
        campaign.different += [path for path in {*found, *expected} if found.get(path) != expected.get(path)]
    keep(campaign)
    assert campaign.num_equal == campaign.num_rounds, campaign.different


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_long_study_killed_ten_times_is_the_same(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    began_s = time.monotonic()
    assert start_long(whole).wait() == 0
    longest_s = (time.monotonic() - began_s) / NUM_LONG_KILLS
    rng = random.Random("long")
    num_landed = 0
    while num_landed < NUM_LONG_KILLS:
        process = start_long(killed)
        try:
            assert process.wait(rng.uniform(0.2, 2 * longest_s)) == 0  # the moment is what is drawn
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            num_landed += 1
    assert start_long(killed).wait() == 0
    expected = content(whole)
    assert len(expected) > 10
    assert content(killed) == expected
    keep(Campaign("long study", landed={"SIGKILL": num_landed}, num_rounds=1, num_equal=1))


def start_long(directory: Path) -> subprocess.Popen[bytes]:
    """A study of cheap trials, gone on with if it was begun."""
    script = Path(__file__).with_name("long_study.py")
    return subprocess.Popen([sys.executable, str(script), str(directory), str(NUM_LONG_TRIALS)])


def make_stores(store: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Options that choose the store: a database of its own for every round."""
    while True:
        if store == "postgresql":
            yield f" --storage {request.getfixturevalue('make_database')()}"
        else:
            yield " --dask local" if store == "dask" else ""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> UndisturbedRun:
    """What a command leaves and how long it takes, s, when nothing ends it."""

    @cache
    def run(name: str) -> tuple[dict[str, object], float]:
        directory = tmp_path_factory.mktemp("undisturbed") / name
        write_inputs(directory)
        began_s = time.monotonic()
        process = start(LONG_COMMANDS[name], directory)
        _, words = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, words
        return content(directory), time.monotonic() - began_s

    return run


def keep(campaign: Campaign) -> None:
    """Write the counts, if they are wanted."""
    if (folder := os.environ.get("RECORD")) is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"kills-{campaign.name}.json").write_text(json.dumps(asdict(campaign)) + "\n")
