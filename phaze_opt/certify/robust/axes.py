"""The axes of a space as columns of all its points, in index order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

AXES = ("num_tc", "num_vc", "tc_width", "tc_depth", "glb_bytes", "hbm_bytes", "micro_batch")
"""Axes of every space; a vector core is as wide as a tensor core."""


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
