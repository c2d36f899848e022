"""Time and gaps of scheduling one layer (forward + backward + update) on random designs of the space.

    python experiments/schedule/bench.py [--designs 200] [--accept-gap 0.01] [--output experiments/schedule/bench.json]

Writes, for each model, attention form and exclusivity rule: median, 90th percentile and worst wall time, share of
layers proven optimal, worst gap, MIPs solved. Timed warm, one process, one layer at a time (the transformer block).
"""

import argparse
import json
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import highspy
import numba
import numpy as np
import pyomo

from phaze_opt.estimate.analytic import AnalyticEstimator
from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import OperatorGraph
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.solve import ScheduleOptions, solve_compiled
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure
from phaze_opt.schedule.verify import verify_schedule
from phaze_opt.units import GIBI, MEBI
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm, TrainingSpec

AREA_BUDGET_MM2 = 278.82667631216
CASES = (("bert-large", 1), ("gpt3-175b", 8), ("llama-2-7b", 2), ("mixtral-8x7b", 8))


@dataclass(frozen=True, slots=True)
class Instance:
    """One problem of a layer on one design."""

    structure: ScheduleStructure
    problem: ScheduleProblem


def random_designs(count: int, *, seed: int) -> list[Accelerator]:
    """Designs of the Phaze space, uniform over its kept points."""
    generator = np.random.default_rng(seed)
    constants = load_constants()
    designs: list[Accelerator] = []
    while len(designs) < count:
        tc, vc = (2 ** int(exponent) for exponent in generator.integers(0, 13, size=2))
        width, depth = (2 ** int(exponent) for exponent in generator.integers(1, 9, size=2))
        design = build_accelerator(
            DesignPoint(
                num_tc=tc,
                num_vc=vc,
                tc_width=width,
                tc_depth=depth,
                vc_width=width,
                glb_bytes=2 ** int(generator.integers(1, 8)) * MEBI,
                hbm_bytes=int(generator.choice([32, 64, 80])) * GIBI,
                micro_batch=1,
            ),
            constants=constants,
        )
        area = area_mm2(design)
        if area <= AREA_BUDGET_MM2 and (area >= 0.3 * AREA_BUDGET_MM2 or tc == 1 or vc == 1):
            designs.append(design)
    return designs


def layer_instances(
    phases: tuple[OperatorGraph, ...], design: Accelerator, exclusivity: Exclusivity, estimator: AnalyticEstimator
) -> list[Instance]:
    """The three problems of a layer."""
    operators = [operator for graph in phases for operator in graph.operators]
    estimates = estimator.estimate(operators, AcceleratorTable.from_accelerators([design]))
    instances = []
    first = 0
    for graph in phases:
        columns = slice(first, first + len(graph))
        first += len(graph)
        core_types = tuple(operator.core_type for operator in graph.operators)
        problem = ScheduleProblem(
            core_types=core_types,
            one_core_s=tuple(estimates.one_core_s[0, columns].tolist()),
            spread_s=tuple(estimates.spread_s[0, columns].tolist()),
            edges=graph.edges,
            cores=Cores.of(design),
            exclusivity=exclusivity,
            floor_s=float(estimates.traffic_bytes[0, columns].sum()) / design.hbm_bandwidth_bytes_per_s,
        )
        instances.append(Instance(compile_structure(core_types, graph.edges), problem))
    return instances


def timed_layer(instances: list[Instance], options: ScheduleOptions) -> tuple[float, list[ScheduleResult]]:
    """Wall time of the layer's problems, s, and their verified results."""
    arrays = [(np.array(i.problem.one_core_s), np.array(i.problem.spread_s)) for i in instances]
    began = time.perf_counter()
    results = [solve(instance, latencies, options) for instance, latencies in zip(instances, arrays, strict=True)]
    elapsed = time.perf_counter() - began
    for instance, result in zip(instances, results, strict=True):
        verify_schedule(instance.problem, result)
    return elapsed, results


def solve(instance: Instance, latencies: tuple[Floats, Floats], options: ScheduleOptions) -> ScheduleResult:
    """One problem, as the objective solves it."""
    problem = instance.problem
    return solve_compiled(
        instance.structure,
        *latencies,
        cores=problem.cores,
        exclusivity=problem.exclusivity,
        floor_s=problem.floor_s,
        options=options,
    )


def bench_case(
    model: str,
    degree: int,
    attention: AttentionForm,
    exclusivity: Exclusivity,
    *,
    designs: list[Accelerator],
    options: ScheduleOptions,
) -> dict[str, Any]:
    """One row of the table."""
    spec = load_model(model)
    length = min(2048, spec.max_sequence_length)
    training = TrainingSpec(micro_batch=2, sequence_length=length, global_batch=1024, attention=attention)
    graph = build_model_graph(spec, training, tensor_parallel=degree)
    layer = max(graph.layers, key=lambda entry: graph.chain.count(graph.layers.index(entry)))
    estimator = AnalyticEstimator()
    problems = [layer_instances(layer.phases, design, exclusivity, estimator) for design in designs]
    timed_layer(problems[0], options)
    runs = [timed_layer(instances, options) for instances in problems]
    times_ms = np.array([elapsed for elapsed, _ in runs]) * 1e3
    results = [result for _, layer_results in runs for result in layer_results]
    return {
        "model": model,
        "tensor_parallel": degree,
        "attention": attention.value,
        "exclusivity": exclusivity.value,
        "operators": [len(phase) for phase in layer.phases],
        "median_ms": round(float(np.median(times_ms)), 3),
        "p90_ms": round(float(np.percentile(times_ms, 90)), 3),
        "worst_ms": round(float(times_ms.max()), 1),
        "layers_proven": round(
            float(np.mean([all(r.status is ScheduleStatus.OPTIMAL for r in results) for _, results in runs])), 4
        ),
        "worst_gap": max(result.gap for result in results),
        "time_limits": sum(result.status is ScheduleStatus.TIME_LIMIT for result in results),
        "layers_with_mip": sum(any(r.num_ilp_solves for r in layer_results) for _, layer_results in runs),
    }


def main() -> None:
    """Run all cases and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", type=int, default=200)
    parser.add_argument("--accept-gap", type=float, default=0.01)
    parser.add_argument("--time-limit", type=float, default=5.0)
    parser.add_argument("--model", default="")
    parser.add_argument("--output", type=Path, default=None)
    arguments = parser.parse_args()
    options = ScheduleOptions(accept_gap=arguments.accept_gap, time_limit_s=arguments.time_limit)
    designs = random_designs(arguments.designs, seed=7)
    rows = []
    for exclusivity in Exclusivity:
        for model, degree in CASES:
            for attention in AttentionForm:
                if arguments.model in model:
                    rows.append(bench_case(model, degree, attention, exclusivity, designs=designs, options=options))
                    print(rows[-1])
    if arguments.output is not None:
        record = {"_meta": provenance(arguments), "rows": rows}
        arguments.output.write_text(json.dumps(record, indent=1) + "\n")


def provenance(arguments: argparse.Namespace) -> dict[str, Any]:
    """Machine, versions and settings."""
    return {
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "pyomo": pyomo.__version__,
        "highspy": str(highspy.Highs().version()),
        "designs": arguments.designs,
        "accept_gap": arguments.accept_gap,
        "time_limit_s": arguments.time_limit,
        "seed": 7,
    }


if __name__ == "__main__":
    main()
