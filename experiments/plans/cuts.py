"""What cutting stages exactly takes and gains: time and labels of the program, and uneven stages against even ones.

On H100 under Megatron-Core, as fitted. Times of the program are medians of repeats on one core, after it is compiled.

Run: python experiments/plans/cuts.py [--write]
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from records import finish, parser_of

from phaze_opt.cost.clocks import MachineClock
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.stacks import load_stack
from phaze_opt.cost.stage_costs import build_cut_table, list_stage_choices
from phaze_opt.hardware.device import ComputePath
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import load_fitted
from phaze_opt.hardware.networks import load_network
from phaze_opt.plan.cuts import best_choice, least_bound_s
from phaze_opt.plan.optimum import free_degrees, optimal_plan
from phaze_opt.plan.plan_degrees import PlanDegrees
from phaze_opt.plan.plan_search import Machine, clock_sets, rank_plans
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.plan.stage_room import fitting_stages, least_memory_bytes, stage_sizes
from phaze_opt.report.plans import describe_plan
from phaze_opt.workload.config import load_model
from phaze_opt.workload.plan import PlanChoices, Recompute, split_blocks
from phaze_opt.workload.training import TrainingSpec

REPEATS = 15
TIGHT = 1.05
"""Memory of the tight case, in multiples of the least that any cut and recomputation need."""
RECOMPUTES = tuple(Recompute)
JOBS = {
    "bert-large": (64, TrainingSpec(1, 512, 1024)),
    "llama-2-7b": (64, TrainingSpec(1, 2048, 512)),
    "gpt3-175b": (512, TrainingSpec(1, 2048, 1024)),
}
"""Devices and batches."""
PROGRAMS = {
    "gpt3-175b": ((4, 8), (4, 16), (4, 32), (4, 64)),
    "llama-2-7b": ((2, 4), (2, 8), (2, 16), (1, 32)),
    "bert-large": ((1, 4), (1, 8)),
}
"""Tensor and pipeline degrees whose program is timed."""


def machine_of(num_devices: int) -> Machine:
    """H100 under Megatron-Core."""
    fitted, device = load_fitted(), load_device("h100")
    return Machine(
        MachineClock(device, ComputePath.BF16, fitted),
        device.hbm_bytes,
        load_network("dgx-h100", num_devices=num_devices, fitted=fitted),
        load_stack("megatron-core", fitted),
    )


def milliseconds(work: Callable[[], Any]) -> float:
    """Median over repeats."""
    taken = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        taken.append(1e3 * (time.perf_counter() - started))
    return round(statistics.median(taken), 3)


def one_program(degrees: PlanDegrees, times: LayerTimes, memory_bytes: float) -> dict[str, float]:
    """Times, labels and bounds of the one set of degrees."""
    step = degrees.step(0)
    sizes = stage_sizes(step)
    choices = list_stage_choices(step, degrees.network_of(0))
    own = LayerTimes(times.classes_s[0], times.attention_s[0])
    table = build_cut_table(choices, own, blocks=sizes)
    allowed = fitting_stages(step, sizes, memory_bytes, RECOMPUTES)
    best = best_choice([table], allowed)
    limit_s = best.seconds * (1 + 1e-9)
    least = least_memory_bytes(step, sizes, RECOMPUTES)
    tight = fitting_stages(step, sizes, TIGHT * least, RECOMPUTES)
    short = best_choice([table], tight)
    closed = degrees.bounds_s(degrees.prices.layer_s(times.classes_s[None], times.attention_s[None]))[0, 0]
    return {
        "table_ms": milliseconds(lambda: build_cut_table(choices, own, blocks=sizes)),
        "memory_ms": milliseconds(lambda: fitting_stages(step, sizes, memory_bytes, RECOMPUTES)),
        "program_ms": milliseconds(lambda: best_choice([table], allowed)),
        "program_with_incumbent_ms": milliseconds(lambda: best_choice([table], allowed, limit_s=limit_s)),
        "program_that_finds_none_ms": milliseconds(lambda: best_choice([table], allowed, limit_s=0.99 * best.seconds)),
        "most_labels": best.most_labels,
        "lower_over_price": round(least_bound_s(table, allowed) / best.seconds, 6),
        "closed_bound_over_price": round(float(closed) / best.seconds, 6),
        "tight_program_ms": milliseconds(lambda: best_choice([table], tight)),
        "tight_most_labels": short.most_labels,
        "tight_over_loose": round(short.seconds / best.seconds, 4),
        "tight_is_mixed": len(set(short.recomputes)) > 1,
    }


def programs() -> dict[str, dict[str, dict[str, float]]]:
    """By model and degrees."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, places in PROGRAMS.items():
        num_devices, training = JOBS[name]
        machine = machine_of(num_devices)
        for tensor, pipeline in places:
            choices = PlanChoices((tensor,), (pipeline,), micro_batch=(1,), zero=(1,))
            degrees = free_degrees(
                load_model(name), training, num_devices=num_devices, choices=choices, machine=machine
            )
            times, row = clock_sets(degrees.prices, machine.clock), found.setdefault(name, {})
            row[f"tensor {tensor}, pipeline {pipeline}"] = one_program(degrees, times, machine.memory_bytes)
    return found


