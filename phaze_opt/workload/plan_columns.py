"""Many parallel plans as columns: the fields of `ParallelPlan`, an array each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.workload.plan import ParallelPlan, Recompute

Ints = NDArray[np.int64]
Rows = NDArray[np.intp]

RECOMPUTES = tuple(Recompute)
"""Choices of recomputation in the order that columns number them."""
NO_RECOMPUTE, SELECTIVE, FULL = range(3)
"""Their numbers."""


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Plans; each array has one entry for a plan. Fields as in `ParallelPlan`.

    Attributes:
        recompute: places in `RECOMPUTES`.
        is_sequence_parallel: 0 or 1.
    """

    tensor: Ints
    pipeline: Ints
    data: Ints
    context: Ints
    expert: Ints
    interleave: Ints
    micro_batch: Ints
    zero: Ints
    state_shards: Ints
    recompute: Ints
    is_sequence_parallel: Ints

    @classmethod
    def of(cls, plans: Iterable[ParallelPlan]) -> "PlanColumns":
        """Columns of plans that are objects, in order."""
        number = {each: place for place, each in enumerate(RECOMPUTES)}
        plans = tuple(plans)
        columns = {name: [getattr(plan, name) for plan in plans] for name in _NAMES}
        columns["recompute"] = [number[each] for each in columns["recompute"]]
        return cls(**{name: np.array(values, np.int64) for name, values in columns.items()})

    @classmethod
    def joined(cls, parts: Sequence["PlanColumns"]) -> "PlanColumns":
        """Plans of several parts, one after the other."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _NAMES))

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tensor)

    def __iter__(self) -> Iterator[ParallelPlan]:
        """The plans as objects, in order."""
        for values in zip(*(getattr(self, name).tolist() for name in _NAMES), strict=True):
            found: dict[str, Any] = dict(zip(_NAMES, values, strict=True))
            found["recompute"] = RECOMPUTES[found["recompute"]]
            found["is_sequence_parallel"] = bool(found["is_sequence_parallel"])
            yield ParallelPlan(**found)

    def twins(self) -> Ints:
        """A number for each plan, the same for plans that are equal."""
        table = np.stack([getattr(self, name) for name in _NAMES], axis=1)
        return np.unique(table, axis=0, return_inverse=True)[1].reshape(-1)

    def plan(self, row: int) -> ParallelPlan:
        """One plan as an object."""
        return next(iter(self.take(np.array([row], np.intp))))

    def take(self, rows: Rows | NDArray[np.bool_]) -> "PlanColumns":
        """Some of the plans, in the order of ``rows``; a mask keeps the order there is."""
        return PlanColumns(*(getattr(self, name)[rows] for name in _NAMES))


_NAMES = tuple(field.name for field in fields(PlanColumns))
