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
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import pytest
from killed_commands import (
    CASES,
    KEPT_COMMANDS,
    PATIENCE_S,
    PLAIN_COMMANDS,
    Campaign,
    content,
    disturb,
    runs_in,
    start,
    write_inputs,
)

Left = tuple[dict[str, object], list[tuple[object, ...]]]
"""What a command left in files, and in the tracker's store."""
UndisturbedRun = Callable[[str, str], tuple[Left, float]]
"""What a command with a store leaves and how long it takes, s."""
NUM_KILLS = int(os.environ.get("KILLS", "3"))
NUM_LONG_TRIALS = int(os.environ.get("LONG_TRIALS", "5000"))
NUM_LONG_KILLS = 10


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "jobs", "store"), CASES)
def test_killed_commands_resume_to_the_same(
    name: str, jobs: int, store: str, undisturbed: UndisturbedRun, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    again = PLAIN_COMMANDS.get(name) or f"{KEPT_COMMANDS[name]} --jobs {jobs} --resume"
    expected, longest_s = undisturbed(name, "mlflow" if "mlflow" in store else "files")
    campaign = Campaign(f"{name}-{jobs}-{store.replace(' ', '-')}")
    rng = random.Random(campaign.name)
    while campaign.num_landed < NUM_KILLS:
        directory = tmp_path / f"{campaign.num_rounds}"
        write_inputs(directory)
        options, tracked = make_store(store, directory, request)
        words = disturb(again + options, directory, campaign, longest_s=longest_s, rng=rng)
        assert not words or store == "dask", words  # Dask's own processes log what was killed
        process = start(again + options, directory)
        _, words = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, words
        campaign.num_rounds += 1
        found = content(directory), runs_in(tracked) if tracked else []
        campaign.num_equal += found == expected
        files = {*found[0], *expected[0]}
        campaign.different += [path for path in files if found[0].get(path) != expected[0].get(path)]
        campaign.different += [str(run) for run in {*found[1]} ^ {*expected[1]}]
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


def make_store(store: str, directory: Path, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Options that choose a store of its own for a round, and the address of the tracker's, if there is one."""
    if store == "output":
        return "", ""
    if store == "mlflow":
        return "", f"sqlite:///{directory}/mlflow.db"
    if store in ("files", "dask"):
        return " --no-tracking" + " --dask local" * (store == "dask"), ""
    if store == "sqlite":
        return f" --no-tracking --storage sqlite:///{directory}/storage.db", ""
    address = request.getfixturevalue("make_database")()
    if store == "postgresql":
        return f" --no-tracking --storage {address}", ""
    return f" --tracking-uri {address}", address.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> UndisturbedRun:
    """What a command leaves and how long it takes, s, when nothing ends it."""

    @cache
    def run(name: str, store: str) -> tuple[Left, float]:
        directory = tmp_path_factory.mktemp("undisturbed") / name
        write_inputs(directory)
        began_s = time.monotonic()
        is_tracked = store == "mlflow"
        untracked = f"{KEPT_COMMANDS.get(name)}{'' if is_tracked else ' --no-tracking'}"
        process = start(PLAIN_COMMANDS.get(name) or untracked, directory)
        _, words = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, words
        runs = runs_in(f"sqlite:///{directory}/mlflow.db") if is_tracked else []
        return (content(directory), runs), time.monotonic() - began_s

    return run


def keep(campaign: Campaign) -> None:
    """Write the counts, if they are wanted."""
    if (folder := os.environ.get("RECORD")) is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"kills-{campaign.name}.json").write_text(json.dumps(asdict(campaign)) + "\n")
