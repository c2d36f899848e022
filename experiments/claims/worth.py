"""What each of the papers' mechanisms is worth on the main job, on the area and watts of TPU v4; writes worth.json.

1,024 devices, global batch 4,096, dies at 7 nm of at most the area and the power at full rate that `tpu-v4`
has as a die, full plans, over the values of `SPACE`: fewer than the default space has, but with its best dies for
bert-large and gpt3-175b (../silicon/optima.json, watts). ``base``: the certified best die (0.1 %). ``pipelining``,
``sparsity``, ``together``: the same with every kind of sub-stages, with 2:4 arrays for 2:4 weights with transposable
masks, and with both; ``flexibility`` with any tiles and shapes of arrays (all have any loop order and split already),
``everything`` with all of these. ``fusion``: no proof covers it, so it is the best of the `NUM_BEST` best dies of a
proof, each with the best groups of layers, with stages of any number of chunks and of one; ``together+fusion`` and
``everything+fusion`` likewise.
``ceilings``: what the base die would gain if a mechanism took all of the step that it can touch and cost nothing, by
shares of that step (Amdahl): filling and draining of arrays; half of the products with sparse weights, and the bytes
of weights that are not stored; all waiting for memory; of flexibility filling, draining, empty edges and memory. A die
chosen anew may gain more than the base die could: of pipelining ``no-fill`` is the ceiling of all dies, the certified
best one if arrays took no time to fill and drain.

Run: python experiments/claims/worth.py [--models M ...] [--cases C ...]
What is recorded of the same code is kept, so that an interrupted run goes on; what other code recorded is dropped.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from claims import DEVICES, GLOBAL_BATCH, TOLERANCE

from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.estimate.calibrated import CalibratedEstimator
from phaze_opt.estimate.protocol import Bound
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.flexibility import ARRAY_SHAPE, TILING
from phaze_opt.hardware.pipelining import Pipelining
from phaze_opt.hardware.presets import load_architecture
from phaze_opt.hardware.sparse_array import KEYS
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.metrics import plan_runs
from phaze_opt.objective.scenario import Scenario, build_space, make_scenario
from phaze_opt.objective.scenario_options import SpaceOptions
from phaze_opt.record.arrays import Floats
from phaze_opt.record.whole_file import replace_file
from phaze_opt.units import MEBI

FILE = Path(__file__).resolve().with_suffix(".json")
sys.path.append(str(FILE.parents[1]))
from recording.same_code import code_of, made_by, meta_of  # noqa: E402

MODELS = {
    "bert-large": "bert-large",
    "gpt3-175b": "gpt3-175b",
    "resnet-50": str(FILE.parents[2] / "studies" / "models" / "resnet50.json"),
    "mixtral-8x7b": "mixtral-8x7b",
}
MACHINE = "tpu-v4"
WEIGHTS = "2:4,transposable=yes"
STORED = 0.5625
"""Of dense weights, 2:4 ones with their places."""
SPACE = {
    "num_tc": (2, 4, 8, 12, 16, 24, 32, 48, 64),
    "num_vc": (4, 8, 12, 16, 24, 32, 48, 64),
    "tc_width": (64, 128, 256, 512),
    "tc_depth": (64, 128, 256, 512),
    "glb_bytes": tuple(size * MEBI for size in (4, 8, 16, 24, 32, 48, 64)),
    "glb_bytes_per_cycle": (1024, 2048, 3072, 4096, 6144),
    "hbm_stacks": (1, 2, 3, 4, 5),
}
AXES = {
    "pipelining": tuple(map(int, Pipelining)),
    "sparse_array": (1 + KEYS.index("dense"), 1 + KEYS.index("2:4")),
    "tiling": (1 + TILING.keys.index("part"), 1 + TILING.keys.index("full")),
    "array_shape": tuple(range(1, len(ARRAY_SHAPE.keys) + 1)),
}
PROOFS: dict[str, tuple[str, tuple[str, ...]]] = {
    "base": ("", ()),
    "pipelining": ("", ("pipelining",)),
    "sparsity": (WEIGHTS, ("sparse_array",)),
    "together": (WEIGHTS, ("pipelining", "sparse_array")),
    "flexibility": ("", ("tiling", "array_shape")),
    "everything": (WEIGHTS, tuple(AXES)),
    "no-fill": ("", ()),
}
"""Weights, and the axes that are opened; in ``no-fill`` arrays take no time to fill and drain."""
FUSED = {"fusion": "base", "together+fusion": "together", "everything+fusion": "everything"}
"""Cases of layer fusion, and the proof whose best dies they try."""
CASES = (
    "base", "fusion", "ceilings", "pipelining", "sparsity", "together", "together+fusion", "no-fill", "flexibility",
    "everything", "everything+fusion",
)  # fmt: skip
NUM_BEST = 4
NUM_KEPT = 6
"""Objectives that are kept, the latest: of fusion with both weights, and those of ceilings."""


def scenario_of(model: str, *, weights: str = "", limits: dict[str, float] | None = None, **changes: Any) -> Scenario:
    """The job."""
    return make_scenario(
        MODELS[model], devices=DEVICES, global_batch=GLOBAL_BATCH, silicon="die", sparsity=weights, **(limits or {}),
        **changes,
    )  # fmt: skip


def chip_of(text: str) -> Accelerator:
    """A chip as ``--arch`` takes it, or a preset."""
    return load_architecture(text, constants=constants())


@cache
def constants() -> Constants:
    """Of dies, whatever the model."""
    return scenario_of("bert-large").constants_of()


@lru_cache(maxsize=NUM_KEPT)
def objective_of(model: str, weights: str, fuser: str | None = None, interleave: tuple[int, ...] = ()) -> Objective:
    """What prices dies outside of proofs; cases ask for the same ones."""
    return Objective(scenario_of(model, weights=weights, layer_fusion=fuser, interleave=interleave))


@cache
def limits_of_machine() -> dict[str, float]:
    """Area and power of the machine as a die."""
    found = objective_of("bert-large", "").evaluate_accelerator(chip_of(MACHINE))
    return {"max_area_mm2": found.area_mm2, "max_tdp_w": found.tdp_w}


def prove(model: str, case: str) -> dict[str, Any]:
    """The certified optimum of a case within the machine's area and watts."""
    weights, opened = PROOFS[case]
    scenario = scenario_of(model, weights=weights, limits=limits_of_machine())
    space = build_space(SpaceOptions(), silicon=scenario.silicon)
    values = SPACE | {name: AXES[name] for name in opened}
    space = replace(space, name="worth", axes=replace(space.axes, **values))
    space = space.restrict(max_area_mm2=scenario.max_area_mm2)
    known = constants()
    if case == "no-fill":
        known = known.with_options({"fill_and_drain": "none"})
    problem = CertifyProblem(scenario, space, known)
    num_best = NUM_BEST if case in FUSED.values() else 1
    with tempfile.TemporaryDirectory() as folder:
        options = CertifyOptions(tolerance=TOLERANCE, directory=Path(folder), num_best=num_best)
        result = certify(problem, options)
    claim, best = result.certificate.claim, result.best[0].evaluation
    return {
        "throughput_samples_per_s": claim.value,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "chip": _inline(claim.point),
        "area_mm2": best.area_mm2,
        "power_w": best.tdp_w,
        "points": claim.num_points,
        "rows": claim.num_rows,
        "best": [each.point.inline() for each in result.best],
    }


