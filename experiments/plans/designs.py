"""What full plans of designed chips cost, and what they come to beside the published form.

For three models: an evaluation of chips never seen, 200 dies of the space in the order drawn; the proof of the best of
1,983,866 dies and its check. For all models of the zoo: that best beside the best of 352,320 points in the published
form of Phaze (placements, 22 nm tables, ideal operators and software, four micro-batches).

Run: python experiments/plans/designs.py [--write]
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from records import finish, parser_of

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.constants import load_constants
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import PlanSpace, Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.zoo import list_models

MODELS = ("bert-large", "gpt3-175b", "mixtral-8x7b")
DEVICES, BATCH, NUM_CHIPS = 1024, 4096, 200


def scenario_of(name: str, plans: PlanSpace) -> Scenario:
    """One model on a large cluster, as commands price it by default or in the published form."""
    form = "phaze" if plans is PlanSpace.PHAZE else None
    return make_scenario(name, devices=DEVICES, global_batch=BATCH, published_form=form)


def space_of(scenario: Scenario) -> SearchSpace:
    """The space that commands search by default."""
    plans = PlanSpace.PHAZE if scenario.plans is None else PlanSpace.FULL
    return build_space(SpaceOptions(), plans, silicon=scenario.silicon)


def measure_evaluations(name: str) -> dict[str, float]:
    """Chips never seen, one after the other."""
    scenario = scenario_of(name, PlanSpace.FULL)
    objective, space = Objective(scenario), space_of(scenario)
    started = time.perf_counter()
    objective.planned(0)
    prepared = time.perf_counter()
    objective.evaluate(space.point(0))
    warm = time.perf_counter()
    seconds = []
    for index in np.random.default_rng(0).choice(space.size, NUM_CHIPS, replace=False).tolist():
        begun = time.perf_counter()
        objective.evaluate(space.point(index))
        seconds.append(time.perf_counter() - begun)
    later = seconds[NUM_CHIPS // 2 :]
    return {
        "prepare_s": prepared - started,
        "first_s": warm - prepared,
        "median_ms": 1e3 * float(np.median(seconds)),
        "p90_ms": 1e3 * float(np.quantile(seconds, 0.9)),
        "p99_ms": 1e3 * float(np.quantile(seconds, 0.99)),
        "p99_ms_of_the_second_half": 1e3 * float(np.quantile(later, 0.99)),
    }


def measure_proof(name: str, plans: PlanSpace, *, has_check: bool = True) -> dict[str, Any]:
    """The proof of one model's best chip, and maybe its check."""
    with tempfile.TemporaryDirectory() as directory:
        scenario = scenario_of(name, plans)
        problem = CertifyProblem(scenario, space_of(scenario), load_constants())
        result = certify(problem, CertifyOptions(jobs=2, directory=Path(directory)))
        started = time.perf_counter()
        if has_check:
            check_certificate(result.directory)
        check_s = time.perf_counter() - started if has_check else None
    claim, best = result.certificate.claim, result.best[0].evaluation
    placement = best.placement
    assert placement is not None
    return {
        "points": claim.num_points,
        "proof_s": result.wall_s,
        "check_s": check_s,
        "gap": claim.gap,
        "samples_per_s": claim.value,
        "mfu": best.mfu,
        "design": result.best[0].point.inline(),
        "tensor_pipeline_data": [placement.tensor_parallel, len(placement.stages), placement.data_parallel],
        "micro_batch": best.micro_batch,
    }


def main() -> None:
    """Measure, print, and maybe write."""
    given = parser_of(__doc__).parse_args()
    measure_proof("tiny", PlanSpace.FULL)
    figures = {
        "models": {
            name: {
                "unseen_designs": measure_evaluations(name),
                "proof_full": measure_proof(name, PlanSpace.FULL),
                "proof_phaze": measure_proof(name, PlanSpace.PHAZE),
            }
            for name in MODELS
        },
        "zoo": {
            name: {f"proof_{plans.value}": measure_proof(name, plans, has_check=False) for plans in PlanSpace}
            for name in list_models()
            if name not in MODELS
        },
    }
    finish(__file__, figures, write=given.write)


if __name__ == "__main__":
    main()
