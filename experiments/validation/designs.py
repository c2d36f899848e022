"""What calibration changes in the designs found: certified optima with ideal and with calibrated operators.

    python experiments/validation/designs.py [--models M ...] [--networks N ...]

Every model on every network: the certified optimum of Phaze's space (3 sizes of HBM, 4 micro-batches, tolerance 0.1 %)
under each estimator, each optimum evaluated under the other one, and Spearman's correlation of the bounds of all
29,360 architectures at the HBM and micro-batch of the calibrated optimum. Then, on the first network, other terms in
place of the calibrated ones, each from another measured machine. Writes designs.json and designs.md beside this file.
"""

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from phaze_opt import Cluster, Scenario, load_model, load_network
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.estimate import protocol as guarded_module
from phaze_opt.estimate.calibrated import CalibratedEstimator, DesignTerms
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.objective.bounds import bound_points
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.reference_machines import REFERENCES, evaluate_references
from phaze_opt.space.known_spaces import phaze_space
from phaze_opt.units import GIBI, MEBI

OUT = Path(__file__).with_name("designs.json")
OTHER_TERMS_MODELS = ("bert-large", "gpt3-175b")
"""Models whose optima are found under other terms too."""
DEVICES, GLOBAL_BATCH, TOLERANCE = 1024, 4096, 1e-3
HBM_BYTES = (32 * GIBI, 64 * GIBI, 80 * GIBI)
MICRO_BATCHES = (1, 2, 4, 8)
NUM_TOP = 100
IDEAL = "analytic"


def build_scenario(model: str, network: str, estimator: str) -> Scenario:
    """The demonstration's cluster and batch."""
    cluster = Cluster(DEVICES, load_network(network, num_devices=DEVICES))
    return Scenario((load_model(model),), cluster, GLOBAL_BATCH, estimator=estimator)


def prove(scenario: Scenario) -> dict[str, Any]:
    """The best that is known and how much better another may be: the certified optimum, unless proofs end before."""
    space = phaze_space(hbm_bytes=HBM_BYTES, micro_batches=MICRO_BATCHES)
    problem = CertifyProblem(scenario, space, load_constants())
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        result = certify(problem, CertifyOptions(tolerance=TOLERANCE, directory=Path(directory)))
        wall_s = time.perf_counter() - started
    claim = result.certificate.claim
    assert claim.point is not None
    return {
        "point": claim.point,
        "samples_per_s": claim.value,
        "gap": claim.gap,
        "is_proved": claim.is_proved,
        "num_points": claim.num_points,
        "proof_wall_s": round(wall_s, 1),
    }


def describe(evaluation: Evaluation) -> dict[str, Any]:
    """Placement and where the time goes."""
    placement = evaluation.placement
    assert placement is not None
    total = evaluation.iteration_time_s
    return {
        "samples_per_s": evaluation.throughput_samples_per_s,
        "mfu": round(evaluation.mfu, 4),
        "stages": len(placement.stages),
        "tensor_parallel": placement.tensor_parallel,
        "data_parallel": placement.data_parallel,
        "devices_used": placement.devices_used,
        "shares": {
            key.removesuffix("_s"): round(value / total, 4)
            for key, value in asdict(evaluation.breakdown).items()
            if value / total >= 0.0005  # noqa: PLR2004
        },
    }


def bounds_of(scenario: Scenario, near: DesignPoint) -> tuple[list[DesignPoint], np.ndarray]:
    """Upper bounds on the throughput of every architecture at one HBM and micro-batch."""
    space = phaze_space(hbm_bytes=(near.hbm_bytes,), micro_batches=(near.micro_batch,))
    points = list(space.points())
    bounds = bound_points(Objective(scenario), points)
    return points, np.array([bound.throughput_samples_per_s for bound in bounds])


