"""Plans in the order of a ranking: columns, made into objects only where they are looked at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.plan_memory import PlanMemory
from phaze_opt.cost.price_step import LayerTimes, StackColumns, price_batch
from phaze_opt.cost.step_table import StepTable
from phaze_opt.cost.step_time import StepTime
from phaze_opt.cost.table_memory import plan_memories
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.plan_columns import PlanColumns, Rows
from phaze_opt.workload.software import TrainingStack
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
        plans: all of them, also those that do not fit.
        table: their steps.
        times: of the table's graphs, shape (graphs, ...).
        stack: training software.
        optimizer: bytes of a parameter's state.
    """

    plans: PlanColumns
    table: StepTable
    times: LayerTimes
    stack: TrainingStack
    optimizer: Optimizer

    def tell(self, rows: Rows) -> list[RankedPlan]:
        """Some plans as objects, with every part of their times and memory."""
        graph = self.table.graph_of_group[self.table.plans.group[rows]]
        stacks = StackColumns([self.stack] * len(rows))
        batch = self.table.batch(rows)
        times = price_batch(batch, self.times.classes_s[graph], self.times.attention_s[graph], stacks)
        memories = plan_memories(self.table, rows, optimizer=self.optimizer, stack=self.stack)
        each = zip(self.plans.take(rows), memories, strict=True)
        return [RankedPlan(plan, times.one(place), memory) for place, (plan, memory) in enumerate(each)]


class RankedPlans(Sequence[RankedPlan]):
    """Plans in an order.

    Args:
        priced: plans and what they are told from.
        rows: those that are ranked, in order.
        peak_bytes: memory of the fullest stage of each.
    """

    def __init__(self, priced: PlanDetails, rows: Rows, peak_bytes: NDArray[np.float64]) -> None:
        """Tell nothing yet."""
        self._priced, self._rows, self.peak_bytes = priced, rows, peak_bytes

    @property
    def plans(self) -> PlanColumns:
        """The plans alone, in order."""
        return self._priced.plans.take(self._rows)

    def take(self, places: Rows) -> "RankedPlans":
        """Those at some places, in the order of the places."""
        return RankedPlans(self._priced, self._rows[places], self.peak_bytes[places])

    def __len__(self) -> int:
        """Number of plans."""
        return len(self._rows)

    @overload
    def __getitem__(self, place: int) -> RankedPlan: ...
    @overload
    def __getitem__(self, place: slice) -> "RankedPlans": ...
    def __getitem__(self, place: int | slice) -> "RankedPlan | RankedPlans":
        """One of the plans, or some of them."""
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        return self._priced.tell(self._rows[[place]])[0]

    def __iter__(self) -> Iterator[RankedPlan]:
        """The plans, `AT_ONCE` at a time."""
        for start in range(0, len(self), AT_ONCE):
            yield from self._priced.tell(self._rows[start : start + AT_ONCE])
