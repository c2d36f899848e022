"""Regret, evaluations and probes of strategy `wham` by model, network, goal and starting point.

    python experiments/wham/truth.py MODEL NETWORK > TRUTHS/MODEL-NETWORK.json   (once for every model and network)
    python experiments/wham/measure.py TRUTHS > experiments/wham/result.json

Seeds are the outermost loop, so a run that is cut short has fewer seeds of every case rather than fewer cases. Models
marked tuned were looked at while the strategy was written; the others were not. Searches of one model and network share
compiled graphs, bounds and evaluations: that changes no result, but seconds are given for the strategy's own work, and
those of the first search of a model and network include what the others share.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from truth import GOALS, joined_space, scenario_of

from phaze_opt import Objective, __version__
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.search.run import run_search

CONFIGS = Path(__file__).parents[2] / "tests" / "workload" / "configs"
TUNED = ("bert-large", "gpt2-xl", "llama-2-7b", "megatron-gpt2-54")
UNTUNED = ("opt-1.3b", "gpt3-175b", "qwen2-7b", "llama-3-8b", "mixtral-8x7b")
NETWORKS = ("two-level", "phaze")
VARIANTS = {"loop": {}, "no loop": {"outer_loop": False}}
NUM_SEEDS = 10
NUM_SEEDS_OTHERS = 3
MANY_SEEDS = ("bert-large", "gpt2-xl", "llama-2-7b")


@dataclass(slots=True)
class SharedObjective:
    """An objective that remembers evaluations, and its bounds; they are the same for every search of a scenario."""

    objective: Objective
    bounder: ObjectiveBounder
    known: dict[DesignPoint, Evaluation] = field(default_factory=dict)

    def evaluate(self, point: DesignPoint) -> Evaluation:
        """The evaluation of a point, made once."""
        if point not in self.known:
            self.known[point] = self.objective.evaluate(point)
        return self.known[point]


@cache
def shared_objective(model: str, network: str) -> SharedObjective:
    """That of one model and network."""
    path = CONFIGS / f"{model}.json"
    objective = Objective(scenario_of(str(path) if path.exists() else model, network))
    return SharedObjective(objective, ObjectiveBounder(objective))


def cases() -> Iterator[tuple[int, str, str, str, str]]:
    """(seed, model, network, goal, variant)."""
    for seed in range(NUM_SEEDS):
        for model in (*TUNED, *UNTUNED):
            if model not in MANY_SEEDS and seed >= NUM_SEEDS_OTHERS:
                continue
            for network in NETWORKS:
                for goal in GOALS:
                    yield seed, model, network, goal, "loop"
                    if network == "two-level" and model in MANY_SEEDS and seed < NUM_SEEDS_OTHERS:
                        yield seed, model, network, goal, "no loop"


def measure(seed: int, model: str, network: str, goal: str, *, variant: str, best: float) -> dict[str, object]:
    """One search of 60 trials from one starting point."""
    shared = shared_objective(model, network)
    started = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        config = SearchConfig(
            strategy="wham", goal=Goal(goal), options=VARIANTS[variant], seed=seed, num_starts=1, work_dir=Path(folder)
        )
        result = run_search(
            config,
            scenario=shared.objective.scenario,
            space=joined_space(),
            objective_factory=lambda _: shared,
            bounder_factory=lambda _: shared.bounder,
        )
    values = [(record.values[0] if record.values else 0.0) for record in result.trials]
    found = max(values)
    start = result.trials[0].point
    return {
        "model": model,
        "network": network,
        "goal": goal,
        "variant": variant,
        "seed": seed,
        "start_glb_mib": start.glb_bytes >> 20,
        "start_hbm_gib": start.hbm_bytes >> 30,
        "regret": 1.0 - found / best,
        "start_regret": 1.0 - values[0] / best,
        "evaluations": result.distinct_evaluations,
        "evaluations_to_best": 1 + next(i for i, value in enumerate(values) if value >= found * (1 - 1e-9)),
        "evaluations_to_half_percent": next((i for i, v in enumerate(values, start=1) if v >= best * 0.995), None),
        "probes": result.probes,
        "overhead_s": round(result.overhead_s, 2),
        "processor_s": round(time.process_time() - started, 2),
    }


def summarise(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """One line for every model, network, goal and variant."""
    groups: dict[tuple[object, ...], list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["network"], row["goal"], row["variant"]), []).append(row)
    lines = []
    for (model, network, goal, variant), group in groups.items():
        regrets = [float(str(row["regret"])) for row in group]
        lines.append(
            {
                "model": model,
                "is_tuned": model in TUNED,
                "network": network,
                "goal": goal,
                "variant": variant,
                "seeds": len(group),
                "mean_regret": statistics.fmean(regrets),
                "max_regret": max(regrets),
                "max_evaluations_to_best": max(int(str(row["evaluations_to_best"])) for row in group),
                "max_evaluations": max(int(str(row["evaluations"])) for row in group),
                "median_overhead_s": statistics.median(float(str(row["overhead_s"])) for row in group),
                "median_processor_s": statistics.median(float(str(row["processor_s"])) for row in group),
                "max_probes": max(int(str(row["probes"])) for row in group),
            }
        )
    return lines


def main() -> None:
    """Print summary and rows as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("truths", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--first-seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.monotonic()
    rows: list[dict[str, object]] = []
    for seed, model, network, goal, variant in cases():
        if seed < arguments.first_seed:
            continue
        path = arguments.truths / f"{model}-{network}.json"
        if time.monotonic() - started > arguments.seconds:
            break
        if path.exists():
            best = json.loads(path.read_text())[goal]["best"]
            rows.append(measure(seed, model, network, goal, variant=variant, best=best))
            print(rows[-1], file=sys.stderr, flush=True)
    meta = {
        "version": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python experiments/wham/measure.py TRUTHS --seconds {arguments.seconds:g}",
        "machine": "2 cores of an AMD EPYC, shared with other work: processor_s is steadier than overhead_s",
        "python": platform.python_version(),
        "num_trials": 60,
        "num_starts": 1,
        "tolerance": 0.005,
    }
    print(json.dumps({"_meta": meta, "summary": summarise(rows), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
