"""What the bounds and the pruners are worth; writes results.json beside this file, part by part.

Parts: ``sweep`` enumerates the whole joined space with ``critical-path``; ``tightness`` compares bounds with
evaluations of random points; ``slice`` evaluates every chip at one buffer, HBM and micro-batch without a pruner,
enumerates them with it, and replays what ``critical-path-aggressive`` would lose there in random orders.
Run: python experiments/pruner/bench.py sweep tightness slice
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import phaze_opt
from phaze_opt import Cluster, Objective, Scenario, load_model, load_network
from phaze_opt.objective.bounds import ThroughputBounder
from phaze_opt.objective.goals import Goal
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.pruners import ROUNDING
from phaze_opt.search.run import run_search
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI

DEVICES = 1024
GLOBAL_BATCH = 4096
SPACE = phaze_space()
SLICE_GLB_BYTES, SLICE_HBM_BYTES, SLICE_MICRO_BATCH = 4 * MEBI, 80 * GIBI, 8
MARGINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
NUM_ORDERS = 200
NUM_TIMED = 16_384


def make_scenario(model: str) -> Scenario:
    """The demonstration's scenario for one model."""
    return Scenario(
        (load_model(model),), Cluster(DEVICES, load_network("two-level", num_devices=DEVICES)), GLOBAL_BATCH
    )


def search(scenario: Scenario, space: SearchSpace, *, pruner: str, goal: Goal) -> dict[str, object]:
    """One enumeration: what it found, what it spent."""
    cpu = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        config = SearchConfig("exhaustive", goal=goal, num_trials=space.size, pruner=pruner, work_dir=Path(directory))
        result = run_search(config, scenario=scenario, space=space)
    assert result.best is not None
    return {
        "points": space.size,
        "evaluations": result.evaluations,
        "share_of_points_avoided": 1.0 - result.evaluations / space.size,
        "ilp_solves": result.ilp_solves,
        "placements": result.placements,
        "wall_s": result.wall_s,
        "cpu_s": time.process_time() - cpu,
        "evaluating_s": sum(trial.wall_s for trial in result.trials),
        "best_samples_per_s": result.best.throughput_samples_per_s,
        "best_samples_per_s_per_w": result.best.throughput_per_tdp,
        "best_point": str(result.trials[result.best_number].point),
    }


def measure_sweep(model: str, goal: Goal) -> dict[str, object]:
    """The whole joined space with the safe pruner."""
    return search(make_scenario(model), SPACE, pruner="critical-path", goal=goal)


