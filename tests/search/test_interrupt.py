"""A real Ctrl-C to a real process: what is finished is kept and reported, no process stays, resuming completes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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

    whole, _ = start(["--fast"], tmp_path / "runs").communicate(timeout=PATIENCE_S)
    resumed, errors = start(["--jobs", jobs, "--resume", "--fast"], tmp_path).communicate(timeout=PATIENCE_S)
    assert errors == ""
    assert not json.loads(resumed)["is_interrupted"]
    assert json.loads(resumed)["num_resumed"] >= len(part["throughputs"])
    assert json.loads(resumed)["throughputs"] == json.loads(whole)["throughputs"]
    for number, throughput in part["throughputs"].items():
        assert json.loads(whole)["throughputs"][number] == throughput


def test_a_killed_search_leaves_no_worker(tmp_path: Path) -> None:
    process = start(["--jobs", "2"], tmp_path)
    wait_for_lines(tmp_path, 4)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    pids = workers(tmp_path)
    assert pids
    assert process.pid not in pids
    assert wait_until_gone(pids)
