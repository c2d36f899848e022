"""`PointColumns`: many design points as arrays, and random draws of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns:
    """Design points as columns of shape (num_points,); units as in `DesignPoint`."""

    num_tc: NDArray[np.int64]
    num_vc: NDArray[np.int64]
    tc_width: NDArray[np.int64]
    tc_depth: NDArray[np.int64]
    vc_width: NDArray[np.int64]
    glb_bytes: NDArray[np.int64]
    hbm_bytes: NDArray[np.int64]
    micro_batch: NDArray[np.int64]

    def __len__(self) -> int:
        """Number of points."""
        return len(self.num_tc)

    def point(self, row: int) -> DesignPoint:
        """The point of one row."""
        return DesignPoint(**{field.name: int(getattr(self, field.name)[row]) for field in fields(self)})


def columns_of(points: Sequence[DesignPoint]) -> PointColumns:
    """Columns of points, in their order."""
    return PointColumns(
        **{
            field.name: np.array([getattr(point, field.name) for point in points], dtype=np.int64)
            for field in fields(PointColumns)
        }
    )


def draw_columns(space: SearchSpace, *, count: int, rng: np.random.Generator) -> PointColumns:
    """Kept points, each equally likely, with replacement."""
    axes = space.axes
    index = rng.integers(space.size, size=count)
    rest, micro_batch = np.divmod(index, len(axes.micro_batch))
    architecture, hbm = np.divmod(rest, len(axes.hbm_bytes))
    row, vc = space.kept.row_and_vc(architecture)
    glb, width, depth, tc = np.unravel_index(row, axes.shape)
    tc_width = np.array(axes.tc_width, dtype=np.int64)[width]
    return PointColumns(
        num_tc=np.array(axes.num_tc, dtype=np.int64)[tc],
        num_vc=np.array(axes.num_vc, dtype=np.int64)[vc],
        tc_width=tc_width,
        tc_depth=np.array(axes.tc_depth, dtype=np.int64)[depth],
        vc_width=tc_width,
        glb_bytes=np.array(axes.glb_bytes, dtype=np.int64)[glb],
        hbm_bytes=np.array(axes.hbm_bytes, dtype=np.int64)[hbm],
        micro_batch=np.array(axes.micro_batch, dtype=np.int64)[micro_batch],
    )


def take_rows(columns: PointColumns, rows: NDArray[np.intp]) -> PointColumns:
    """Some of the rows, in the order given."""
    return PointColumns(**{field.name: getattr(columns, field.name)[rows] for field in fields(columns)})
