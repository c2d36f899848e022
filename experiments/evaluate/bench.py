"""Times whole evaluations of architectures never seen before, in process and warm; writes bench.json beside this file.

The architectures are drawn at random from Phaze's space, few-core ones among them, with all 12 joins of HBM and
micro-batch. Run: python experiments/evaluate/bench.py
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import phaze_opt
from phaze_opt.hardware.chip_template import AXIS
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm

DEVICES = 1024
GLOBAL_BATCH = 4096


def make_objective(model: str, attention: AttentionForm) -> Objective:
    """The demo's scenario for one model."""
    network = load_network("two-level", num_devices=DEVICES, constants=load_constants())
    cluster = Cluster(DEVICES, network)
    return Objective(Scenario((load_model(model),), cluster, GLOBAL_BATCH, attention=attention))


def measure(model: str, attention: AttentionForm, *, count: int) -> dict[str, object]:
    """Median, 90th percentile and maximum of evaluations, ms, with the schedule gaps they leave."""
    space = phaze_space()
    rng = np.random.default_rng(0)
    indices = rng.choice(space.size, size=count + 8, replace=False)
    objective = make_objective(model, attention)
    for micro_batch in AXIS["micro_batch"].default_values:
        objective.compiled(0, micro_batch)
    for index in indices[:8]:
        objective.evaluate(space.point(int(index)))
    times, gaps, solves = [], [], 0
    for index in indices[8:]:
        started = time.perf_counter()
        evaluation = objective.evaluate(space.point(int(index)))
        times.append(1e3 * (time.perf_counter() - started))
        gaps.append(evaluation.schedule_gap)
        solves += evaluation.effort.num_ilp_solves
    return {
        "evaluations": count,
        "median_ms": statistics.median(times),
        "p90_ms": float(np.percentile(times, 90)),
        "max_ms": max(times),
        "share_proven": float(np.mean(np.array(gaps) <= 1e-9)),
        "max_schedule_gap": max(gaps),
        "ilp_solves": solves,
    }


def measure_help(*, repeats: int) -> float:
    """Median wall time of ``phaze-opt --help``, s."""
    command = [str(Path(sys.executable).with_name("phaze-opt")), "--help"]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("bench.json"))
    arguments = parser.parse_args()
    result: dict[str, object] = {
        "_meta": {
            "version": phaze_opt.__version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "load_average": os.getloadavg()[0],
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "help_s": measure_help(repeats=7),
    }
    for model in ("bert-large", "gpt3-175b"):
        for attention in AttentionForm:
            result[f"{model}, {attention}"] = measure(model, attention, count=arguments.count)
    text = json.dumps(result, indent=2)
    arguments.out.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
