"""Tiny canonical problems whose answers are known by enumeration, and chips to try plug-ins on."""

from dataclasses import replace

import numpy as np

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.space.axes import Axes, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, GIGA, MEBI, UM2_PER_MM2

TINY_SPACE_BUDGET_MM2 = 40.0
"""Area budget of `tiny_space`; with it the largest number of cores of one kind falls as the other's rises."""
CORE_COUNTS = ("num_tc", "num_vc")
"""Fields of an `Accelerator` that count cores."""
NUM_ACCELERATORS = 40


def tiny_space() -> SearchSpace:
    """A space small enough to enumerate (920 points), with everything that makes the Phaze space awkward.

    Kept points lie in an area band, one core of a type is kept below it, the number of cores that fits depends on
    their size, and the HBM axis is not one of powers of two.
    """
    axes = Axes(
        vc_width=(),
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


def largest_memory_bytes(space: SearchSpace) -> int:
    """The most memory that a chip of a space has."""
    return max(point.hbm_bytes for point in space.points())


def toy_accelerator(point: DesignPoint) -> Accelerator:
    """The accelerator of a point, with made-up bandwidths."""
    return Accelerator(
        num_tc=point.num_tc,
        num_vc=point.num_vc,
        tc_width=point.tc_width,
        tc_depth=point.tc_depth,
        vc_width=point.vc_width,
        glb_bytes=point.glb_bytes,
        glb_bandwidth_bytes_per_s=1e12,
        l2_bytes=1024,
        hbm_bytes=point.hbm_bytes,
        hbm_bandwidth_bytes_per_s=1e12,
        clock_hz=1.05e9,
    )


def example_point(rng: np.random.Generator) -> DesignPoint:
    """A random point, not necessarily one of the Phaze space."""
    width = int(2 ** rng.integers(4, 9))
    return DesignPoint(
        num_tc=int(2 ** rng.integers(0, 8)),
        num_vc=int(2 ** rng.integers(0, 9)),
        tc_width=width,
        tc_depth=int(2 ** rng.integers(4, 9)),
        vc_width=width,
        glb_bytes=int(2 ** rng.integers(1, 8)) * MEBI,
        hbm_bytes=int(rng.choice([32, 64, 80])) * GIBI,
        micro_batch=int(2 ** rng.integers(0, 4)),
    )


def example_accelerator(point: DesignPoint) -> Accelerator:
    """The accelerator of a point, with bandwidths that look like real ones."""
    chip = toy_accelerator(point)
    return replace(
        chip,
        glb_bandwidth_bytes_per_s=6144 * chip.clock_hz,
        l2_bytes=max(1024, 16 * chip.tc_width * chip.tc_depth),
        hbm_bandwidth_bytes_per_s=chip.hbm_bytes / GIBI / 16 * 400 * GIGA,
    )


def random_accelerators(seed: int, *, count: int = NUM_ACCELERATORS) -> tuple[Accelerator, ...]:
    """Designed chips of every shape, and some with core counts that are no power of two."""
    rng = np.random.default_rng(seed)
    return tuple(_random_accelerator(rng) for _ in range(count))


def _random_accelerator(rng: np.random.Generator) -> Accelerator:
    width, depth = (int(2 ** rng.integers(1, 9)) for _ in range(2))
    tensor, vector = (int(2 ** rng.integers(0, 9)) if rng.random() < 0.8 else int(rng.integers(1, 200)) for _ in "tv")
    clock_hz = float(rng.uniform(0.5e9, 2e9))
    point = DesignPoint(tensor, vector, width, depth, width, int(2 ** rng.integers(1, 8)) * MEBI, 32 * GIBI, 1)
    return replace(
        example_accelerator(point),
        glb_bandwidth_bytes_per_s=6144 * clock_hz,
        hbm_bandwidth_bytes_per_s=float(rng.choice([400e9, 800e9, 2000e9])),
        clock_hz=clock_hz,
    )