def compare_rankings(scenarios: dict[str, Scenario], optima: dict[str, DesignPoint]) -> dict[str, Any]:
    """How the order of all architectures changes from the ideal estimator to the other."""
    other = next(name for name in scenarios if name != IDEAL)
    points, ideal = bounds_of(scenarios[IDEAL], optima[other])
    _, calibrated = bounds_of(scenarios[other], optima[other])
    is_feasible = (ideal > 0) & (calibrated > 0)
    top_ideal, top_other = (set(np.argsort(-rates, kind="stable")[:NUM_TOP].tolist()) for rates in (ideal, calibrated))
    old = replace(optima[IDEAL], hbm_bytes=optima[other].hbm_bytes, micro_batch=optima[other].micro_batch)
    row = points.index(old)
    return {
        "num_architectures": len(points),
        "spearman": round(float(spearmanr(ideal[is_feasible], calibrated[is_feasible]).statistic), 4),
        f"common_of_best_{NUM_TOP}": len(top_ideal & top_other),
        "rank_of_ideal_optimum": int((calibrated > calibrated[row]).sum()) + 1,
        "median_slowdown": round(float(np.median(ideal[is_feasible] / calibrated[is_feasible])), 4),
    }


def compare(model: str, network: str) -> dict[str, Any]:
    """Optima of one model on one network, each under both estimators."""
    scenarios = {name: build_scenario(model, network, name) for name in (IDEAL, "calibrated")}
    proofs = {name: prove(scenario) for name, scenario in scenarios.items()}
    optima: dict[str, DesignPoint] = {name: proof["point"] for name, proof in proofs.items()}
    found: dict[str, Any] = {}
    for name, scenario in scenarios.items():
        objective = Objective(scenario)
        references = evaluate_references(scenario, MICRO_BATCHES, constants=load_constants())
        own = proofs[name]
        found[name] = {
            **{key: value for key, value in own.items() if key != "point"},
            "point": asdict(optima[name]),
            "placement": describe(objective.evaluate(optima[name])),
            "over_references": {
                key: round(own["samples_per_s"] / references[key].throughput_samples_per_s, 4) for key in REFERENCES
            },
            "regret_of_other_optima": {
                other: round(1.0 - objective.evaluate(point).throughput_samples_per_s / own["samples_per_s"], 5)
                for other, point in optima.items()
                if other != name
            },
        }
    found["rankings"] = compare_rankings(scenarios, optima)
    return found


def other_terms() -> dict[str, DesignTerms]:
    """Terms of other measured machines in place of one of the calibrated ones, or of all."""
    fitted, terms = load_fitted(), CalibratedEstimator().terms
    a100, mi210 = "operators/a100-80g/host", "operators/mi210/host"
    clock_hz = load_constants().value("design.clock_hz")
    return {
        "launches of an A100's host (29 us)": replace(terms, launch_cycles=fitted.value(a100, "launch_s") * clock_hz),
        "arrays of MI210": replace(terms, array_efficiency=fitted.value(mi210, "matmul_efficiency")),
        "memory of MI210": replace(terms, memory_efficiency=fitted.value(mi210, "vector_memory_efficiency")),
        "lanes at half their rate (assumed)": replace(terms, lane_efficiency=0.5),
    }


def compare_terms(model: str, network: str) -> dict[str, Any]:
    """The optimum under each set of other terms, and what the ideal optimum loses there."""
    scenario = build_scenario(model, network, "calibrated")
    ideal: DesignPoint = prove(build_scenario(model, network, IDEAL))["point"]
    found: dict[str, Any] = {}
    original = guarded_module.load_plugin
    for name, terms in other_terms().items():
        guarded_module.load_plugin = lambda group, plugin, terms=terms: CalibratedEstimator(terms=terms)
        try:
            own = prove(scenario)
            objective = Objective(scenario)
            references = evaluate_references(scenario, MICRO_BATCHES, constants=load_constants())
            value = objective.evaluate(ideal).throughput_samples_per_s
        finally:
            guarded_module.load_plugin = original
        found[name] = {
            "terms": asdict(terms),
            **{key: entry for key, entry in own.items() if key != "point"},
            "point": asdict(own["point"]),
            "over_references": {
                key: round(own["samples_per_s"] / references[key].throughput_samples_per_s, 4) for key in REFERENCES
            },
            "regret_of_ideal_optimum": round(1.0 - value / own["samples_per_s"], 5),
        }
    return found


def best(found: dict[str, Any]) -> str:
    """The best of a proof in words, with the gap of one that ended before."""
    return shape(found["point"]) + ("" if found["is_proved"] else f" (gap {found['gap']:.2%})")


