"""Which units a stage may hold: as many of equal units as there are, or a span of units that differ.

What a stage costs does not depend on where equal units stand, so that a column is a number of them. Of units that
differ it is a span; spans of as many units of every kind, between the same two layers, are one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.step_traffic import unit_counts
from phaze_opt.workload.chain import ChainCut

Ints = NDArray[np.int64]
Indices = NDArray[np.intp]
NO_COLUMN = -1
"""In place of a column where no stage may hold as many units from there on."""


@dataclass(frozen=True, slots=True)
class StageSpans:
    """The units that stages may hold, a column each.

    Attributes:
        counts: units of every kind, shape (columns, kinds).
        start, stop: units of one span of each column, shape (columns,).
        number: column of the spans from each unit on, by their length, shape (units + 1, units + 1).
    """

    counts: Ints
    start: Ints
    stop: Ints
    number: Indices

    @property
    def sizes(self) -> Ints:
        """Units of each column, shape (columns,)."""
        return np.asarray(self.counts.sum(axis=1))

    def of_cut(self, blocks: Sequence[int]) -> Indices:
        """Columns of the stages of a cut, shape (stages,)."""
        held = np.asarray(blocks, np.intp)
        return np.asarray(self.number[held.cumsum() - held, held], np.intp)

    def candidates(self, sizes: Indices) -> tuple[Indices, Indices]:
        """Columns of spans of some sizes, and which of them are those from each unit on, shape (units + 1, sizes)."""
        number = self.number[:, sizes]
        columns = np.unique(number[number >= 0])
        place = np.full(len(self.start) + 1, NO_COLUMN, np.intp)
        place[columns] = np.arange(len(columns))
        return columns, place[number]


@lru_cache(maxsize=64)
def list_spans(cut: ChainCut) -> StageSpans:
    """All spans of a chain's units."""
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
