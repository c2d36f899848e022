"""`LiftedEncoding`: halvings below the most cores that fit, then lifting what is under the band (semantics 8).

Kept beside the codec, which does not lift, to measure one against the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.template import JOINED_AXES, SIZE_AXES, DesignPoint
from phaze_opt.search.encodings.encoding import distributions_of, named
from phaze_opt.space.band import compile_band
from phaze_opt.space.codec import TC_HALVINGS, VC_HALVINGS, Parameter, axis_parameters
from phaze_opt.space.search_space import SearchSpace

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


class HalvingsMapping(StrEnum):
    """What a fixed range of halvings 0..h-1 means where only n < h values fit.

    CLAMP: halvings beyond n - 1 mean the smallest value, which then takes most of the range.
    PROPORTIONAL: value number floor(halvings n / h), so that every value takes an equal share.
    """

    CLAMP = "clamp"
    PROPORTIONAL = "proportional"


@dataclass(frozen=True, slots=True)
class LiftedEncoding:
    """Halvings beyond the smallest value mean the smallest; a design under the area band is lifted into it.

    Attributes:
        space: the space.
    """

    space: SearchSpace

    def parameters(self) -> tuple[Parameter, ...]:
        """GLB, width, depth, halvings of tensor and of vector cores, HBM, micro-batch."""
        sizes, joined = (axis_parameters(self.space, names).values() for names in (SIZE_AXES, JOINED_AXES))
        lifts = compile_lifts(self.space)
        halvings = (Parameter(TC_HALVINGS, 0, lifts.num_tc_halvings), Parameter(VC_HALVINGS, 0, lifts.num_vc_halvings))
        return (*sizes, *halvings, *joined)

    def distributions(self) -> dict[str, BaseDistribution]:
        """One integer per parameter of several values."""
        return distributions_of(self.parameters())

    def decode(self, params: Mapping[str, Any]) -> DesignPoint:
        """The kept point that a proposal means."""
        places = [int(params.get(known.name, known.low)) - known.low for known in self.parameters()]
        sizes, joined = places[: len(SIZE_AXES)], places[-len(JOINED_AXES) :]
        tc_halvings, vc_halvings = places[len(SIZE_AXES) : -len(JOINED_AXES)]
        block = np.ravel_multi_index(tuple(sizes), self.space.axes.shape[:-1])
        row, vc = decode_lifted(
            self.space,
            compile_band(self.space).block_of[[int(block)]],
            tc_halvings=np.array([tc_halvings]),
            vc_halvings=np.array([vc_halvings]),
            mapping=HalvingsMapping.CLAMP,
        )
        index = int(self.space.kept.index_of(row, vc)[0])
        return self.space.point(int(np.ravel_multi_index((index, *joined), (index + 1, *self.space.axes.joined_shape))))

    def encode(self, point: DesignPoint) -> dict[str, int]:
        """The halvings that mean the point without being lifted.

        Raises:
            InputError: the point is not in the space.
        """
        self.space.index(point)
        at = self.space.positions(point)
        row = self.space.row_of(at)
        block, tc = divmod(row, len(self.space.axes.num_tc))
        tc_halvings = int(compile_lifts(self.space).num_tc_fitting[block]) - 1 - tc
        vc_halvings = int(self.space.kept.high[row]) - 1 - at.num_vc
        sizes, joined = ([getattr(at, name) for name in names] for names in (SIZE_AXES, JOINED_AXES))
        return named(self.parameters(), [*sizes, tc_halvings, vc_halvings, *joined])


@dataclass(frozen=True, slots=True)
class Lifts:
    """What decoding needs beside the kept rows.

    Attributes:
        num_tc_fitting: numbers of tensor cores that fit with the fewest vector cores, shape (num_blocks,).
        lifted_row: row that a design under the band is lifted to, shape (num_rows,).
        lifted_vc: index on the num_vc axis that it is lifted to, shape (num_rows,).
        num_tc_halvings: length of the range of tc_halvings.
        num_vc_halvings: length of the range of vc_halvings.
    """

    num_tc_fitting: NDArray[np.int64]
    lifted_row: NDArray[np.int64]
    lifted_vc: NDArray[np.int64]
    num_tc_halvings: int
    num_vc_halvings: int


def steps_below(
    halvings: NDArray[np.int64], count: NDArray[np.int64], *, length: int | NDArray[np.int64], mapping: HalvingsMapping
) -> NDArray[np.int64]:
    """Steps below the largest of ``count`` values, 0..count-1; ``halvings`` in 0..length-1; all of one shape."""
    if mapping is HalvingsMapping.CLAMP:
        return np.minimum(halvings, count - 1)
    return halvings * count // length


def decode_lifted(
    space: SearchSpace,
    block: NDArray[np.int64],
    *,
    tc_halvings: NDArray[np.int64],
    vc_halvings: NDArray[np.int64],
    mapping: HalvingsMapping,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row of `SearchSpace.kept` and index on the num_vc axis of what each proposal means; always kept.

    The largest num_tc that fits, so many steps down; then the largest num_vc that then fits, so many steps down; a
    design that falls under the band is lifted.

    Args:
        space: the space.
        block: indices over (GLB, width, depth), flattened; shape (n,) as all arguments.
        tc_halvings: steps below the largest num_tc.
        vc_halvings: steps below the largest num_vc.
        mapping: what halvings mean where few values fit.
    """
    lifts, kept = compile_lifts(space), space.kept
    fitting = lifts.num_tc_fitting[block]
    tc = fitting - 1 - steps_below(tc_halvings, fitting, length=lifts.num_tc_halvings, mapping=mapping)
    row = block * len(space.axes.num_tc) + tc
    high = kept.high[row].astype(np.int64)
    vc = high - 1 - steps_below(vc_halvings, high, length=lifts.num_vc_halvings, mapping=mapping)
    is_kept = kept.index_of(row, vc) >= 0
    return np.where(is_kept, row, lifts.lifted_row[row]), np.where(is_kept, vc, lifts.lifted_vc[row])


