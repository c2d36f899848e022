"""Many parallel plans as columns: the fields of `ParallelPlan`, an array each."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from phaze_opt.record.arrays import Flags, Indices, Ints
from phaze_opt.workload.plan import ParallelPlan, Recompute

RECOMPUTES = tuple(Recompute)
"""Choices of recomputation in the order that columns number them."""
NO_RECOMPUTE, SELECTIVE, FULL = range(3)
"""Their numbers."""
StageKey = tuple[tuple[int, ...], tuple[Recompute, ...], tuple[int, ...]]
NO_STAGES: StageKey = ((), (), ())
"""Stages as even as they can be, which all recompute as their plan says, of units in their own order."""


def number_rows(columns: Sequence[Ints]) -> Ints:
    """A number for each row of some columns, the same for rows that are equal, in their order.

    As `numpy.unique` numbers the rows of a table, in a tenth of its time.
    """
    order = np.lexsort(columns[::-1])
    is_new = np.zeros(len(order), np.bool_)
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    numbers = np.empty(len(order), np.int64)
    numbers[order] = is_new.cumsum()
    return numbers


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """Plans; each array has one entry for a plan. Fields as in `ParallelPlan`.

    Attributes:
        recompute: places in `RECOMPUTES`.
        is_sequence_parallel: 0 or 1.
        stages: places in ``stage_choices``.
        stage_choices: ``blocks``, ``stage_recompute`` and ``unit_order`` of plans, each once; first none.
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
    stages: Ints
    expert_tensor: Ints
    stage_choices: tuple[StageKey, ...] = (NO_STAGES,)

    @classmethod
    def of(cls, plans: Iterable[ParallelPlan]) -> "PlanColumns":
        """Columns of plans that are objects, in order."""
        number = {each: place for place, each in enumerate(RECOMPUTES)}
        plans = tuple(plans)
        columns: dict[str, list[Any]] = {name: [getattr(plan, name) for plan in plans] for name in _OWN}
        columns["recompute"] = [number[each] for each in columns["recompute"]]
        known = {NO_STAGES: 0}
        stages = [(plan.blocks, plan.stage_recompute, plan.unit_order) for plan in plans]
        columns["stages"] = [known.setdefault(each, len(known)) for each in stages]
        return cls(**{name: np.array(values, np.int64) for name, values in columns.items()}, stage_choices=tuple(known))

    @classmethod
    def joined(cls, parts: Sequence["PlanColumns"]) -> "PlanColumns":
        """Plans of several parts, one after the other."""
        known = {NO_STAGES: 0}
        places = [np.array([known.setdefault(each, len(known)) for each in part.stage_choices]) for part in parts]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _OWN}
        columns["stages"] = np.concatenate([place[part.stages] for place, part in zip(places, parts, strict=True)])
        return cls(**columns, stage_choices=tuple(known))

    def __len__(self) -> int:
        """Number of plans."""
        return len(self.tensor)

    def __iter__(self) -> Iterator[ParallelPlan]:
        """The plans as objects, in order."""
        for values in zip(*(getattr(self, name).tolist() for name in _NAMES), strict=True):
            found: dict[str, Any] = dict(zip(_NAMES, values, strict=True))
            found["recompute"] = RECOMPUTES[found["recompute"]]
            found["is_sequence_parallel"] = bool(found["is_sequence_parallel"])
            stages = self.stage_choices[found.pop("stages")]
            found["blocks"], found["stage_recompute"], found["unit_order"] = stages
            yield ParallelPlan(**found)

    @property
    def is_even(self) -> Flags:
        """Whether each plan's stages are cut as evenly as they can be, shape (plans,)."""
        return np.array([not blocks for blocks, *_ in self.stage_choices])[self.stages]

    @property
    def spreads(self) -> Ints:
        """Tensor, context, stages, replicas and micro-batch of each plan, shape (5, plans)."""
        return np.stack([self.tensor, self.context, self.pipeline, self.data, self.micro_batch])

    @property
    def layers(self) -> tuple[Ints, ...]:
        """Degrees that decide what the layers of each plan are, five of shape (plans,)."""
        return self.tensor, self.context, self.expert, self.expert_tensor, self.micro_batch

    def without_recompute(self) -> "PlanColumns":
        """The same plans, but that none recomputes anything."""
        cuts = {(each[0], each[2]): place for place, each in reversed(list(enumerate(self.stage_choices)))}
        stages = np.array([cuts[each[0], each[2]] for each in self.stage_choices], np.int64)[self.stages]
        return replace(self, recompute=np.full(len(self), NO_RECOMPUTE), stages=stages)

    def twins(self) -> Ints:
        """A number for each plan, the same for plans that are equal."""
        return number_rows([getattr(self, name) for name in _NAMES])

    def plan(self, row: int) -> ParallelPlan:
        """One plan as an object."""
        return next(iter(self.take(np.array([row], np.intp))))

    def take(self, rows: Indices | Flags) -> "PlanColumns":
        """Some of the plans, in the order of ``rows``; a mask keeps the order there is."""
        columns = {name: getattr(self, name)[rows] for name in _NAMES}
        return PlanColumns(**columns, stage_choices=self.stage_choices)


_NAMES = tuple(field.name for field in fields(PlanColumns) if field.name != "stage_choices")
_OWN = tuple(name for name in _NAMES if name != "stages")
"""Columns that are fields of plans as they stand."""
