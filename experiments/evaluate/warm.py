"""Times evaluations of models with branches on dies never seen before, compiled already; writes warm.json beside this.

    nice python experiments/evaluate/warm.py [--model resnet18] [--dies 24] [--output FILE]

Warm is the second and every later evaluation of a model in a process, each on another die. Times are of the processor,
as machines are shared. Seven chips are those of decision 0298, the others are drawn from the default space. The step
and what its bound leaves open stand beside each time.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import highspy
import numba
import numpy as np

import phaze_opt
from phaze_opt import DesignPoint, Objective, die_space, make_scenario
from phaze_opt.objective.scenario import PLANNED
from phaze_opt.units import GIBI, MEBI

ROOT = Path(__file__).parents[2]
MODELS = {
    "resnet18": ROOT / "tests/traced_models/resnet18.json",
    "vgg16": ROOT / "tests/traced_models/vgg16.json",
    "mobilenet_v3_large": ROOT / "tests/traced_models/mobilenet_v3_large.json",
    "resnext101_32x8d": ROOT / "studies/models/resnext101_32x8d.json",
    "inception_v3": ROOT / "studies/models/inception_v3.json",
}
GOALS_MS = {name: 1000.0 if name == "inception_v3" else 100.0 for name in MODELS}
CHIPS = ((4, 4, 128, 128), (2, 4, 256, 256), (8, 8, 64, 64), (1, 1, 256, 256), (16, 16, 64, 64), (32, 64, 64, 128))
CHIPS = (*CHIPS, (12, 24, 128, 128))
"""Tensor cores, vector cores, width and depth of an array."""
DEVICES, GLOBAL_BATCH = 1024, 32_768
SEED = 20261126
NUM_WARM_UPS = 2


def dies(count: int) -> list[DesignPoint]:
    """Dies to warm up on, then the chips above, then drawn ones; ``count`` of the latter two."""
    silicon = make_scenario("tiny", devices=DEVICES, global_batch=GLOBAL_BATCH).silicon
    assert silicon is not None
    space = die_space(silicon, micro_batches=(PLANNED,))
    places = np.random.default_rng(SEED).choice(space.size, size=NUM_WARM_UPS + count - len(CHIPS), replace=False)
    drawn = [space.point(int(place)) for place in places]
    chips = [
        DesignPoint(tc, vc, width, depth, width, 64 * MEBI, 64 * GIBI, PLANNED, hbm_stacks=4)
        for tc, vc, width, depth in CHIPS
    ]
    return [*drawn[:NUM_WARM_UPS], *chips, *drawn[NUM_WARM_UPS:]]


def timed(name: str, points: list[DesignPoint]) -> list[dict[str, Any]]:
    """Processor time, step and gap of the evaluations of one model, the warm ones."""
    objective = Objective(make_scenario(str(MODELS[name]), devices=DEVICES, global_batch=GLOBAL_BATCH))
    rows = []
    for point in points:
        began = time.process_time()
        found = objective.evaluate(point)
        rows.append(
            {
                "cores": [point.num_tc, point.num_vc, point.tc_width, point.tc_depth],
                "cpu_s": round(time.process_time() - began, 4),
                "batch_time_s": found.iteration_time_s if found.is_feasible else None,
                "gap": found.schedule_gap if found.is_feasible else None,
            }
        )
    return rows[NUM_WARM_UPS:]


def summary(rows: list[dict[str, Any]], goal_ms: float) -> dict[str, Any]:
    """Median, 90th percentile and most of the times, the share within the goal, and the gaps."""
    times = 1e3 * np.array([row["cpu_s"] for row in rows])
    gaps = np.array([row["gap"] for row in rows if row["gap"] is not None])
    return {
        "evaluations": len(rows),
        "goal_ms": goal_ms,
        "median_ms": round(float(np.median(times)), 1),
        "p90_ms": round(float(np.percentile(times, 90)), 1),
        "max_ms": round(float(times.max()), 1),
        "share_within_goal": round(float(np.mean(times <= goal_ms)), 3),
        "median_gap": round(float(np.median(gaps)), 5),
        "max_gap": round(float(gaps.max()), 5),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=tuple(MODELS), action="append")
    parser.add_argument("--dies", type=int, default=24)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("warm.json"))
    arguments = parser.parse_args()
    points = dies(arguments.dies)
    rows = {name: timed(name, points) for name in arguments.model or MODELS}
    groups = {name: summary(found, GOALS_MS[name]) for name, found in rows.items()}
    meta = {
        "version": phaze_opt.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "highspy": str(highspy.Highs().version()),
        "clock": "process",
    }
    for name, group in groups.items():
        print(f"{name:20s} {json.dumps(group)}")
    arguments.output.write_text(json.dumps({"_meta": meta, "groups": groups, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
