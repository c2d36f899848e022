"""The best plan of a machine over degrees, cuts of stages and recomputation per stage, exactly.

Sets of degrees are bounded in closed form, best first. Those that can still win get a table of what their stages may
be, and the program over cuts. Every plan left out has a bound above the best step.
"""

from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.errors import InputError
from phaze_opt.plan.plan_degrees import PlanDegrees, list_degrees
from phaze_opt.plan.plan_search import Machine, RankedPlan, clock_sets
from phaze_opt.plan.plan_space import list_plans
from phaze_opt.plan.priced_plans import price_plans
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

SLACK = 1.0 + 1e-9
"""Steps this close to the best are priced as well, so that order decides between equal ones."""


@dataclass(frozen=True, slots=True)
class PlanOptimum:
    """The best plan, and how much work it was.

    Attributes:
        best: the plan, its step and its memory; None if no plan fits.
        num_degrees: sets of degrees: micro-batch, ZeRO stage and interleave among them, cuts and recomputation not.
        num_searched: those of them whose cuts were searched, as their closed bound was below the best step then.
        least_bytes: what the smallest of all plans needs where none fits, else 0.
        bound_s: what no plan is faster than, whatever the schedules of its layers, s; 0 where none fits.
    """

    best: RankedPlan | None
    num_degrees: int
    num_searched: int
    least_bytes: float = 0.0
    bound_s: float = 0.0


def optimal_plan(
    model: Workload, training: TrainingSpec, *, num_devices: int, choices: PlanChoices, machine: Machine
) -> PlanOptimum:
    """The fastest plan that fits, over all degrees that the choices leave, all cuts and all recomputations per stage.

    Steps that are equal to ten digits are decided by the order of `list_plans`; of one set of degrees, even stages that
    all recompute alike come first.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        num_devices: of the cluster.
        choices: what each degree may be; every stage recomputes in one of the ways given.
        machine: devices and their network.

    Raises:
        InputError: the degrees leave no plan.
    """
    degrees = free_degrees(model, training, num_devices=num_devices, choices=choices, machine=machine)
    prices = degrees.prices
    times = clock_sets(prices, machine.clock)
    layer_s, memory_bytes = prices.layer_s(times.classes_s[None], times.attention_s[None]), machine.memory_bytes
    bounds = degrees.bounds_s(layer_s, memory_bytes=memory_bytes)[0]
    best: tuple[float, int, RankedPlan] | None = None
    num_searched = 0
    # Stages of units in their order first: what they reach leaves few down-sets to look at.
    ways = (degrees.best_stages, degrees.best_between_sets) if degrees.has_branches else (degrees.best_stages,)
    for way, best_of in enumerate(ways):
        for number in np.argsort(comparable(bounds), kind="stable").tolist():
            limit_s = np.inf if best is None else best[2].time.seconds * SLACK
            if bounds[number] >= limit_s:
                break
            num_searched += way == 0
            own = int(degrees.layers_of[number])
            layers = LayerTimes(times.classes_s[own], times.attention_s[own])
            found = best_of(number, layers, memory_bytes, limit_s=limit_s)
            if found is None:
                continue
            key = float(comparable(found.time.seconds)), number + way * len(degrees)
            if best is None or key < best[:2]:
                best = (*key, found)
    if best is None:
        return PlanOptimum(None, len(degrees), num_searched, degrees.least_bytes)
    bound_s = _bound_s(degrees, times, machine, best[2].time.seconds)
    return PlanOptimum(best[2], len(degrees), num_searched, bound_s=bound_s)


def _bound_s(degrees: PlanDegrees, times: LayerTimes, machine: Machine, seconds: float) -> float:
    """What the gaps of schedules leave open of the best step over all sets of degrees, s."""
    clock = machine.clock
    if not (isinstance(clock, ScheduleClock) and clock.has_gaps):
        return seconds
    lower = clock_sets(degrees.prices, clock, is_bound=True)
    is_open = np.asarray((lower.classes_s < times.classes_s).any(axis=(1, 2, 3)))
    rows = np.flatnonzero(is_open[degrees.layers_of])
    return degrees.least_step_s(lower, rows, machine.memory_bytes, limit_s=seconds)


def free_degrees(
    model: Workload, training: TrainingSpec, *, num_devices: int, choices: PlanChoices, machine: Machine
) -> PlanDegrees:
    """Every set of degrees that the choices leave, in order; interleaved ones once for each way to cut them.

    Raises:
        InputError: there is none.
    """
    plans = list_plans(
        model, training, num_devices=num_devices, choices=replace(choices, has_cuts=True), stack=machine.stack
    )
    if not len(plans):
        message = f"the degrees given leave no parallel plan of {model.name}; leave more of them free"
        raise InputError(message)
    prices = price_plans(model, training, plans, network=machine.network, stack=machine.stack)
    return list_degrees(prices, choices)
