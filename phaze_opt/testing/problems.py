"""Tiny canonical problems whose answers are known by enumeration."""

from __future__ import annotations

from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2

TINY_SPACE_BUDGET_MM2 = 40.0
"""Area budget of `tiny_space`; with it the largest number of cores of one kind falls as the other's rises."""


def tiny_space() -> SearchSpace:
    """A space small enough to enumerate (920 points), with everything that makes the Phaze space awkward.

    Kept points lie in an area band, one core of a type is kept below it, the number of cores that fits depends on
    their size, and the HBM axis is not one of powers of two.
    """
    axes = Axes(
        num_tc=powers_of_two(1, 16),
        num_vc=powers_of_two(1, 16),
        tc_width=powers_of_two(32, 128),
        tc_depth=powers_of_two(32, 64),
        glb_bytes=powers_of_two(8 * MEBI, 16 * MEBI),
        hbm_bytes=(32 * GIBI, 80 * GIBI),
        micro_batch=(1, 2),
    )
    budget_um2 = TINY_SPACE_BUDGET_MM2 * UM2_PER_MM2
    return SearchSpace("tiny", axes, area_budget_um2=budget_um2, min_area_fraction=0.3)
