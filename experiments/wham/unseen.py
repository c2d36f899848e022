"""Regret of strategy `wham` on models, training choices and clusters that were not looked at while it was written.

    python experiments/wham/unseen.py > experiments/wham/unseen.json

The optimum of each case is found by `find_truth`: the whole space bounded, and evaluated where bounds leave a doubt.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truth import GLOBAL_BATCH, GOALS, NUM_DEVICES, joined_space

from phaze_opt import Cluster, Objective, Scenario, __version__, load_model, load_network
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.goals import Goal
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.objective_bounder import ObjectiveBounder
from phaze_opt.search.run import run_search
from phaze_opt.study.config import Condition, Setting, StudyWorkload
from phaze_opt.study.truth import find_truth
from phaze_opt.workload.training import AttentionForm, Optimizer

CONFIGS = Path(__file__).parents[2] / "tests" / "workload" / "configs"
NUM_SEEDS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """One model and what differs from Adam, fused attention, 1024 devices and no budget of power."""

    model: str
    network: str
    changes: dict[str, Any] = field(default_factory=dict)
    num_devices: int = NUM_DEVICES

    @property
    def name(self) -> str:
        """Of the case, in words."""
        parts = [self.model, self.network, *(f"{key} {value}" for key, value in self.changes.items())]
        return ", ".join([*parts, *([f"{self.num_devices} devices"] if self.num_devices != NUM_DEVICES else [])])

    @property
    def scenario(self) -> Scenario:
        """What is searched for."""
        path = CONFIGS / f"{self.model}.json"
        network = load_network(self.network, num_devices=self.num_devices)
        return Scenario(
            models=(load_model(str(path) if path.exists() else self.model),),
            cluster=Cluster(num_devices=self.num_devices, network=network),
            global_batch=GLOBAL_BATCH * self.num_devices // NUM_DEVICES,
            **self.changes,
        )


CASES = (
    Case("opt-350m", "phaze"),
    Case("megatron-bert", "phaze"),
    Case("megatron-gpt2-72", "two-level"),
    Case("mistral-7b", "two-level"),
    Case("bert-base", "phaze"),
    Case("opt-350m", "phaze", {"optimizer": Optimizer.SGD}),
    Case("megatron-bert", "two-level", {"attention": AttentionForm.UNFUSED}),
    Case("bert-large", "two-level", {"exclusivity": Exclusivity.TYPE}),
    Case("megatron-bert", "phaze", {}, 256),
    Case("llama-2-7b", "two-level", {"max_tdp_w": 400.0}),
    Case("opt-350m", "phaze", {"max_tdp_w": 400.0}),
    Case("gpt2-xl", "phaze", {"optimizer": Optimizer.SGD}),
)


def measure(
    case: Case, goal: str, folder: Path, *, num_seeds: int, objective: Objective, bounder: ObjectiveBounder
) -> list[dict[str, object]]:
    """The true optimum, and one search of 60 trials from each starting point."""
    condition = Condition(
        Setting(goal=Goal(goal)),
        StudyWorkload(case.model, (case.model,)),
        case.scenario,
        joined_space(),
        load_constants(),
    )
    truth = find_truth(condition, cache_dir=folder, objective=objective, bounder=bounder)
    rows: list[dict[str, object]] = []
    for seed in range(num_seeds):
        config = SearchConfig(strategy="wham", goal=Goal(goal), seed=seed, num_starts=1, work_dir=folder)
        started = time.process_time()
        result = run_search(
            config,
            scenario=condition.scenario,
            space=condition.space,
            objective_factory=lambda _: objective,
            bounder_factory=lambda _: bounder,
        )
        processor_s = time.process_time() - started
        values = [record.values[0] if record.values else 0.0 for record in result.trials]
        row: dict[str, object] = {"case": case.name, "goal": goal, "seed": seed, "evaluations": len(values)}
        if truth is not None:
            found = max(values)
            row |= {"regret": 1.0 - found / truth.value, "evaluations_to_best": 1 + values.index(found)}
        seconds = {"processor_s": round(processor_s, 2), "overhead_s": round(result.overhead_s, 2)}
        rows.append(row | {"probes": result.probes} | seconds)
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def main() -> None:
    """Print all rows as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1e9, help="start no case after this")
    parser.add_argument("--seeds", type=int, default=NUM_SEEDS)
    parser.add_argument("--first", type=int, default=0, help="number of the case to start from")
    arguments = parser.parse_args()
    started, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in list(enumerate(CASES))[arguments.first :]:
            objective = Objective(case.scenario)
            bounder = ObjectiveBounder(objective)
            for goal in GOALS:
                if time.monotonic() - started < arguments.seconds:
                    rows += measure(
                        case,
                        goal,
                        Path(folder) / str(number),
                        num_seeds=arguments.seeds,
                        objective=objective,
                        bounder=bounder,
                    )
    meta = {
        "version": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": "python experiments/wham/unseen.py",
        "machine": "2 cores of an AMD EPYC, shared with other work, so that seconds are upper ends",
        "num_trials": 60,
        "num_starts": 1,
        "tolerance": 0.005,
    }
    print(json.dumps({"_meta": meta, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
