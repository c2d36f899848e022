"""The frontier of a space: chips beside which no other has the same cores and more buffer, HBM or clock.

More of these, and of whatever else never slows (`hardware.chip_template.NEVER_SLOWS`), makes no training step longer,
and neither do arrays of a kind that is never slower (docs/certificate.md has the lemma). So the fastest chip of a space
is on its frontier, and bounds of the frontier bound all of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.chip_template import AXIS, NEVER_SLOWS, ORDERED_KINDS
from phaze_opt.record.arrays import Flags, Ints, ShortInts
from phaze_opt.space.axes import ROW_AXES, Axes
from phaze_opt.space.kept_architectures import KeptRows


@dataclass(frozen=True, slots=True)
class FrontierRows:
    """Architectures of a frontier by row of `axes.ROW_AXES`.

    Attributes:
        vc: index on the num_vc axis of each, rows in order and rising within a row, shape (num_architectures,).
        starts: index of the row's first architecture, shape (num_rows + 1,); the last is their total.
    """

    vc: ShortInts
    starts: Ints

    @property
    def num_architectures(self) -> int:
        """Architectures on the frontier."""
        return len(self.vc)

    def row_and_vc(self, index: Ints) -> tuple[Ints, Ints]:
        """Row and index on the num_vc axis of architectures by index; all of one shape."""
        row = np.searchsorted(self.starts, index, side="right") - 1
        return row, self.vc[index].astype(np.int64)

    def index_of(self, row: Ints, vc: Ints) -> Ints:
        """Index of architectures by row and index on the num_vc axis, -1 off the frontier; all of one shape."""
        found = np.full(np.shape(row), -1, dtype=np.int64)
        for place in np.ndindex(np.shape(row)):
            first, last = self.starts[row[place]], self.starts[row[place] + 1]
            at = first + np.searchsorted(self.vc[first:last], vc[place])
            if at < last and self.vc[at] == vc[place]:
                found[place] = at
        return found


def mask_of(axes: Axes, kept: KeptRows, is_allowed: Flags | None) -> Flags:
    """Which architectures are kept and allowed, shape (num_rows, len(axes.num_vc)).

    Args:
        axes: the space's.
        kept: its architectures.
        is_allowed: which of them keep to every budget, in index order; all unless given.
    """
    mask = np.zeros((len(kept.low), len(axes.num_vc)), dtype=np.bool_)
    every = np.arange(kept.num_architectures, dtype=np.int64)
    mask[kept.row_and_vc(every if is_allowed is None else every[is_allowed])] = True
    return mask


def compile_frontier(axes: Axes, mask: Flags, *, also: tuple[Ints, Ints] | None = None) -> FrontierRows:
    """The frontier of the architectures of a mask.

    Args:
        axes: the space's.
        mask: of `mask_of`.
        also: rows and numbers of vector cores, as places on their axis, of architectures to have beside the frontier.
    """
    mask = mask.reshape((*axes.shape, len(axes.num_vc))).copy()
    reached = with_no_slower(axes, mask, np.logical_or)
    for place, name in enumerate(ROW_AXES):
        if name in NEVER_SLOWS:
            mask[_at(place, slice(None, -1))] &= ~reached[_at(place, slice(1, None))]
    for slower, other in _kinds(axes):
        mask[slower] &= ~reached[other]
    flat = mask.reshape(-1, len(axes.num_vc))
    if also is not None:
        flat[also] = True
    rows, columns = np.nonzero(flat)
    starts = np.searchsorted(rows, np.arange(len(flat) + 1))
    return FrontierRows(vc=columns.astype(np.int32), starts=starts.astype(np.int64))


def with_no_slower(axes: Axes, values: NDArray[Any], combine: np.ufunc) -> NDArray[Any]:
    """What a function makes of each architecture's value and those of all that the lemma says are no slower.

    Args:
        axes: the space's.
        values: of shape (*axes.shape, ...).
        combine: of two values, such as the lesser of both.
    """
    found = values.copy()
    for place, name in enumerate(ROW_AXES):
        if name in NEVER_SLOWS:
            for at in reversed(range(found.shape[place] - 1)):
                here = found[_at(place, at)]
                combine(here, found[_at(place, at + 1)], out=here)
    for slower, other in _kinds(axes):
        found[slower] = combine(found[slower], found[other])
    return found


def _kinds(axes: Axes) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Where architectures of each kind are, and where those of another that is no slower."""
    for name in ORDERED_KINDS:
        place, values = ROW_AXES.index(name), getattr(axes, name)
        for slower, other in AXIS[name].no_slower:
            if slower in values and other in values:
                yield _at(place, values.index(slower)), _at(place, values.index(other))


def _at(place: int, where: int | slice) -> tuple[Any, ...]:
    return (*(slice(None),) * place, where)
