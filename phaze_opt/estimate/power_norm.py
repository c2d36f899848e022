"""Two times that overlap in part: the p-norm lies between their sum (1) and the longer of them (infinity)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST = 1e-300
"""Stands in for a longer time of 0, so that nothing is divided by it."""


def power_norm(left: Floats | float, right: Floats | float, order: Floats | float) -> Floats:
    """(left^p + right^p)^(1/p), shape as broadcast; scaled by the larger, so that no power over- or underflows.

    Args:
        left: not negative.
        right: not negative.
        order: p of at least 1; infinite gives the larger.
    """
    larger = np.maximum(left, right)
    ratio = np.minimum(left, right) / np.maximum(larger, _LEAST)
    return np.asarray(larger * (1.0 + ratio**order) ** (1.0 / order))