@lru_cache(maxsize=8)
def compile_lifts(space: SearchSpace) -> Lifts:
    """Work out where proposals go that are not kept themselves."""
    kept, num_tc = space.kept, len(space.axes.num_tc)
    high = kept.high.reshape(-1, num_tc)
    lifted_row, lifted_vc = _lift_targets(space)
    return Lifts(
        num_tc_fitting=np.maximum((high > 0).sum(axis=1), 1).astype(np.int64),
        lifted_row=lifted_row,
        lifted_vc=lifted_vc,
        num_tc_halvings=max(1, int((high > 0).sum(axis=1).max())),
        num_vc_halvings=max(1, int(high.max())),
    )


def _lift_targets(space: SearchSpace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where a design under the band goes, by row: num_vc doubled, then num_tc doubled, then one vector core.

    Where none of these is kept (spaces without single cores) it goes to the nearest row below that keeps anything,
    and where there is none to one above.
    """
    kept, num_tc = space.kept, len(space.axes.num_tc)
    low, high = kept.low.reshape(-1, num_tc), kept.high.reshape(-1, num_tc)
    single = kept.has_single.reshape(-1, num_tc)
    rows = np.arange(low.size, dtype=np.int64).reshape(-1, num_tc)
    target_row, target_vc = np.full_like(rows, -1), np.zeros_like(rows)
    above_row, above_vc = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows), dtype=np.int64)
    for tc in range(num_tc - 1, -1, -1):
        in_band = low[:, tc] < high[:, tc]
        alone = single[:, tc] & (above_row < 0)
        target_row[:, tc] = np.where(in_band | alone, rows[:, tc], above_row)
        target_vc[:, tc] = np.where(in_band, low[:, tc], np.where(alone, 0, above_vc))
        above_row = np.where(in_band, rows[:, tc], above_row)
        above_vc = np.where(in_band, high[:, tc] - 1, above_vc)
    for tc in range(1, num_tc):
        unresolved = target_row[:, tc] < 0
        target_row[:, tc] = np.where(unresolved, target_row[:, tc - 1], target_row[:, tc])
        target_vc[:, tc] = np.where(unresolved, target_vc[:, tc - 1], target_vc[:, tc])
    for tc in range(num_tc - 2, -1, -1):
        unresolved = target_row[:, tc] < 0
        target_row[:, tc] = np.where(unresolved, target_row[:, tc + 1], target_row[:, tc])
        target_vc[:, tc] = np.where(unresolved, target_vc[:, tc + 1], target_vc[:, tc])
    return target_row.ravel(), target_vc.ravel()
