"""The edge of a die and its package: stacks along its long sides, links along its short ones, reticle, interposer."""

from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.constants import Constants
from phaze_opt.record.near_ties import comparable
from phaze_opt.units import BITS_PER_BYTE, GIGA

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class DieEdge:
    """Sides of dies and what takes them, each of shape (num_dies,).

    Attributes:
        length_mm, width_mm: long and short side: as long as the reticle and the aspect allow.
        stack_places: stacks of HBM for which both long sides have room.
        link_edge_mm: edge that links take, of both short sides.
        package_mm2: die and stacks on an interposer.
        has_reticle, has_places, has_link_edge, has_interposer: whether the die is inside each limit.
    """

    length_mm: Floats
    width_mm: Floats
    stack_places: Floats
    link_edge_mm: Floats
    package_mm2: Floats
    has_reticle: NDArray[np.bool_]
    has_places: NDArray[np.bool_]
    has_link_edge: NDArray[np.bool_]
    has_interposer: NDArray[np.bool_]

    @property
    def is_buildable(self) -> NDArray[np.bool_]:
        """Inside all four limits, shape (num_dies,)."""
        return np.asarray(reduce(np.logical_and, self.limits.values()))

    @property
    def limits(self) -> dict[str, NDArray[np.bool_]]:
        """Which dies are inside each limit, by its name."""
        return {
            "the reticle": self.has_reticle,
            "places for HBM along the edge": self.has_places,
            "edge for links": self.has_link_edge,
            "the interposer": self.has_interposer,
        }


def die_edge(area_mm2: Floats, hbm_stacks: Floats, link_bytes_per_s: Floats, constants: Constants) -> DieEdge:
    """Edges of dies.

    Args:
        area_mm2: shape (num_dies,), mm^2.
        hbm_stacks: of each, half along each long side.
        link_bytes_per_s: of each, one way.
        constants: those of the die model.
    """
    longest = constants.value("edge.longest_mm")
    length = np.minimum(longest, np.sqrt(constants.value("edge.aspect") * area_mm2))
    width = area_mm2 / length
    places = 2.0 * np.floor(comparable(length / constants.value("edge.stack_mm")))
    lanes = link_bytes_per_s * BITS_PER_BYTE / GIGA / constants.value("edge.lane_gbit_per_s")
    link_edge = constants.value("edge.lane_mm") * lanes
    package = area_mm2 + constants.value("package.stack_mm2") * hbm_stacks
    return DieEdge(
        length_mm=np.asarray(length),
        width_mm=np.asarray(width),
        stack_places=np.asarray(places),
        link_edge_mm=np.asarray(link_edge),
        package_mm2=np.asarray(package),
        has_reticle=_is_within(area_mm2, constants.value("package.reticle_mm2")),
        has_places=_is_within(hbm_stacks, places),
        has_link_edge=_is_within(link_edge, 2.0 * width),
        has_interposer=_is_within(package, constants.value("package.interposer_mm2")),
    )


def _is_within(values: Floats, limits: Floats | float) -> NDArray[np.bool_]:
    """Whether values are at most limits, on the grid of `record.near_ties`: no last digit decides."""
    return np.asarray(comparable(values) <= comparable(limits))
