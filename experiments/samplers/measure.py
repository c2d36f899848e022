"""Runs of sampler-based strategies with 60 evaluations: 5 models x 2 objectives x seeds, appended to a file of runs.

    python experiments/samplers/measure.py --cases "tpe;tpe+pruner" --models gpt3-175b

A run that the file holds already is not repeated. All runs of a model share evaluations and bounds, as a study's
strategies do; each is charged for its own. `summarise.py` turns the file into regrets.
"""

import argparse
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phaze_opt import Cluster, Objective, Scenario, load_model, load_network
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.search.options import OptionValue
from phaze_opt.search.probe import PhaseView, PointBound
from phaze_opt.search.run import run_search
from phaze_opt.space.known_spaces import phaze_space

MODELS = ("bert-large", "gpt2-xl", "opt-1.3b", "llama-2-7b", "gpt3-175b")
GOALS = (Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP)
NUM_TRIALS = 60
DEVICES = 1024
GLOBAL_BATCH = 4096


@dataclass(frozen=True, slots=True)
class Case:
    """A strategy with its options, and whether the critical-path pruner judges its proposals."""

    strategy: str
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    pruner: str = ""


CASES: dict[str, Case] = {
    name: Case(strategy, options)
    for name, strategy, options in (
        ("random", "random", {}),
        ("tpe", "tpe", {}),
        ("cma-es", "cma-es", {}),
        ("nsga2", "nsga2", {"population": 12}),
        ("qmc", "qmc", {}),
        ("spotlight", "spotlight", {}),
        ("spotlight-ga", "spotlight-ga", {}),
        ("spotlight-random", "spotlight-random", {}),
        ("spotlight-vanilla", "spotlight-vanilla", {}),
        ("spotlight-fixed", "spotlight-fixed", {}),
        ("tpe exponents", "tpe", {"encoding": "exponents"}),
        ("tpe lifted", "tpe", {"encoding": "lifted"}),
        ("random exponents", "random", {"encoding": "exponents"}),
        ("random lifted", "random", {"encoding": "lifted"}),
    )
}


def case_of(name: str) -> Case:
    """A case by name; ``NAME+pruner`` adds the critical-path pruner, ``NAME:{json}`` gives options."""
    head, _, options = name.partition(":")
    is_pruned, head = head.endswith("+pruner"), head.removesuffix("+pruner")
    case = CASES.get(head) or Case(head)
    given = {**case.options, **(json.loads(options) if options else {})}
    return Case(case.strategy, given, "critical-path" if is_pruned else "")


@dataclass(slots=True)
class SharedModel:
    """One model's objective and bounds, each point computed once for all runs."""

    objective: Objective
    evaluations: dict[DesignPoint, Evaluation] = field(default_factory=dict)
    bounds: dict[DesignPoint, PointBound] = field(default_factory=dict)

    def evaluate(self, point: DesignPoint) -> Evaluation:
        """The evaluation of a point."""
        if point not in self.evaluations:
            self.evaluations[point] = self.objective.evaluate(point)
        return self.evaluations[point]

    def bound(self, points: Sequence[DesignPoint]) -> tuple[PointBound, ...]:
        """The bounds of points."""
        new = [point for point in dict.fromkeys(points) if point not in self.bounds]
        if new:
            self.bounds.update(zip(new, ObjectiveBounder(self.objective).bound(new), strict=True))
        return tuple(self.bounds[point] for point in points)

    def phases(self, point: DesignPoint) -> tuple[PhaseView, ...]:
        """Operator graphs of a point."""
        return ObjectiveBounder(self.objective).phases(point)


def build_shared(model: str, cache: Path | None) -> SharedModel:
    """The objective of a model, with what an earlier process left in a cache file."""
    cluster = Cluster(DEVICES, load_network("two-level", num_devices=DEVICES))
    shared = SharedModel(Objective(Scenario((load_model(model),), cluster, GLOBAL_BATCH)))
    if cache is not None and cache.exists():
        shared.evaluations, shared.bounds = pickle.loads(cache.read_bytes())
    return shared


def run_case(name: str, shared: SharedModel, *, model: str, goal: Goal, seed: int) -> dict[str, object]:
    """One run: what it found and what it cost."""
    case = case_of(name)
    with tempfile.TemporaryDirectory() as directory:
        config = SearchConfig(
            strategy=case.strategy,
            options=case.options,
            pruner=case.pruner,
            goal=goal,
            seed=seed,
            num_trials=NUM_TRIALS,
            num_starts=1,
            work_dir=Path(directory),
        )
        result = run_search(
            config,
            scenario=shared.objective.scenario,
            space=phaze_space(),
            objective_factory=lambda _: shared,
            bounder_factory=lambda _: shared,
        )
    best, history = 0.0, []
    for trial in result.trials:
        best = max(best, *trial.values) if trial.values else best
        history.append(best)
    return {
        "case": name,
        "model": model,
        "goal": goal.value,
        "seed": seed,
        "best": best,
        "best_at_30": history[min(29, len(history) - 1)],
        "evaluations": result.evaluations,
        "distinct": result.distinct_evaluations,
        "pruned": result.pruned,
        "probes": result.probes,
        "overhead_s": round(result.overhead_s, 4),
        "point": [] if result.best_number < 0 else str(result.trials[result.best_number].point),
    }


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", required=True, help="names separated by ';'")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("runs.jsonl"))
    parser.add_argument("--cache", type=Path, help="directory of evaluations kept between processes")
    arguments = parser.parse_args()
    lines = arguments.output.read_text(encoding="utf-8").splitlines() if arguments.output.exists() else []
    done = {(run["case"], run["model"], run["goal"], run["seed"]) for run in map(json.loads, lines)}
    for model in arguments.models.split(","):
        cache = arguments.cache / f"{model}.pickle" if arguments.cache else None
        shared = build_shared(model, cache)
        for name in arguments.cases.split(";"):
            started, num_known = time.perf_counter(), len(shared.evaluations)
            for goal in GOALS:
                for seed in range(arguments.seeds):
                    if (name, model, goal.value, seed) not in done:
                        run = run_case(name, shared, model=model, goal=goal, seed=seed)
                        with arguments.output.open("a", encoding="utf-8") as file:
                            file.write(json.dumps(run) + "\n")
            print(
                f"{model} {name}: {time.perf_counter() - started:.1f} s, {len(shared.evaluations) - num_known} new",
                file=sys.stderr,
                flush=True,
            )
            if cache is not None and len(shared.evaluations) > num_known:
                cache.parent.mkdir(parents=True, exist_ok=True)
                cache.write_bytes(pickle.dumps((shared.evaluations, shared.bounds)))


if __name__ == "__main__":
    main()