def _inline(point: DesignPoint | None) -> str:
    assert point is not None
    return point.inline()


def fuse(model: str, case: str, proofs: dict[str, Any]) -> dict[str, Any]:
    """The best of a proof's best dies with the best groups of layers, or the proof's own; not proved to be the best."""
    weights, proof = PROOFS[FUSED[case]][0], proofs[FUSED[case]]
    tried, gains = {proof["chip"]: proof["throughput_samples_per_s"]}, [1.0]
    for interleave in ((), (1,)):
        both = [objective_of(model, weights, fuser, interleave) for fuser in (None, "exact")]
        for text in proof["best"]:
            alone, fused = (each.evaluate_accelerator(chip_of(text)).throughput_samples_per_s for each in both)
            gains.append(fused / alone)
            tried[text] = max(fused, tried.get(text, 0.0))
    chip = max(tried, key=lambda key: tried[key])
    return {
        "throughput_samples_per_s": tried[chip],
        "chip": chip,
        "is_proved": False,
        "dies": len(proof["best"]),
        "largest_gain_of_a_plan": max(gains),
    }


def ceilings(model: str, proofs: dict[str, Any]) -> dict[str, float]:
    """What the base die would gain from each mechanism at most, and the shares behind it."""
    chip = chip_of(proofs["base"]["chip"])
    found = objective_of(model, "").evaluate_accelerator(chip)
    parts = found.breakdown.parts
    step_s = sum(parts.values())
    tensor, memory = parts["tensor_cores_s"] / step_s, parts["memory_bound_s"] / step_s
    ramp, edge, sparse = _shares_of_arrays(model, chip)
    shares = {
        "pipelining": tensor * ramp,
        "sparsity": tensor * sparse / 2.0 + memory * (1.0 - STORED),
        "fusion": memory,
        "flexibility": tensor * (ramp + edge) + memory,
        "together": tensor * (1.0 - (1.0 - ramp) * (1.0 - sparse / 2.0)) + memory,
        "everything": tensor * (1.0 - (1.0 - ramp - edge) * (1.0 - sparse / 2.0)) + memory,
    }
    return {
        "tensor_cores": tensor,
        "memory": memory,
        "fill_and_drain_of_tensor_cores": ramp,
        "edges_of_tensor_cores": edge,
        "sparse_products_of_tensor_cores": sparse,
        **{f"{name}_times": 1.0 / (1.0 - share) for name, share in shares.items()},
    }


