"""Ranking parallel plans on a fixed machine: price every plan that fits its memory, and sort.

Ranked plans stay columns, made into objects only where they are looked at.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np

from phaze_opt.cost.clocks import LayerClock, ScheduleClock
from phaze_opt.cost.compiled_step import NUM_PASSES, CompiledStep
from phaze_opt.cost.device_seconds import NUM_CLASSES
from phaze_opt.cost.graph_sizes import stage_tensors
from phaze_opt.cost.plan_memory import PlanMemory, plan_memories, plan_memory
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.step_time import StepTime
from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Network
from phaze_opt.plan.left_out import UnlistedPlans
from phaze_opt.plan.priced_plans import PricedPlans, price_plans
from phaze_opt.record.arrays import Floats, Indices, Ints
from phaze_opt.record.near_ties import comparable
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import Optimizer, TrainingSpec
from phaze_opt.workload.workload import Workload

AT_ONCE, AT_FIRST = 4096, 16
"""Plans made into objects at once: the most bounds the memory of their arrays; who looks at few is told few."""


@dataclass(frozen=True, slots=True)
class RankedPlan:
    """A plan that fits, its step, and the memory of every stage."""

    plan: ParallelPlan
    time: StepTime
    memory: PlanMemory


@dataclass(frozen=True, slots=True)
class PlanDetails:
    """What plans are told in full from.

    Attributes:
        priced: all of them, also those that do not fit.
        times: of their sets of layers, shape (sets, ...).
        optimizer: bytes of a parameter's state.
    """

    priced: PricedPlans
    times: LayerTimes
    optimizer: Optimizer

    def tell(self, numbers: Indices) -> list[RankedPlan]:
        """Some plans as objects, with every part of their times and memory.

        Plans of one pipeline degree are told together: sums over stages are then the same, to the last bit, whatever
        other plans are told.
        """
        pipeline = self.priced.plans.pipeline[numbers]
        told: dict[int, RankedPlan] = {}
        for degree in np.unique(pipeline):
            places = np.flatnonzero(pipeline == degree)
            told |= zip(places.tolist(), self._tell_alike(numbers[places]), strict=True)
        return [told[place] for place in range(len(numbers))]

    def _tell_alike(self, numbers: Indices) -> list[RankedPlan]:
        table, stack = self.priced.table, self.priced.stack
        times = self.priced.step_times(numbers, self.times.classes_s, self.times.attention_s)
        memories = plan_memories(table, numbers, optimizer=self.optimizer, stack=stack)
        each = zip(self.priced.plans.take(numbers), memories, strict=True)
        return [RankedPlan(plan, times.one(place), memory) for place, (plan, memory) in enumerate(each)]


class RankedPlans(Sequence[RankedPlan]):
    """Plans in an order.

    Args:
        details: what they are told from.
        numbers: of the plans that are ranked, in order.
        first_time: of the step of one of them by its number, where it is not what they were ranked by (`with_time`).
    """

    def __init__(self, details: PlanDetails, numbers: Indices, first_time: tuple[int, StepTime] | None = None) -> None:
        """Tell nothing yet."""
        self._details, self._numbers, self._first_time = details, numbers, first_time

    @property
    def plans(self) -> PlanColumns:
        """The plans alone, in order."""
        return self._details.priced.plans.take(self._numbers)

    @property
    def peak_bytes(self) -> Floats:
        """Memory of the fullest stage of each, shape (plans,)."""
        return self._details.priced.peak_bytes[self._numbers]

    def take(self, places: Indices) -> "RankedPlans":
        """Those at some places, in the order of the places."""
        return RankedPlans(self._details, self._numbers[places], self._first_time)

    def led_by(self, plan: ParallelPlan) -> "RankedPlans":
        """The same behind one of all plans, which comes first though it may not be the fastest."""
        number = list(self._details.priced.plans).index(plan)
        others = self._numbers[self._numbers != number]
        return RankedPlans(self._details, np.concatenate([[number], others]).astype(np.intp), self._first_time)

    def with_time(self, time: StepTime) -> "RankedPlans":
        """The same where the first takes another time, which is no longer."""
        return RankedPlans(self._details, self._numbers, (int(self._numbers[0]), time))

    def _tell(self, numbers: Indices) -> list[RankedPlan]:
        told, first = self._details.tell(numbers), self._first_time
        if first is None:
            return told
        return [replace(each, time=first[1]) if n == first[0] else each for n, each in zip(numbers, told, strict=True)]

    def __len__(self) -> int:
        """Number of plans."""
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> RankedPlan: ...
    @overload
    def __getitem__(self, place: slice) -> "RankedPlans": ...
    def __getitem__(self, place: int | slice) -> "RankedPlan | RankedPlans":
        """One of the plans, or some of them."""
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        return self._tell(self._numbers[[place]])[0]

    def __iter__(self) -> Iterator[RankedPlan]:
        """The plans, up to `AT_ONCE` at a time."""
        start, size = 0, AT_FIRST
        while start < len(self):
            yield from self._tell(self._numbers[start : start + size])
            start, size = start + size, min(AT_ONCE, 8 * size)


@dataclass(frozen=True, slots=True)
class Machine:
    """What plans are priced on.

    Attributes:
        clock: times layers on one device.
        memory_bytes: capacity of one device.
        network: of the cluster.
        stack: training software.
        is_real: whether it exists, so that a plan is refused only where the whole range of its peak lies above the
            memory; of a designed chip every predicted peak must fit, as its proofs say.
    """

    clock: LayerClock
    memory_bytes: float
    network: Network
    stack: TrainingStack
    is_real: bool = False

    @property
    def room_bytes(self) -> float:
        """The largest predicted peak that is not refused."""
        return self.memory_bytes / (1.0 - self.stack.memory.low_share) if self.is_real else self.memory_bytes


@dataclass(frozen=True, slots=True)
class PlanRanking:
    """All plans that fit, fastest first.

    Attributes:
        ranked: the plans.
        num_misfits: plans that do not fit the memory.
        least_bytes: what the smallest of those needs, 0 if there is none.
        beaten: plans that fit and are left out because one of the same degrees beats them (`without_beaten`).
        beaten_by: which one, for each of them.
        bound_s: what no plan is faster than, whatever the schedules of a designed chip (`optimum.PlanOptimum`), s; 0
            of a machine without schedules.
    """

    ranked: RankedPlans
    num_misfits: int
    least_bytes: float
    beaten: PlanColumns = PlanColumns.of([])
    beaten_by: PlanColumns = PlanColumns.of([])
    bound_s: float = 0.0


def rank_plans(
    model: Workload,
    training: TrainingSpec,
    plans: Iterable[ParallelPlan] | PlanColumns,
    *,
    machine: Machine,
    others: UnlistedPlans | None = None,
) -> PlanRanking:
    """Every plan that is not refused for its memory, fastest step first; ties in the order given.

    Plans that differ in pipeline, data, interleave, ZeRO or recomputation alone share the times of their layers.

    Args:
        model: what is trained.
        training: batches, sequence and optimizer; each plan brings its micro-batch.
        plans: such as `plan_space.list_plans` gives.
        machine: devices and their network.
        others: spreads of other plans, which are ranked too where they may be faster than the fastest.

    Raises:
        InputError: no plan is given.
    """
    plans = plans if isinstance(plans, PlanColumns) else PlanColumns.of(plans)
    if not len(plans):
        message = f"the degrees given leave no parallel plan of {model.name}; leave more of them free"
        raise InputError(message)
    priced = price_plans(model, training, plans, network=machine.network, stack=machine.stack)
    fitting = priced.fitting(machine.room_bytes)
    times = clock_sets(priced, machine.clock, fitting)
    seconds = priced.seconds(fitting, times.classes_s, times.attention_s)
    if others is not None:
        every, least_s = clock_sets(priced, machine.clock), float(seconds.min(initial=np.inf))
        chosen = others.below(priced.totals_s(every.classes_s[None])[0], priced.layers, least_s)
        if chosen.any():
            plans, others = others.joined(plans, chosen), others.take(~chosen)
            return rank_plans(model, training, plans, machine=machine, others=others)
    order = fitting[np.argsort(comparable(seconds), kind="stable")]
    ranked = RankedPlans(PlanDetails(priced, times, training.optimizer), order)
    misfits = np.delete(priced.peak_bytes, fitting)
    return PlanRanking(ranked, len(misfits), float(misfits.min()) if len(misfits) else 0.0)


def clock_sets(
    priced: PricedPlans, clock: LayerClock, plans: Indices | None = None, *, is_bound: bool = False
) -> LayerTimes:
    """Times of the sets of layers of some plans, each timed once, shape (sets, ...); 0 of sets that none has.

    Args:
        priced: the plans.
        clock: times layers on one device.
        plans: which plans; all unless given.
        is_bound: what no schedule goes below, where a clock tells it.
    """
    told = clock.lower_times if is_bound and isinstance(clock, ScheduleClock) else clock.times
    shape = len(priced.sets), len(priced.sets[0].parts)
    classes_s, attention_s = np.zeros((*shape, NUM_PASSES, NUM_CLASSES)), np.zeros(shape)
    for number in np.unique(priced.set_of if plans is None else priced.set_of[plans]):
        times = told(priced.sets[number])
        classes_s[number], attention_s[number] = times.classes_s, times.attention_s
    return LayerTimes(classes_s, attention_s)


def without_beaten(ranking: PlanRanking) -> PlanRanking:
    """The ranking without plans that one of the same degrees beats: as fast or faster, in no more memory.

    The two differ in recomputation or ZeRO stage alone. Fused attention keeps no scores, so that selective
    recomputation under it takes time and saves nothing; sharding gradients saves nothing where ZeRO 1 has as few. Of
    plans that are equal in both, the first stays.
    """
    ranked = ranking.ranked
    degrees = replace(ranked.plans.without_recompute(), zero=np.zeros(len(ranked), np.int64))
    least = _least_before(degrees.twins(), ranked.peak_bytes)
    is_kept = least < 0
    is_kept[~is_kept] = ranked.peak_bytes[~is_kept] < ranked.peak_bytes[least[~is_kept]]
    beaten = np.flatnonzero(~is_kept)
    return replace(
        ranking,
        ranked=ranked.take(np.flatnonzero(is_kept)),
        beaten=ranked.plans.take(beaten),
        beaten_by=ranked.plans.take(least[beaten]),
    )


def _least_before(group: Ints, values: Floats) -> Indices:
    """Place of the least of the values of the same group that stand before each, the first of equal ones; or -1."""
    best: dict[int, int] = {}
    found = np.full(len(group), -1, np.intp)
    for place, (own, value) in enumerate(zip(group.tolist(), values.tolist(), strict=True)):
        known = best.setdefault(own, place)
        if known != place:
            found[place] = known
            if value < values[known]:
                best[own] = place
    return found


def step_memory(step: CompiledStep) -> PlanMemory:
    """Memory of every stage of a compiled step."""
    return plan_memory(
        [part.graph for part in step.parts],
        step.plan,
        blocks=step.blocks,
        num_micro_batches=step.num_micro_batches,
        order=step.graph.cut.order,
        tensors=stage_tensors(step),
        optimizer=step.training.optimizer,
        stack=step.stack,
    )
