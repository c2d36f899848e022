"""Ranking parallel plans on a fixed machine: price every plan that fits its memory, and sort."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from phaze_opt.cost.clocks import LayerClock
from phaze_opt.cost.compiled_step import CompiledStep, StepCompiler
from phaze_opt.cost.plan_memory import PlanMemory, plan_memory
from phaze_opt.cost.price_step import LayerTimes, price_steps
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec

BATCH = 4096
"""Plans priced at once: bounds the memory that their arrays take."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What plans are priced on.

    Attributes:
        clock: times layers on one device.
        memory_bytes: capacity of one device.
        network: of the cluster.
        stack: training software.
    """

    clock: LayerClock
    memory_bytes: float
    network: Network
    stack: TrainingStack


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """A plan that fits, its step, and the memory of every stage."""

    plan: ParallelPlan
    time: StepTime
    memory: PlanMemory


@dataclass(frozen=True, slots=True)
class PlanRanking:
    """All plans that fit, fastest first.

    Attributes:
        ranked: the plans.
        num_misfits: plans that do not fit the memory.
        least_bytes: what the smallest of those needs, 0 if there is none.
        num_dominated: plans left out because they recompute more than another in vain (`without_vain_recompute`).
    """

    ranked: tuple[RankedPlan, ...]
    num_misfits: int
    least_bytes: float
    num_dominated: int = 0


def rank_plans(
    model: ModelSpec, training: TrainingSpec, plans: Iterable[ParallelPlan], *, machine: Machine
) -> PlanRanking:
    """Every plan that fits the memory, fastest step first; ties in the order given.

    Plans that differ in pipeline, data, interleave, ZeRO or recomputation alone share the times of their layers, unless
    the software spares full recomputation some operators: what it runs again is part of those times.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: such as `plan_space.enumerate_plans` gives.
        machine: devices and their network.

    Raises:
        InputError: no plan is given.
    """
    compiler = StepCompiler()
    known: dict[tuple[int, bool], LayerTimes] = {}
    fitting: list[tuple[CompiledStep, LayerTimes, PlanMemory]] = []
    misfits: list[float] = []
    for plan in plans:
        step = compiler.compile(model, training, plan, stack=machine.stack)
        if step.timing_key not in known:
            known[step.timing_key] = machine.clock.times(step)
        memory = step_memory(step)
        if memory.fits(machine.memory_bytes):
            fitting.append((step, known[step.timing_key], memory))
        else:
            misfits.append(memory.peak_bytes)
    if not known:
        message = f"the degrees given leave no parallel plan of {model.name}; leave more of them free"
        raise InputError(message)
    priced = _price([(step, times) for step, times, _ in fitting], machine)
    ranked = [RankedPlan(step.plan, time, memory) for (step, _, memory), time in zip(fitting, priced, strict=True)]
    ranked.sort(key=lambda each: float(comparable(each.time.seconds)))
    return PlanRanking(tuple(ranked), len(misfits), min(misfits, default=0.0))


def without_vain_recompute(ranking: PlanRanking) -> PlanRanking:
    """The ranking without plans that another recomputation beats: as fast or faster, in no more memory.

    Fused attention keeps no scores, so that selective recomputation under it takes time and saves nothing. Of plans
    that are equal in both, the first stays.
    """
    least: dict[ParallelPlan, float] = {}
    kept = []
    for each in ranking.ranked:
        twin = replace(each.plan, recompute=Recompute.NONE, stage_recompute=())
        if each.memory.peak_bytes < least.get(twin, math.inf):
            least[twin] = each.memory.peak_bytes
            kept.append(each)
    return replace(ranking, ranked=tuple(kept), num_dominated=len(ranking.ranked) - len(kept))


def step_memory(step: CompiledStep) -> PlanMemory:
    """Memory of every stage of a compiled step."""
    return plan_memory(
        [layer.graph for layer in step.layers],
        step.plan,
        blocks=step.blocks,
        num_micro_batches=step.num_micro_batches,
        optimizer=step.training.optimizer,
        stack=step.stack,
    )


def _price(steps: Sequence[tuple[CompiledStep, LayerTimes]], machine: Machine) -> list[StepTime]:
    """Times of the steps, `BATCH` at a time."""
    times: list[StepTime] = []
    for start in range(0, len(steps), BATCH):
        part = steps[start : start + BATCH]
        networks = [plan_network(machine.network, step.plan) for step, _ in part]
        priced = price_steps([step for step, _ in part], [each for _, each in part], networks)
        times += [priced.one(index) for index in range(len(part))]
    return times
