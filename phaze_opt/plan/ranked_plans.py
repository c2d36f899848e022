"""Plans in the order of a ranking: columns, made into objects only where they are looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.plan_memory import PlanMemory
from phaze_opt.cost.price_step import LayerTimes
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.table_memory import plan_memories
from phaze_opt.plan.priced_plans import PricedPlans
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import PlanColumns, Rows
from phaze_opt.workload.training import Optimizer

AT_ONCE = 4096
"""Plans made into objects at once: bounds the memory that their arrays take."""


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

    def tell(self, numbers: Rows) -> list[RankedPlan]:
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

    def _tell_alike(self, numbers: Rows) -> list[RankedPlan]:
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
    """

    def __init__(self, details: PlanDetails, numbers: Rows) -> None:
        """Tell nothing yet."""
        self._details, self._numbers = details, numbers

    @property
    def plans(self) -> PlanColumns:
        """The plans alone, in order."""
        return self._details.priced.plans.take(self._numbers)

    @property
    def peak_bytes(self) -> NDArray[np.float64]:
        """Memory of the fullest stage of each, shape (plans,)."""
        return self._details.priced.peak_bytes[self._numbers]

    def take(self, places: Rows) -> "RankedPlans":
        """Those at some places, in the order of the places."""
        return RankedPlans(self._details, self._numbers[places])

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
        return self._details.tell(self._numbers[[place]])[0]

    def __iter__(self) -> Iterator[RankedPlan]:
        """The plans, `AT_ONCE` at a time."""
        for start in range(0, len(self), AT_ONCE):
            yield from self._details.tell(self._numbers[start : start + AT_ONCE])