def shape(point: dict[str, int]) -> str:
    """A design in words."""
    arrays = f"{point['num_tc']} of {point['tc_width']}x{point['tc_depth']}"
    return f"{arrays}, {point['num_vc']} vector, {point['glb_bytes'] // MEBI} MB, mb {point['micro_batch']}"


def _hbm_sizes(record: dict[str, Any]) -> list[str]:
    """HBM of all optima, GB."""
    found = [one[name]["point"] for one in record["results"].values() for name in (IDEAL, "calibrated")]
    found += [one["point"] for variants in record["other_terms"].values() for one in variants.values()]
    return sorted({f"{point['hbm_bytes'] // GIBI}" for point in found})


def to_markdown(record: dict[str, Any]) -> str:
    """The record as two tables."""
    lines = [
        "# Designs found with ideal and with calibrated operators",
        "",
        f"Written by `{record['_meta']['command']}` ({DEVICES:,} devices, global batch {GLOBAL_BATCH:,}, proved "
        f"within {TOLERANCE:.1%} over 352,320 points unless a gap is given; optima have "
        f"{' or '.join(_hbm_sizes(record))} GB of HBM).",
        "",
        "| model, network | best, ideal | best, calibrated | samples/s | stages, t, d | over phaze-tpu-v4 | "
        "over published | regret | Spearman | of best 100 |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in record["results"].items():
        ideal, other, ranks = found[IDEAL], found["calibrated"], found["rankings"]
        same = ideal["point"] == other["point"]
        over = [" to ".join(f"{result['over_references'][key]:.2f}" for result in (ideal, other)) for key in REFERENCES]
        placed = " to ".join(
            f"{one['placement']['stages']}, {one['placement']['tensor_parallel']}, {one['placement']['data_parallel']}"
            for one in ((ideal,) if ideal["placement"]["stages"] == other["placement"]["stages"] else (ideal, other))
        )
        lines.append(
            f"| {name} | {best(ideal)} | {'the same' if same else best(other)} | "
            f"{ideal['samples_per_s']:,.0f} to {other['samples_per_s']:,.0f} | {placed} | {over[0]} | {over[1]} | "
            f"{other['regret_of_other_optima'][IDEAL]:.2%} | {ranks['spearman']:.4f} | "
            f"{ranks[f'common_of_best_{NUM_TOP}']} |"
        )
    lines += ["", "Other terms in place of the calibrated ones:", ""]
    lines += ["| model, network | terms | best | over phaze-tpu-v4 | over published | regret of ideal optimum |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, variants in record["other_terms"].items():
        for terms, found in variants.items():
            over = " | ".join(f"{found['over_references'][key]:.2f}" for key in REFERENCES)
            regret = f"{found['regret_of_ideal_optimum']:.2%}"
            lines.append(f"| {name} | {terms} | {best(found)} | {over} | {regret} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compare every model on every network, writing after each; what is not asked for stays as recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bert-large", "gpt3-175b", "gpt2-xl", "llama-2-7b"])
    parser.add_argument("--networks", nargs="+", default=["two-level", "phaze", "dgx-h100"])
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args()
    record: dict[str, Any] = {
        "_meta": {
            "command": "python experiments/validation/designs.py",
            "versions": {name: version(name) for name in ("phaze-opt", "numpy", "numba")},
            "devices": DEVICES,
            "global_batch": GLOBAL_BATCH,
            "tolerance": TOLERANCE,
            "calibrated_terms": asdict(CalibratedEstimator().terms),
        },
        "results": {},
        "other_terms": {},
        **kept(arguments.out),
    }
    for model in arguments.models:
        for network in arguments.networks:
            record["results"][f"{model}, {network}"] = compare(model, network)
            write(record, arguments.out)
    for model in [model for model in arguments.models if model in OTHER_TERMS_MODELS]:
        record["other_terms"][f"{model}, {arguments.networks[0]}"] = compare_terms(model, arguments.networks[0])
        write(record, arguments.out)


def kept(out: Path) -> dict[str, Any]:
    """What is recorded of all models and networks so far."""
    record = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    return {key: record[key] for key in ("results", "other_terms") if key in record}


def write(record: dict[str, Any], out: Path) -> None:
    """The record so far and its tables."""
    out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    out.with_suffix(".md").write_text(to_markdown(record), encoding="utf-8")
    print(*(list(record["results"])[-1:] + list(record["other_terms"])[-1:]), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
