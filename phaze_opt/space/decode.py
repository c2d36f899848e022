"""Many points of a space at once, by index: what enumerating hundreds of thousands of them needs."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns:
    """Design points as columns of shape (num_points,); fields and units as in `DesignPoint`."""

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


def decode_columns(space: SearchSpace, indices: NDArray[np.int64]) -> PointColumns:
    """The points with these indices, in their order; each equals `SearchSpace.point`."""
    axes = space.axes
    rest, micro_batch = np.divmod(indices, len(axes.micro_batch))
    architecture, hbm = np.divmod(rest, len(axes.hbm_bytes))
    row, vc = space.kept.row_and_vc(architecture)
    glb, width, depth, tc = np.unravel_index(row, axes.shape)
    widths = np.array(axes.tc_width, dtype=np.int64)[width]
    return PointColumns(
        num_tc=np.array(axes.num_tc, dtype=np.int64)[tc],
        num_vc=np.array(axes.num_vc, dtype=np.int64)[vc],
        tc_width=widths,
        tc_depth=np.array(axes.tc_depth, dtype=np.int64)[depth],
        vc_width=widths,
        glb_bytes=np.array(axes.glb_bytes, dtype=np.int64)[glb],
        hbm_bytes=np.array(axes.hbm_bytes, dtype=np.int64)[hbm],
        micro_batch=np.array(axes.micro_batch, dtype=np.int64)[micro_batch],
    )


def decode_points(space: SearchSpace, indices: NDArray[np.int64]) -> tuple[DesignPoint, ...]:
    """The points with these indices, in their order; each equals `SearchSpace.point`.

    Raises:
        InputError: an index is none of the space's.
    """
    if len(indices) == 0:
        return ()
    if indices.min() < 0 or indices.max() >= space.size:
        message = f"points {indices.min()}..{indices.max()} of a space with {space.size} points do not all exist"
        raise InputError(message)
    columns = decode_columns(space, indices)
    return tuple(map(DesignPoint, *(getattr(columns, field.name).tolist() for field in fields(columns))))