def measure_tightness(model: str, *, count: int) -> dict[str, object]:
    """Bound over truth of random points, and what evaluating them takes."""
    objective = Objective(make_scenario(model))
    indices = np.random.default_rng(0).choice(SPACE.size, size=count, replace=False)
    points = SPACE.points_at(indices)
    bounder = ThroughputBounder(objective)
    bounds = bounder.bound_points(points)
    many = SPACE.points_at(np.arange(0, SPACE.size, SPACE.size // NUM_TIMED))
    started = time.process_time()
    bounder.bound_points(many)
    bound_us = 1e6 * (time.process_time() - started) / len(many)
    started = time.process_time()
    evaluations = [objective.evaluate(point) for point in points]
    evaluate_us = 1e6 * (time.process_time() - started) / count
    feasible = [number for number, entry in enumerate(evaluations) if entry.is_feasible]
    ratios = np.array(
        [bounds[row].throughput_samples_per_s / evaluations[row].throughput_samples_per_s for row in feasible]
    )
    return {
        "points": count,
        "feasible": len(feasible),
        "infeasible_seen_by_bound": sum(bool(bound.reason) for bound in bounds),
        "least_ratio": float(ratios.min()),
        "ratio_quantiles": {str(q): float(np.quantile(ratios, q)) for q in (0.1, 0.5, 0.9, 0.95, 0.99, 1.0)},
        "cpu_us_per_bound": bound_us,
        "cpu_us_per_evaluation": evaluate_us,
        "ilp_solves_per_evaluation": sum(entry.effort.num_ilp_solves for entry in evaluations) / count,
        "placements_per_evaluation": sum(entry.effort.num_placements for entry in evaluations) / count,
    }


def measure_slice(model: str) -> dict[str, object]:
    """Every chip of one slice evaluated; the same enumerated with the pruner; the aggressive one replayed."""
    axes = replace(
        SPACE.axes, glb_bytes=(SLICE_GLB_BYTES,), hbm_bytes=(SLICE_HBM_BYTES,), micro_batch=(SLICE_MICRO_BATCH,)
    )
    space, scenario = replace(SPACE, axes=axes), make_scenario(model)
    objective = Objective(scenario)
    points = space.points_at(np.arange(space.size))
    bounds = np.array([b.throughput_samples_per_s for b in ThroughputBounder(objective).bound_points(points)])
    started = time.process_time()
    evaluations = [objective.evaluate(point) for point in points]
    full_cpu_s = time.process_time() - started
    truth = np.array([entry.throughput_samples_per_s for entry in evaluations])
    pruned = search(scenario, space, pruner="critical-path", goal=Goal.THROUGHPUT)
    full = {
        "cpu_s": full_cpu_s,
        "ilp_solves": sum(entry.effort.num_ilp_solves for entry in evaluations),
        "placements": sum(entry.effort.num_placements for entry in evaluations),
        "best_samples_per_s": float(truth.max()),
        "best_point": str(points[int(truth.argmax())]),
    }
    return {
        "full": full,
        "pruned": pruned,
        "same_best": pruned["best_samples_per_s"] == full["best_samples_per_s"],
        "share_of_ilps_avoided": 1.0 - float(str(pruned["ilp_solves"])) / max(1, full["ilp_solves"]),
        "share_of_placements_avoided": 1.0 - float(str(pruned["placements"])) / full["placements"],
        "bounds_below_truth": int((bounds < truth).sum()),
        "aggressive": [replay_aggressive(bounds, truth, margin) for margin in MARGINS],
    }


def replay_aggressive(bounds: np.ndarray, truth: np.ndarray, margin: float) -> dict[str, float]:
    """Loss and evaluations of a sweep in random orders with a margin; one point judged at a time."""
    losses, evaluated = [], []
    for seed in range(NUM_ORDERS):
        best, count = 0.0, 0
        for row in np.random.default_rng(seed).permutation(len(truth)):
            if bounds[row] > 0.0 and bounds[row] * (1.0 - margin) >= best * (1.0 - ROUNDING):
                best, count = max(best, truth[row]), count + 1
        losses.append(1.0 - best / truth.max())
        evaluated.append(count)
    return {
        "margin": margin,
        "mean_loss": float(np.mean(losses)),
        "median_loss": float(np.median(losses)),
        "max_loss": float(np.max(losses)),
        "median_evaluations": float(np.median(evaluated)),
    }


def main() -> None:
    """Measure the parts asked for, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="+", choices=("sweep", "tightness", "slice"))
    parser.add_argument("--models", nargs="+", default=["bert-large", "gpt2-xl", "llama-2-7b", "gpt3-175b"])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    arguments = parser.parse_args()
    result = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
    tasks = {
        "sweep": lambda model: {goal.value: measure_sweep(model, goal) for goal in list(Goal)[:2]},
        "tightness": lambda model: measure_tightness(model, count=arguments.count),
        "slice": measure_slice,
    }
    for part in arguments.parts:
        for model in arguments.models:
            measured = tasks[part](model)
            result["_meta"] = {
                "version": phaze_opt.__version__,
                "machine": f"{platform.machine()}, {os.cpu_count()} cores",
                "python": platform.python_version(),
                "numpy": np.__version__,
                "devices": DEVICES,
                "global_batch": GLOBAL_BATCH,
                "network": "two-level",
                "command": "python experiments/pruner/bench.py sweep tightness slice",
                "note": "cpu_s is the load-independent figure; wall_s was measured at the load average beside it",
            }
            result.setdefault(part, {})[model] = {**measured, "load_average": os.getloadavg()[0]}
            arguments.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
            print(part, model, json.dumps(measured), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
