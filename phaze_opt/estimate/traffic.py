"""HBM traffic of tiled matmuls: the minimum over GLB tiles of semantics 3, in numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.operator_table import MatmulShapes


def tiled_traffic_elements(shapes: MatmulShapes, glb_elements: NDArray[np.int64]) -> NDArray[np.float64]:
    """Elements to and from HBM, shape (num_buffers, num_matmuls).

    Half the GLB holds a tile, the other half the next one. If an operand or the result fits that half, each is moved
    once: mk + kn + mn. Otherwise the result is cut into p column strips and q row strips, each tile accumulating over
    the whole of k: p mk + q kn + mn, minimised over all p and q whose tiles fit.

    Args:
        shapes: distinct matmuls.
        glb_elements: elements that half the GLB holds, shape (num_buffers,), at least 1.
    """
    room = glb_elements[:, None].astype(float)
    m, n, k = (column.astype(float)[None, :] for column in (shapes.m, shapes.n, shapes.k))
    once = m * k + k * n + m * n
    smallest = np.minimum(np.minimum(m * k, k * n), m * n)
    best = np.where(smallest <= room, once, np.inf)
    strips = np.ceil(n / room)
    while True:
        is_open = (strips * (m * k) + k * n + m * n < best) & (strips <= n)
        if not is_open.any():
            return best * shapes.batch
        rows_per_tile = np.floor(room / np.ceil(n / strips))
        traffic = strips * (m * k) + np.ceil(m / np.maximum(rows_per_tile, 1.0)) * (k * n) + m * n
        best = np.where(is_open & (rows_per_tile >= 1), np.minimum(best, traffic), best)
        strips = strips + 1
