"""The core counts that a space keeps for one GLB size and one array shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.space.search_space import Positions, SearchSpace


@dataclass(frozen=True, slots=True)
class Dimensions:
    """Positions on the axes of GLB, array width and array depth."""

    glb: int
    width: int
    depth: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Positions on the axes of tensor cores and vector cores."""

    tc: int
    vc: int


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """What fits and what is kept of one GLB size and array shape.

    Attributes:
        space: the space.
        dimensions: GLB and shape.
        over_budget: counts that the space keeps and a budget of the search forbids.
    """

    space: SearchSpace
    dimensions: Dimensions
    over_budget: frozenset[Counts] = frozenset()

    def fits(self, counts: Counts) -> bool:
        """Whether the counts are on their axes and within area and budgets, kept or not."""
        if not (0 <= counts.tc < len(self.space.axes.num_tc) and 0 <= counts.vc < len(self.space.axes.num_vc)):
            return False
        return counts.vc < int(self.space.kept.high[self._row(counts.tc)]) and counts not in self.over_budget

    def is_kept(self, counts: Counts) -> bool:
        """Whether the space has a design with these counts."""
        if not self.fits(counts):
            return False
        row, vc = np.array([self._row(counts.tc)]), np.array([counts.vc])
        return bool(self.space.kept.index_of(row, vc)[0] >= 0)

    def kept(self) -> list[Counts]:
        """All counts that the space has a design with."""
        every = (
            Counts(tc, vc) for tc in range(len(self.space.axes.num_tc)) for vc in range(len(self.space.axes.num_vc))
        )
        return [counts for counts in every if self.is_kept(counts)]

    def corners(self) -> tuple[Counts, Counts] | None:
        """The kept counts of most tensor cores and of most vector cores, each with least of the other; None if none."""
        kept = self.kept()
        if not kept:
            return None
        return max(kept, key=lambda c: (c.tc, -c.vc)), max(kept, key=lambda c: (c.vc, -c.tc))

    def point(self, counts: Counts, *, hbm: int, micro_batch: int) -> DesignPoint:
        """The point of some counts, an HBM position and a micro-batch position."""
        where = self.dimensions
        return self.space.point_at(
            Positions(
                num_tc=counts.tc, num_vc=counts.vc, tc_width=where.width, tc_depth=where.depth, vc_width=0,
                glb_bytes=where.glb, hbm_bytes=hbm, micro_batch=micro_batch,
            )
        )  # fmt: skip

    def _row(self, tc: int) -> int:
        """Row of `SearchSpace.kept`."""
        # Written out: `numpy.ravel_multi_index` takes ten times as long, and growth asks tens of thousands of times.
        _, widths, depths, *others = self.space.axes.shape
        block = (self.dimensions.glb * widths + self.dimensions.width) * depths + self.dimensions.depth
        # Of an axis that only some spaces have, growth takes the smallest value; `neighbourhood` moves along it.
        return block * math.prod(others) + tc
