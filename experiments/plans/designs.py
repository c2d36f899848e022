"""What full plans of designed chips cost, and what they come to beside Phaze's placements.

For each model: an evaluation of chips never seen, 200 of the space in the order drawn; the proof of the best of
88,080 points and its check; and the proof of the best of 352,320 points with Phaze's placements (four micro-batches).

Run: python experiments/plans/designs.py [--write]
"""

import argparse
import json
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.networks import load_network
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import CommonMean, Scenario, build_scenario, build_space
from phaze_opt.objective.scenario_options import ScenarioOptions, SpaceOptions
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.workload.config import load_model

RESULT = Path(__file__).with_suffix(".json")
MODELS = ("bert-large", "gpt3-175b", "mixtral-8x7b")
DEVICES, BATCH, NUM_CHIPS = 1024, 4096, 200


def options_of(plans: str) -> ScenarioOptions:
    """The job of all."""
    return ScenarioOptions(devices=DEVICES, global_batch=BATCH, plans=plans)


def scenario_of(name: str, plans: str) -> Scenario:
    """One model on a large cluster."""
    network = load_network("two-level", num_devices=DEVICES)
    return build_scenario(options_of(plans), (load_model(name),), network=network, common=CommonMean.ARITHMETIC)


def space_of(plans: str) -> SearchSpace:
    """Phaze's space, with what micro-batches and HBM sizes commands take by default."""
    return build_space(SpaceOptions(), plans=plans)


def measure_evaluations(name: str) -> dict[str, float]:
    """Chips never seen, one after the other."""
    objective, space = Objective(scenario_of(name, "full")), space_of("full")
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


def measure_proof(name: str, plans: str) -> dict[str, Any]:
    """The proof of one model's best chip, and its check."""
    with tempfile.TemporaryDirectory() as directory:
        problem = CertifyProblem(scenario_of(name, plans), space_of(plans), load_constants())
        result = certify(problem, CertifyOptions(jobs=2, directory=Path(directory)))
        started = time.perf_counter()
        check_certificate(result.directory)
        check_s = time.perf_counter() - started
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    measure_proof("tiny", "full")
    record = {
        "machine": f"{platform.machine()}, 2 cores",
        "versions": {"python": platform.python_version(), "numpy": version("numpy"), "phaze-opt": version("phaze-opt")},
        "models": {
            name: {
                "unseen_designs": measure_evaluations(name),
                "proof_full": measure_proof(name, "full"),
                "proof_phaze": measure_proof(name, "phaze"),
            }
            for name in MODELS
        },
    }
    text = json.dumps(record, indent=1)
    print(text)
    if given.write:
        RESULT.write_text(text + "\n")


if __name__ == "__main__":
    main()