def gain(degrees: PlanDegrees, number: int, times: LayerTimes, memory_bytes: float) -> float | None:
    """Step of the best even stages, all recomputing alike, over that of the best stages; None if only those fit."""
    step = degrees.step(number)
    best = degrees.best_stages(number, times, memory_bytes)
    even = split_blocks(step.model.num_layers, step.plan.pipeline)
    plans = [step.plan.with_stages(even, (each,) * step.plan.pipeline) for each in RECOMPUTES]
    alike = [degrees.ranked(number, plan, times) for plan in plans]
    fitting = [each.time.seconds for each in alike if each.memory.fits(memory_bytes)]
    if best is None:
        return np.nan
    return min(fitting) / best.time.seconds - 1.0 if fitting else None


def gains(name: str) -> dict[str, dict[str, float]]:
    """Of all plans of a model without interleaving, by pipeline degree."""
    num_devices, training = JOBS[name]
    machine = machine_of(num_devices)
    choices = PlanChoices(micro_batch=(1, 2, 4), zero=(0, 1))
    degrees = free_degrees(load_model(name), training, num_devices=num_devices, choices=choices, machine=machine)
    times = clock_sets(degrees.prices, machine.clock)
    by_stages: dict[int, list[float | None]] = {}
    for number, layers in enumerate(degrees.layers_of):
        pipeline = degrees.step(number).plan.pipeline
        if 1 < pipeline <= degrees.step(number).model.num_layers:
            own = LayerTimes(times.classes_s[layers], times.attention_s[layers])
            by_stages.setdefault(pipeline, []).append(gain(degrees, number, own, machine.memory_bytes))
    found = {}
    for stages, values in sorted(by_stages.items()):
        both = [each for each in values if each is not None and not np.isnan(each)]
        found[str(stages)] = {
            "plans": len(values),
            "fit_even": len(both),
            "fit_uneven_alone": sum(each is None for each in values),
            "gain_median": round(float(np.median(both)), 5) if both else 0.0,
            "gain_largest": round(max(both, default=0.0), 5),
        }
    return found


def optimum(name: str) -> dict[str, Any]:
    """The best plan of all, beside the best of those that are even and recompute alike."""
    num_devices, training = JOBS[name]
    machine, model = machine_of(num_devices), load_model(name)
    choices = PlanChoices(interleave=(1, 2, 3, 4, 6), zero=(0, 1, 2, 3))
    started = time.perf_counter()
    plans = tuple(list_plans(model, training, num_devices=num_devices, choices=choices))
    ranking = rank_plans(model, training, plans, machine=machine)
    ranked = time.perf_counter()
    best = optimal_plan(model, training, num_devices=num_devices, choices=choices, machine=machine)
    return {
        "even_s": ranking.ranked[0].time.seconds,
        "even": describe_plan(ranking.ranked[0].plan),
        "best_s": best.best.time.seconds,
        "best": describe_plan(best.best.plan),
        "even_plans": len(plans),
        "sets_of_degrees": best.num_degrees,
        "sets_searched": best.num_searched,
        "ranking_wall_s": round(ranked - started, 2),
        "optimal_plan_wall_s": round(time.perf_counter() - ranked, 2),
    }


def main() -> None:
    """Measure, print, and maybe write."""
    given = parser_of(__doc__).parse_args()
    figures = {
        "programs": programs(),
        "gain_of_uneven_stages": {name: gains(name) for name in JOBS},
        "best_plans": {name: optimum(name) for name in JOBS},
    }
    finish(__file__, figures, write=given.write)


if __name__ == "__main__":
    main()
