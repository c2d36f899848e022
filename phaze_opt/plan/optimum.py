"""The best plan of a machine over degrees, cuts of stages and recomputation per stage, exactly.

Sets of degrees are bounded in closed form, best first. Those that can still win get a table of what their stages may
be, and the program over cuts. Every plan left out has a bound above the best step.
"""

from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.clocks import ScheduleClock
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.errors import InputError
from phaze_opt.plan.left_out import leave_out
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
    first = degrees = free_degrees(model, training, num_devices=num_devices, choices=choices, machine=machine)
    times = clock_sets(first.prices, machine.clock)
    while True:
        best, num_searched = _best_of(degrees, times, machine.memory_bytes)
        wider = first.wider(times.classes_s, np.inf if best is None else best.time.seconds * SLACK)
        if wider in (first, degrees):
            break
        degrees = wider
    if best is None:
        return PlanOptimum(None, len(degrees), num_searched, degrees.least_bytes)
    return PlanOptimum(best, len(degrees), num_searched, bound_s=_bound_s(degrees, times, machine, best.time.seconds))


def _best_of(degrees: PlanDegrees, times: LayerTimes, memory_bytes: float) -> tuple[RankedPlan | None, int]:
    """The best plan of some sets of degrees, if any fits, and how many were searched."""
    layer_s = degrees.prices.layer_s(times.classes_s[None], times.attention_s[None])
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
    return None if best is None else best[2], num_searched


def _bound_s(degrees: PlanDegrees, times: LayerTimes, machine: Machine, seconds: float) -> float:
    """What the gaps of schedules leave open of the best step over all sets of degrees, s."""
    clock = machine.clock
    if not (isinstance(clock, ScheduleClock) and clock.has_gaps):
        return seconds
    lower = clock_sets(degrees.prices, clock, is_bound=True)
    seconds = min(seconds, float(degrees.left_out_s(lower.classes_s[None])[0]))
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
    stack, network, choices = machine.stack, machine.network, replace(choices, has_cuts=True)
    plans = list_plans(model, training, num_devices=num_devices, choices=choices, stack=stack)
    if not len(plans):
        message = f"the degrees given leave no parallel plan of {model.name}; leave more of them free"
        raise InputError(message)
    prices = price_plans(model, training, plans, network=network, stack=stack)
    others = leave_out(model, training, num_devices=num_devices, choices=choices, network=network, stack=stack)
    return list_degrees(prices, choices, others)
