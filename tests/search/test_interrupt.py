"""A real Ctrl-C to a real process: what is finished is kept and reported, no process stays, resuming completes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from toy_runs import search_toy

from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import SearchResult

OUTSIDE = Path(__file__).parent / "outside"
PATIENCE_S = 120
"""For what must come, however busy the machine is."""


def start(arguments: list[str], tmp_path: Path) -> subprocess.Popen[str]:
    (tmp_path / "pids").mkdir(exist_ok=True)
    environment = {**os.environ, "PIDS": str(tmp_path / "pids")}
    return subprocess.Popen(
        [sys.executable, "-W", "always", str(OUTSIDE / "slow_search.py"), str(tmp_path / "runs"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def wait_for_lines(tmp_path: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        lines = [line for path in (tmp_path / "runs").glob("*/trials.jsonl") for line in path.read_text().splitlines()]
        if len(lines) > count:
            return
        time.sleep(0.02)
    pytest.fail(f"fewer than {count} trials in time")


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(is_alive(pid) for pid in pids)


def workers(tmp_path: Path) -> list[int]:
    return [int(path.name) for path in (tmp_path / "pids").iterdir()]


def throughputs(result: SearchResult) -> dict[str, float]:
    """Of every trial, by its number."""
    return {str(trial.number): trial.evaluation.throughput_samples_per_s for trial in result.trials}


def finish(work_dir: Path, **choices: bool) -> SearchResult:
    """The search of `slow_search` in this process, with evaluations that take no time and never stop."""
    return search_toy(SearchConfig("tpe", num_trials=40, work_dir=work_dir, **choices))


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.slow), "2"])
def test_ctrl_c_keeps_what_is_finished_and_leaves_nothing_behind(jobs: str, tmp_path: Path) -> None:
    process = start(["--jobs", jobs], tmp_path)
    wait_for_lines(tmp_path, 5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert errors == ""
    assert process.returncode == 0
    part = json.loads(output)
    assert part["is_interrupted"]
    assert 5 <= len(part["throughputs"]) < 40
    assert wait_until_gone(workers(tmp_path))

    whole, resumed = finish(tmp_path / "whole"), finish(tmp_path / "runs", resume=True)
    assert not resumed.is_interrupted
    assert sum(trial.is_resumed for trial in resumed.trials) >= len(part["throughputs"])
    assert throughputs(resumed) == throughputs(whole)
    assert part["throughputs"].items() <= throughputs(whole).items()


def test_a_killed_search_leaves_no_worker(tmp_path: Path) -> None:
    process = start(["--jobs", "2"], tmp_path)
    wait_for_lines(tmp_path, 4)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    pids = workers(tmp_path)
    assert pids
    assert process.pid not in pids
    assert wait_until_gone(pids)
