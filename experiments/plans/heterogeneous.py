"""What one design for every stage gains over one design for all under full plans, and how long it takes.

On 1,024 devices: among the designs of a search by `wham`, and among ten designs drawn from Phaze's space, whose stages
differ more. Seconds are of all of it, the uniform evaluations of the candidates among them, once the plans are listed.

Run: python experiments/plans/heterogeneous.py [--write]
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from records import finish, parser_of

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.jobs.search_answer import candidate_points
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.heterogeneous import evaluate_heterogeneous
from phaze_opt.objective.scenario import PlanSpace, Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.run import run_search

DEVICES, BATCH, NUM_DRAWN = 1024, 4096, 10
PLAIN: dict[str, Any] = {"interleave": 1}
"""Without interleaving, where ends of a pipeline may have time to spare."""
CASES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bert-large", "two-level", {}),
    ("bert-large", "two-level", {"pipeline": (2, 4, 8), **PLAIN}),
    ("llama-2-7b", "two-level", {"pipeline": (2, 4, 8), **PLAIN}),
    ("gpt3-175b", "two-level", {}),
    ("gpt3-175b", "two-level", PLAIN),
    ("gpt3-175b", "phaze", {}),
)
"""Models, networks and options of their plans: small models have one stage unless told otherwise."""


def searched(scenario: Scenario) -> tuple[DesignPoint, ...]:
    """Candidates of a search of 60 trials."""
    with tempfile.TemporaryDirectory() as folder:
        config = SearchConfig(strategy="wham", num_starts=1, work_dir=Path(folder))
        result = run_search(config, scenario=scenario, space=build_space(SpaceOptions(), PlanSpace.FULL))
    return candidate_points(result.trials)


def drawn(scenario: Scenario) -> tuple[DesignPoint, ...]:
    """The designs of the space, in the order drawn, on which some plan fits."""
    space, objective, found = build_space(SpaceOptions(), PlanSpace.FULL), Objective(scenario), []
    for index in np.random.default_rng(0).permutation(space.size).tolist():
        point = space.point(index)
        if objective.evaluate(point).is_feasible:
            found.append(point)
        if len(found) == NUM_DRAWN:
            break
    return tuple(found)


def measure(scenario: Scenario, points: tuple[DesignPoint, ...]) -> dict[str, Any]:
    """One pipeline, in a fresh objective whose plans are listed."""
    objective = Objective(scenario)
    objective.planned(0)
    started = time.perf_counter()
    found = evaluate_heterogeneous(objective, points)
    seconds = time.perf_counter() - started
    assert found is not None
    plan = found.placement.plan
    assert plan is not None
    return {
        "candidates": found.num_candidates,
        "designs": found.num_designs,
        "plan": f"{plan.tensor} x {plan.pipeline} x {plan.data}, v {plan.interleave}, mb {plan.micro_batch}",
        "gain": found.gain,
        "gain_per_tdp": found.gain_per_tdp,
        "samples_per_s": found.throughput_samples_per_s,
        "seconds": round(seconds, 2),
    }


def main() -> None:
    """Print one row a case and way to get candidates, and maybe write the record."""
    arguments = parser_of(__doc__).parse_args()
    rows = []
    for model, network, options in CASES:
        scenario = make_scenario(
            model, devices=DEVICES, global_batch=BATCH, network=network, silicon="phaze", **options
        )
        for name, points in (("wham", searched(scenario)), ("drawn", drawn(scenario))):
            case = {"model": model, "network": network, "options": options, "from": name}
            rows.append(case | measure(scenario, points))
    finish(__file__, {"rows": rows}, write=arguments.write)


if __name__ == "__main__":
    main()
