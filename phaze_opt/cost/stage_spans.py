"""Which units a stage may hold: as many of equal units as there are, or a span of units that differ.

What a stage costs does not depend on where equal units stand, so that a column is a number of them. Of units that
differ it is a span; spans of as many units of every kind, between the same two layers, are one. Of units that stand
beside one another it is what a down-set holds and another one does not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from phaze_opt.cost.step_traffic import set_members, unit_counts
from phaze_opt.record.arrays import Flags, Indices, Ints
from phaze_opt.workload.branches import Sets, order_of, prefixes
from phaze_opt.workload.chain import ChainCut

NO_COLUMN = -1
"""In place of a column where no stage may hold as many units from there on."""


@dataclass(frozen=True, slots=True)
class StageSpans:
    """The units that stages may hold, a column each.

    Borders are numbered: before each unit and behind the last, or, of units beside one another, one for each down-set.
    What is said of a number of units below is, of the latter, how many borders lie between two.

    Attributes:
        counts: units of every kind, shape (columns, kinds).
        start, stop: borders of one span of each column, shape (columns,).
        number: column of the spans from each border on, by their length, shape (borders, borders).
        sets: of units beside one another, those before each border.
    """

    counts: Ints
    start: Ints
    stop: Ints
    number: Indices
    sets: Sets = ()

    @property
    def sizes(self) -> Ints:
        """Units of each column, shape (columns,)."""
        return np.asarray(self.counts.sum(axis=1))

    @property
    def num_steps(self) -> int:
        """Borders between the first and the last, and one: as many units as there are, where they have an order."""
        return len(self.number) - 1

    def of_cut(self, blocks: Sequence[int]) -> Indices:
        """Columns of the stages of a cut of units in their order, shape (stages,)."""
        stop = np.cumsum(np.asarray(blocks, np.intp))
        start = stop - np.asarray(blocks, np.intp)
        if self.sets:
            border = {each: place for place, each in enumerate(self.sets)}
            start, stop = (np.array([border[(1 << count) - 1] for count in each.tolist()]) for each in (start, stop))
        return np.asarray(self.number[start, stop - start], np.intp)

    def cut_of(self, sizes: Indices) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Units of each of the stages between borders, and the order of units where they have no order of their own.

        Args:
            sizes: how many borders on each stage ends, shape (stages,).
        """
        if not self.sets:
            return tuple(int(each) for each in sizes), ()
        path = [self.sets[border] for border in (0, *np.cumsum(sizes).tolist())]
        return tuple((behind & ~before).bit_count() for before, behind in pairwise(path)), order_of(path)

    def candidates(self, sizes: Indices) -> tuple[Indices, Indices]:
        """Columns of spans of some sizes, and which of them are those from each border on, shape (borders, sizes)."""
        number = self.number[:, sizes]
        columns = np.unique(number[number >= 0])
        place = np.full(len(self.start) + 1, NO_COLUMN, np.intp)
        place[columns] = np.arange(len(columns))
        return columns, place[number]


@lru_cache(maxsize=64)
def list_spans(cut: ChainCut) -> StageSpans:
    """All spans of a chain's units in their order."""
    if cut.branches is not None:
        return spans_between(cut, prefixes(cut.branches))
    num_units = cut.num_units
    if not cut.is_joined:
        every = np.arange(num_units + 1)
        number = np.tile(every, (num_units + 1, 1)).astype(np.intp)
        return StageSpans(every[:, None], np.zeros_like(every), every, number)
    start, length = np.divmod(np.arange((num_units + 1) ** 2), num_units + 1)
    # Only the first and the last stage may be without units.
    may = np.where(length > 0, start + length <= num_units, (start == 0) | (start == num_units))
    start, length = start[may], length[may]
    order = np.array([*cut.order, cut.num_units])
    between = np.stack([order[start], order[start + length - 1], start * (length == 0)], axis=1)
    keys = np.concatenate([unit_counts(cut.order, start, start + length), between], axis=1)
    _, first, place = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    number = np.full((num_units + 1, num_units + 1), NO_COLUMN, np.intp)
    number[start, length] = place.reshape(-1)
    return StageSpans(keys[first, :-3], start[first], (start + length)[first], number)


def spans_between(cut: ChainCut, sets: Sets, *, may: Flags | None = None) -> StageSpans:
    """Spans between any two of some down-sets, one of which holds the other.

    Args:
        cut: with branches.
        sets: from none of the units to all of them, smaller ones first.
        may: between which of them spans are asked for, from one (rows) to the other; all unless given.
    """
    members = set_members(sets, cut.num_units)
    is_inside = members.astype(float) @ (~members.T).astype(float) == 0.0
    may_hold = is_inside if may is None else is_inside & may
    # Only the first and the last stage may be without units.
    ends = np.zeros(len(sets), np.bool_)
    ends[[0, -1]] = True
    np.fill_diagonal(may_hold, ends & np.diagonal(may_hold))
    start, stop = np.nonzero(may_hold)
    kinds = np.eye(len(cut.units), dtype=np.int64)[list(cut.order)]
    counts = members.astype(np.int64) @ kinds
    number = np.full((len(sets), len(sets)), NO_COLUMN, np.intp)
    number[start, stop - start] = np.arange(len(start))
    return StageSpans(counts[stop] - counts[start], start, stop, number, sets)


def blocks_held(cut: ChainCut, spans: StageSpans, *, is_first: bool, is_last: bool) -> Flags:
    """Which blocks of a chain with branches stages of every column hold, shape (columns, blocks)."""
    members = set_members(spans.sets, cut.num_units)
    held = np.pad(members[spans.stop] & ~members[spans.start], ((0, 0), (1, 1)))
    held[:, 0], held[:, -1] = is_first, is_last
    return held
