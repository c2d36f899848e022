"""Many points of a space at once, by index: what enumerating hundreds of thousands of them needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace


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
    axes = space.axes
    rest, micro_batch = np.divmod(indices, len(axes.micro_batch))
    architecture, hbm = np.divmod(rest, len(axes.hbm_bytes))
    row, vc = space.kept.row_and_vc(architecture)
    glb, width, depth, tc = np.unravel_index(row, axes.shape)
    widths = np.array(axes.tc_width)[width].tolist()
    columns = (
        np.array(axes.num_tc)[tc].tolist(),
        np.array(axes.num_vc)[vc].tolist(),
        widths,
        np.array(axes.tc_depth)[depth].tolist(),
        widths,
        np.array(axes.glb_bytes)[glb].tolist(),
        np.array(axes.hbm_bytes)[hbm].tolist(),
        np.array(axes.micro_batch)[micro_batch].tolist(),
    )
    return tuple(map(DesignPoint, *columns))
