"""Compiled kernels of tiles in the L2: how often the operands of a matmul pass from the GLB.

A tile of t_m x t_n results stays in the L2, at most so many elements. Import this module lazily: it pulls in numba.
"""

import math

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.flexibility import Tiling
from phaze_opt.record.compiled import compiled

Floats = NDArray[np.float64]
SQUARE, ANY_TILE = int(Tiling.SQUARE), int(Tiling.ANY)


@compiled
def _fewest_passes(  # noqa: PLR0917
    passes: Floats, m: float, n: float, tile: float, left: float, right: float
) -> None:
    """Passes of the tile of at most ``tile`` elements that reads the fewest, those there unless some reads fewer.

    What the left operand costs alone grows with its passes and ends the search.
    """
    best = left * m * passes[0] + right * n * passes[1]
    across = float(math.ceil(n / tile))
    while across <= n and left * m * across + right * n < best:
        down = float(math.ceil(m / math.floor(tile / math.ceil(n / across))))
        read = left * m * across + right * n * down
        if read < best:
            best = read
            passes[0], passes[1] = across, down
        across += 1.0


@compiled
def set_passes(  # noqa: PLR0917
    passes: Floats, m: float, n: float, tile: float, tiling: int, left: float, right: float
) -> None:
    """GLB passes over shares of ``m`` rows and ``n`` columns; see the head of this file.

    ``left`` and ``right`` weigh elements of the operands where tiles may be any.
    """
    edge = math.floor(math.sqrt(tile))
    t_m, t_n = float(edge), float(edge)
    if tiling == SQUARE:
        passes[0] = math.ceil(n / t_n)
        passes[1] = math.ceil(m / t_m)
        return
    if m < edge:
        t_m, t_n = m, float(math.floor(tile / m))
    elif n < edge:
        t_m, t_n = float(math.floor(tile / n)), n
    passes[0] = math.ceil(n / t_n)
    passes[1] = math.ceil(m / t_m)
    if tiling == ANY_TILE:
        _fewest_passes(passes, m, n, tile, left, right)
