"""Processor time of a front of three goals and of the single optimum over the default space; writes fronts.json.

    python experiments/certified/fronts.py [--rounds N]        (in the root of the repository)

Each round proves both, then checks both, one after the other, as a user starts them, with
the cache of compiled kernels as it is. Times are of the command and all its processes; rounds are written as they end.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

OUT = Path(__file__).with_name("fronts.json")
JOB = "--model bert-large --devices 64 --global-batch 512 --no-range"
GOALS = {"optimum": "throughput", "front": "throughput,tdp,area"}
KEPT = ("points", "num_solved", "gap", "is_proved", "throughput_samples_per_s")


def timed(*arguments: str) -> tuple[float, dict[str, Any]]:
    """Processor seconds of a command, and its line of JSON."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "phaze_opt", "certify", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(done.stdout)


def proved(goal: str, directory: str) -> tuple[float, dict[str, Any]]:
    """A proof of one goal in a directory of its own."""
    return timed(*JOB.split(), "--objective", goal, "--no-tracking", "--work-dir", directory)


def add_round(record: dict[str, Any]) -> None:
    """Prove and check both once."""
    with tempfile.TemporaryDirectory() as directory:
        files = {}
        for name, goal in GOALS.items():
            seconds, answer = proved(goal, f"{directory}/{name}")
            files[name] = answer["file"]
            case = record.setdefault(name, {"objective": goal, "proof_cpu_s": [], "check_cpu_s": []})
            case["proof_cpu_s"].append(round(seconds, 1))
            case |= {key: answer[key] for key in KEPT} | {"designs_on_front": len(answer["front"])}
            write(record)
        for name, file in files.items():
            seconds, answer = timed("--check", file)
            if not answer["valid"]:
                message = f"the certificate of {name} is refused"
                raise SystemExit(message)
            record[name]["check_cpu_s"].append(round(seconds, 1))
            write(record)


def write(record: dict[str, Any]) -> None:
    """The record with what follows from it."""
    front, optimum = record.get("front"), record["optimum"]
    for case in (case for case in (front, optimum) if case):
        for what in ("proof", "check"):
            if case[f"{what}_cpu_s"]:
                case[f"median_{what}_cpu_s"] = statistics.median(case[f"{what}_cpu_s"])
    if front:
        record["times_the_optimum"] = round(front["median_proof_cpu_s"] / optimum["median_proof_cpu_s"], 2)
    record["_meta"] = {
        "command": "python experiments/certified/fronts.py",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba", "scipy", "highspy")},
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Run the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    num_rounds = parser.parse_args().rounds
    record: dict[str, Any] = {}
    for _ in range(num_rounds):
        add_round(record)


if __name__ == "__main__":
    main()
