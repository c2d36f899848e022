"""Points of a space as columns, by index: what bounding a million of them needs in place of a million objects."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.bounds import designed_table
from phaze_opt.space.decode import PointColumns
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

Ints = NDArray[np.int64]

AXES = ("num_tc", "num_vc", "tc_width", "tc_depth", "glb_bytes", "hbm_bytes", "micro_batch")
"""Axes of every space; a vector core is as wide as a tensor core."""


def chips_of(columns: PointColumns, constants: Constants) -> AcceleratorTable:
    """The designed chips of the points, one row each."""
    return designed_table(
        columns.num_tc,
        columns.num_vc,
        tc_width=columns.tc_width,
        tc_depth=columns.tc_depth,
        vc_width=columns.vc_width,
        glb_bytes=columns.glb_bytes,
        hbm_bytes=columns.hbm_bytes,
        constants=constants,
    )


def micro_batches_of(space: SearchSpace, indices: Ints) -> Ints:
    """Micro-batch of each point."""
    axis = np.array(space.axes.micro_batch, dtype=np.int64)
    return axis[indices % len(axis)]


def free_axes(space: SearchSpace) -> tuple[str, ...]:
    """Axes on which the points of a space differ."""
    return tuple(axis for axis in AXES if len(np.unique(axis_column(space, axis))) > 1)


def axis_column(space: SearchSpace, axis: str) -> NDArray[np.int64]:
    """Value of one axis at every point, shape (size,)."""
    num_hbm, num_micro = len(space.axes.hbm_bytes), len(space.axes.micro_batch)
    if axis == "micro_batch":
        return np.tile(np.array(space.axes.micro_batch, dtype=np.int64), space.num_architectures * num_hbm)
    if axis == "hbm_bytes":
        return np.tile(np.repeat(np.array(space.axes.hbm_bytes, dtype=np.int64), num_micro), space.num_architectures)
    column: NDArray[np.int64] = getattr(space.architecture_columns, axis)
    return np.repeat(column, num_hbm * num_micro)


def axis_value(point: DesignPoint, axis: str) -> int:
    """Value of one axis at one point."""
    return int(getattr(point, axis))
