"""Mean regret of every case in a file of runs, per cell and overall, with bootstrap intervals.

    python experiments/samplers/summarise.py --optima experiments/samplers/optima.json --output result.json

The reference of a cell (model x objective) is the enumerated optimum where ``--optima`` gives a JSON file of
{model: {goal: value}}, else the best of all runs in the file, which is a best known and no proven optimum.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import sklearn

import phaze_opt

NUM_RESAMPLES = 10_000


def find_references(runs: list[dict[str, Any]], optima: dict[str, dict[str, float]]) -> dict[tuple[str, str], float]:
    """Reference value of every cell; a run better than a given optimum is an error of that optimum."""
    best: dict[tuple[str, str], float] = defaultdict(float)
    for run in runs:
        cell = (run["model"], run["goal"])
        best[cell] = max(best[cell], run["best"])
    for (model, goal), found in list(best.items()):
        known = optima.get(model, {}).get(goal)
        if known is not None:
            assert found <= known * (1 + 1e-9), f"{model} {goal}: a run found {found}, more than the optimum {known}"
            best[model, goal] = known
    return dict(best)


def bootstrap_interval(cells: list[np.ndarray]) -> tuple[float, float]:
    """95 % percentile interval of the mean over cells of the mean over seeds, seeds resampled within each cell."""
    rng = np.random.default_rng(0)
    means = np.mean(
        [cell[rng.integers(len(cell), size=(NUM_RESAMPLES, len(cell)))].mean(axis=1) for cell in cells], axis=0
    )
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def summarise(runs: list[dict[str, Any]], references: dict[tuple[str, str], float]) -> dict[str, Any]:
    """Regrets of one case."""
    cells: dict[tuple[str, str], list[float]] = defaultdict(list)
    halves = []
    for run in runs:
        reference = references[run["model"], run["goal"]]
        cells[run["model"], run["goal"]].append(1 - run["best"] / reference)
        halves.append(1 - run["best_at_30"] / reference)
    regrets = [np.array(values) for _, values in sorted(cells.items())]
    everything = np.concatenate(regrets)
    return {
        "runs": len(runs),
        "cells": len(cells),
        "mean_regret": float(np.mean([cell.mean() for cell in regrets])),
        "interval_95": bootstrap_interval(regrets),
        "median_regret": float(np.median(everything)),
        "worst_regret": float(everything.max()),
        "mean_regret_at_30": float(np.mean(halves)),
        "by_cell": {f"{model} {goal}": float(np.mean(values)) for (model, goal), values in sorted(cells.items())},
        "mean_distinct_evaluations": float(np.mean([run["distinct"] for run in runs])),
        "mean_pruned": float(np.mean([run["pruned"] for run in runs])),
        "mean_probes": float(np.mean([run["probes"] for run in runs])),
        "mean_overhead_ms_per_proposal": 1e3
        * float(np.mean([run["overhead_s"] / (run["evaluations"] + run["pruned"]) for run in runs])),
    }


def main() -> None:
    """Read, summarise, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=Path(__file__).with_name("runs.jsonl"))
    parser.add_argument("--optima", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--only", default="", help="cases to write, separated by ';'; all by default")
    arguments = parser.parse_args()
    runs = [json.loads(line) for line in arguments.runs.read_text(encoding="utf-8").splitlines()]
    optima = json.loads(arguments.optima.read_text(encoding="utf-8")) if arguments.optima else {}
    references = find_references(runs, optima)
    wanted = [name for name in arguments.only.split(";") if name] or sorted({run["case"] for run in runs})
    cases = {name: summarise([run for run in runs if run["case"] == name], references) for name in wanted}
    for name, case in sorted(cases.items(), key=lambda item: item[1]["mean_regret"]):
        low, high = case["interval_95"]
        print(
            f"{name:44} n={case['runs']:4} mean {case['mean_regret']:7.2%} [{low:.2%}, {high:.2%}] "
            f"median {case['median_regret']:.2%} worst {case['worst_regret']:.1%} distinct "
            f"{case['mean_distinct_evaluations']:.1f} ms/ask {case['mean_overhead_ms_per_proposal']:.1f}"
        )
        print("     " + " ".join(f"{value:.1%}" for value in case["by_cell"].values()))
    if arguments.output:
        meta = {
            "version": phaze_opt.__version__,
            "optuna": optuna.__version__,
            "scikit_learn": sklearn.__version__,
            "reference": "enumerated optimum where optima.json has one, else best of all runs, not proven",
            "enumerated": sorted(f"{model} {goal}" for model, goals in optima.items() for goal in goals),
            "references": {f"{model} {goal}": value for (model, goal), value in sorted(references.items())},
            "setting": "1024 devices, two-level, global batch 4096, 352,320 points, 60 trials, batch 4, 1 start",
            "interval": f"percentile bootstrap over seeds within cells, {NUM_RESAMPLES} resamples",
        }
        arguments.output.write_text(json.dumps({"_meta": meta, "cases": cases}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