def _shares_of_arrays(model: str, chip: Accelerator) -> tuple[float, float, float]:
    """Of the seconds of arrays in a step: filling and draining, empty edges, and products with sparse weights."""
    objective = objective_of(model, WEIGHTS)
    scheduled = objective.plan(chip)
    assert scheduled is not None
    step = scheduled.step
    explained = CalibratedEstimator(objective.constants).explain(step.operators, chip)
    causes = (Bound.FILL_AND_DRAIN, Bound.EDGE_WASTE, Bound.COMPUTE)
    parts = np.array([[dict(each.parts_s).get(cause, 0.0) for each in explained] for cause in causes])
    ramps, edges, arrays = parts[0], parts[1], parts.sum(axis=0)
    is_sparse = np.array([any(matmul.pattern for matmul in each.matmuls) for each in step.operators])
    runs = plan_runs(step).sum(axis=0)[:, :2]

    def seconds(values: Floats) -> float:
        of_passes = [[values[each.columns].sum() for each in (part.forward, part.backward)] for part in step.parts]
        return float((runs * np.array(of_passes)).sum())

    ramp_s, edge_s, sparse_s = map(seconds, (ramps, edges, arrays * is_sparse))
    return ramp_s / seconds(arrays), edge_s / seconds(arrays), sparse_s / seconds(arrays)


def measure(model: str, case: str, known: dict[str, Any]) -> dict[str, Any]:
    """One case of a model, from those before it."""
    if case == "ceilings":
        return ceilings(model, known)
    found = fuse(model, case, known) if case in FUSED else prove(model, case)
    base = found if case == "base" else known["base"]
    return {**found, "times": found["throughput_samples_per_s"] / base["throughput_samples_per_s"]}


def with_needed(cases: Sequence[str]) -> list[str]:
    """Cases with those that they start from, in the order in which they are measured."""
    wanted = {"base", *cases, *(FUSED[case] for case in cases if case in FUSED)}
    return [case for case in CASES if case in wanted]


def main() -> None:
    """Measure every case of every model that the same code has not yet, writing after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    code = code_of("claims/worth", FILE.parents[2])
    record = made_by(code, FILE)
    record["limits"] = {"machine": MACHINE, **limits_of_machine()}
    models: dict[str, dict[str, Any]] = record.setdefault("models", {})
    for model in options.models:
        known = models.setdefault(model, {})
        for case in (case for case in with_needed(options.cases) if case not in known):
            known[case] = measure(model, case, known)
            record["_meta"] = meta_of("python experiments/claims/worth.py", code)
            replace_file(FILE, json.dumps(record, indent=1, sort_keys=True) + "\n")
            print(model, case, json.dumps(known[case]), flush=True)


if __name__ == "__main__":
    main()
