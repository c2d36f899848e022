"""The best plan over degrees, cuts of stages and recomputation per stage, exactly.

Degrees are bounded in closed form, best first. Those that can still win get a table of what their stages may be, and
the program over cuts. Every plan left out has a bound above the best step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler, blocks_of
from phaze_opt.cost.cut_table import build_cut_table
from phaze_opt.cost.price_step import LayerTimes, price_step
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network
from phaze_opt.plan.cuts import allowed_stages, best_choice, least_memory_bytes, stage_sizes
from phaze_opt.plan.degree_bounds import degree_bounds
from phaze_opt.plan.plan_search import Machine, RankedPlan, step_memory
from phaze_opt.plan.plan_space import enumerate_plans
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, PlanChoices, Recompute, split_blocks
from phaze_opt.workload.training import TrainingSpec

SLACK = 1.0 + 1e-9
"""Steps this close to the best are priced as well, so that order decides between equal ones."""


@dataclass(frozen=True, slots=True)
class PlanOptimum:
    """The best plan, and how much work it was.

    Attributes:
        best: the plan, its step and its memory; None if no plan fits.
        num_degrees: sets of degrees: micro-batch, ZeRO stage and interleave among them, cuts and recomputation not.
        num_searched: those of them whose memory and cuts were looked at, as their closed bound was below the best step
            then.
        least_bytes: what the smallest of all plans needs where none fits, else 0.
    """

    best: RankedPlan | None
    num_degrees: int
    num_searched: int
    least_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class TimedDegrees:
    """One set of degrees, its layers timed for any recomputation of its stages."""

    step: CompiledStep
    times: LayerTimes
    network: Network

    def ranked(self, plan: ParallelPlan) -> RankedPlan:
        """A plan of these degrees at its own price."""
        step = replace(self.step, plan=plan, blocks=blocks_of(self.step.model, plan))
        return RankedPlan(plan, price_step(step, self.times, self.network), step_memory(step))


def optimal_plan(
    model: ModelSpec, training: TrainingSpec, *, num_devices: int, choices: PlanChoices, machine: Machine
) -> PlanOptimum:
    """The fastest plan that fits, over all degrees that the choices leave, all cuts and all recomputations per stage.

    Steps that are equal to ten digits are decided by the order of `enumerate_plans`; of one set of degrees, even stages
    that all recompute alike come first.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        num_devices: of the cluster.
        choices: what each degree may be; every stage recomputes in one of the ways given.
        machine: devices and their network.

    Raises:
        InputError: the degrees leave no plan.
    """
    degrees = time_degrees(model, training, num_devices=num_devices, choices=choices, machine=machine)
    steps, times, networks = zip(*((each.step, each.times, each.network) for each in degrees), strict=True)
    bounds = degree_bounds(steps, times, networks, choices.recompute)
    best: tuple[float, int, RankedPlan] | None = None
    num_searched = 0
    for index in np.argsort(comparable(bounds), kind="stable"):
        limit_s = np.inf if best is None else best[2].time.seconds * SLACK
        if bounds[index] >= limit_s:
            break
        num_searched += 1
        found = best_stages(degrees[index], machine.memory_bytes, choices.recompute, limit_s=limit_s)
        if found is None:
            continue
        key = float(comparable(found.time.seconds)), int(index)
        if best is None or key < best[:2]:
            best = (*key, found)
    if best is not None:
        return PlanOptimum(best[2], len(degrees), num_searched)
    least = min(least_memory_bytes(each.step, stage_sizes(each.step), choices.recompute) for each in degrees)
    return PlanOptimum(None, len(degrees), num_searched, least)


def time_degrees(
    model: ModelSpec, training: TrainingSpec, *, num_devices: int, choices: PlanChoices, machine: Machine
) -> list[TimedDegrees]:
    """Every set of degrees that the choices leave, in order; interleaved ones once for each way to cut them.

    Raises:
        InputError: there is none.
    """
    # Where any stage may recompute fully, what software keeps from being run again is part of the times.
    way = Recompute.FULL if Recompute.FULL in choices.recompute else choices.recompute[0]
    one_way = replace(choices, recompute=(way,), has_cuts=True)
    compiler = StepCompiler()
    known: dict[tuple[int, bool], LayerTimes] = {}
    found = []
    for plan in enumerate_plans(model, training, num_devices=num_devices, choices=one_way):
        step = compiler.compile(model, training, plan, stack=machine.stack)
        if step.timing_key not in known:
            known[step.timing_key] = machine.clock.times(step)
        found.append(TimedDegrees(step, known[step.timing_key], plan_network(machine.network, plan)))
    if not found:
        message = f"the degrees given leave no parallel plan of {model.name}; leave more of them free"
        raise InputError(message)
    return found


def best_stages(
    degrees: TimedDegrees, memory_bytes: float, recomputes: Sequence[Recompute], *, limit_s: float = np.inf
) -> RankedPlan | None:
    """The best plan of one set of degrees; None if none that fits is below the limit.

    Args:
        degrees: the degrees.
        memory_bytes: capacity of one device.
        recomputes: what each stage may recompute.
        limit_s: only faster steps are looked for.
    """
    sizes = stage_sizes(degrees.step)
    allowed = allowed_stages(degrees.step, sizes, memory_bytes, recomputes)
    if allowed is None:
        return None
    table = build_cut_table(degrees.step, degrees.times, degrees.network, blocks=sizes)
    chosen = best_choice(table, allowed, limit_s=limit_s)
    if chosen is None:
        return None
    plan = degrees.step.plan
    best = degrees.ranked(plan.with_stages(chosen.blocks, chosen.recomputes))
    num_blocks = degrees.step.model.num_layers
    is_given = plan.interleave > 1 or plan.pipeline > num_blocks
    cuts = degrees.step.blocks if is_given else split_blocks(num_blocks, plan.pipeline)
    for recompute in recomputes:
        even = degrees.ranked(plan.with_stages(cuts, (recompute,) * plan.pipeline))
        if even.memory.fits(memory_bytes) and comparable(even.time.seconds) <= comparable(best.time.seconds):
            return even
    return best
