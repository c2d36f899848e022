"""What dies are held against, and of it edge and package: stacks lie along the long sides, links along the short."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

import numpy as np

from phaze_opt.hardware.constants import Constants
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.near_ties import is_at_most
from phaze_opt.units import BITS_PER_BYTE, GIGA


class Limit(StrEnum):
    """What a die that could be built and run keeps to, as it is called where it holds a design back."""

    RETICLE = "the reticle"
    PLACES = "places for HBM along the edge"
    LINK_EDGE = "edge for links"
    INTERPOSER = "the interposer"
    BANKS = "banks of the buffer"
    COOLING = "cooling"


_BROKEN = {
    Limit.RETICLE: "a die of {has:,.0f} mm^2 is larger than the reticle's {allowed:.0f} mm^2",
    Limit.PLACES: "{has:.0f} stacks of HBM need more edge than the {allowed:.0f} places of this die",
    Limit.LINK_EDGE: "links take {has:.0f} mm of edge and its short sides have {allowed:.0f} mm",
    Limit.INTERPOSER: "die and stacks of {has:.0f} mm^2 are larger than an interposer of {allowed:.0f} mm^2",
    Limit.BANKS: "the buffer has {has:.0f} bytes for a byte a cycle, and banks need {allowed:.0f}",
    Limit.COOLING: "{has:.4g} W/mm^2 is more than {allowed:g} W/mm^2",
}


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Dies held against one limit; columns of shape (num_dies,), or numbers that broadcast.

    Attributes:
        has: what each has of it.
        allowed: what it may have at most; of `Limit.BANKS` at least.
        is_kept: whether it keeps to the limit; last digits do not decide.
    """

    has: Floats
    allowed: Floats
    is_kept: Flags

    @classmethod
    def at_most(cls, has: Floats, allowed: Floats | float) -> "Held":
        """On the grid of `record.near_ties`."""
        return cls(has, np.asarray(allowed, np.float64), is_at_most(has, allowed))


def all_kept(limits: Mapping[Limit, Held]) -> Flags:
    """Which dies keep to every limit."""
    return np.asarray(reduce(np.logical_and, (held.is_kept for held in limits.values())))


def broken_limits(limits: Mapping[Limit, Held]) -> tuple[str, ...]:
    """A sentence for each limit that a single die breaks."""
    return tuple(
        _BROKEN[limit].format(has=number_of(held.has), allowed=number_of(held.allowed))
        for limit, held in limits.items()
        if not held.is_kept.all()
    )


def number_of(values: Floats) -> float:
    """The figure of a single die."""
    return float(np.asarray(values).reshape(-1)[0])


@dataclass(frozen=True, slots=True, eq=False)
class DieEdge:
    """Sides of dies and what takes them, each of shape (num_dies,).

    Attributes:
        length_mm, width_mm: long and short side, as long as reticle and aspect allow; of a chiplet where it is split.
        stack_places: stacks of HBM for which both long sides have room.
        link_edge_mm: edge that links take, and what leads to other chiplets, of both short sides.
        package_mm2: die or all its chiplets, and stacks, on an interposer.
        limits: of edge and package.
    """

    length_mm: Floats
    width_mm: Floats
    stack_places: Floats
    link_edge_mm: Floats
    package_mm2: Floats
    limits: Mapping[Limit, Held]

    @property
    def is_buildable(self) -> Flags:
        """Inside all four limits, shape (num_dies,)."""
        return all_kept(self.limits)


_ONE_DIE, _NO_CROSSING = np.ones(()), np.zeros(())


def die_edge(
    area_mm2: Floats,
    hbm_stacks: Floats,
    link_bytes_per_s: Floats,
    constants: Constants,
    *,
    num_chiplets: Floats = _ONE_DIE,
    crossing_bytes_per_s: Floats = _NO_CROSSING,
) -> DieEdge:
    """Edges of dies.

    Args:
        area_mm2: shape (num_dies,), mm^2; of a die that is split all of it, as all here.
        hbm_stacks: half along each long side.
        link_bytes_per_s: one way.
        constants: those of the die model.
        num_chiplets: equal ones, 1 where the die is whole.
        crossing_bytes_per_s: between them, all together, one way.
    """
    package = area_mm2 + constants.value("package.stack_mm2") * hbm_stacks
    area_mm2, link_bytes_per_s = area_mm2 / num_chiplets, link_bytes_per_s / num_chiplets
    stacks = np.where(num_chiplets > 1.0, np.ceil(hbm_stacks / num_chiplets), hbm_stacks)
    longest = constants.value("edge.longest_mm")
    length = np.minimum(longest, np.sqrt(constants.value("edge.aspect") * area_mm2))
    width = area_mm2 / length
    # A side that fits its last stack but for rounding has a place for it.
    stacks_long = length / constants.value("edge.stack_mm")
    whole = np.ceil(stacks_long)
    places = 2.0 * (whole - ~is_at_most(whole, stacks_long))
    lanes = link_bytes_per_s * BITS_PER_BYTE / GIGA / constants.value("edge.lane_gbit_per_s")
    to_others = crossing_bytes_per_s / num_chiplets / GIGA / constants.value("edge.die_to_die_gb_per_s_per_mm")
    link_edge = constants.value("edge.lane_mm") * lanes + to_others
    return DieEdge(
        length_mm=np.asarray(length),
        width_mm=np.asarray(width),
        stack_places=np.asarray(places),
        link_edge_mm=np.asarray(link_edge),
        package_mm2=np.asarray(package),
        limits={
            Limit.RETICLE: Held.at_most(area_mm2, constants.value("package.reticle_mm2")),
            Limit.PLACES: Held.at_most(stacks, places),
            Limit.LINK_EDGE: Held.at_most(link_edge, 2.0 * width),
            Limit.INTERPOSER: Held.at_most(package, constants.value("package.interposer_mm2")),
        },
    )
