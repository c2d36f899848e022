"""What opening axes costs a proof: the default space of dies, and with pipelining and sparse arrays; writes axes.json.

    python experiments/certified/axes.py [--models M ...] [--cases C ...]

1,024 devices, global batch 4,096, one process, tolerance 0.1 %. ``default`` is the job as it stands; ``2:4`` has
sparse weights with transposable masks on the same space; ``opened`` has those weights, every kind of pipelining and
2:4 arrays beside dense ones; ``shaped`` has base and dmdb-wls, dense and 2:4, arrays as built and of any shape.
What is recorded of the same code is kept, so that an interrupted run goes on; what other code recorded is dropped.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.hardware.pipelining import Pipelining
from phaze_opt.hardware.sparse_array import KEYS
from phaze_opt.objective.scenario import Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.record.whole_file import replace_file
from phaze_opt.space.search_space import SearchSpace

OUT = Path(__file__).resolve().with_suffix(".json")
sys.path.append(str(OUT.parents[1]))
from recording.same_code import code_of, made_by, meta_of  # noqa: E402

MODELS = ("bert-large",)
WEIGHTS = "2:4,transposable=yes"
OPENED = {"pipelining": tuple(map(int, Pipelining)), "sparse_array": (1 + KEYS.index("dense"), 1 + KEYS.index("2:4"))}
SHAPED = {"pipelining": (1, 6), "sparse_array": OPENED["sparse_array"], "array_shape": (1, 3)}
CASES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "default": ("", {}),
    "2:4": (WEIGHTS, {}),
    "opened": (WEIGHTS, OPENED),
    "shaped": (WEIGHTS, SHAPED),
}
"""Weights, and the axes that are opened."""
TOLERANCE = 1e-3


def problem_of(model: str, case: str) -> CertifyProblem:
    """The proof of a case."""
    sparsity, opened = CASES[case]
    scenario: Scenario = make_scenario(model, devices=1024, global_batch=4096, sparsity=sparsity)
    space: SearchSpace = build_space(SpaceOptions(), silicon=scenario.silicon)
    space = replace(space, axes=replace(space.axes, **opened))
    return CertifyProblem(scenario, space, scenario.constants_of())


def prove(model: str, case: str) -> dict[str, Any]:
    """The certified optimum of a case and what it took."""
    with tempfile.TemporaryDirectory() as directory:
        started_s, cpu_s = time.perf_counter(), time.process_time()
        result = certify(problem_of(model, case), CertifyOptions(tolerance=TOLERANCE, directory=Path(directory)))
        wall_s, cpu_s = time.perf_counter() - started_s, time.process_time() - cpu_s
    claim = result.certificate.claim
    assert claim.point is not None
    return {
        "points": claim.num_points,
        "rows": claim.num_rows,
        "solved": claim.num_solved,
        "throughput_samples_per_s": claim.value,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "chip": claim.point.inline(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "peak_mb_so_far": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Prove every case of every model that the same code has not yet, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    code = code_of("certified/axes", OUT.parents[2])
    results: dict[str, dict[str, Any]] = made_by(code, options.out).get("results", {})
    for model in options.models:
        known = results.setdefault(model, {})
        for case in (case for case in options.cases if case not in known):
            known[case] = prove(model, case)
            print(model, case, json.dumps(results[model][case]), file=sys.stderr, flush=True)
            meta = meta_of("python experiments/certified/axes.py", code)
            replace_file(options.out, json.dumps({"_meta": meta, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
