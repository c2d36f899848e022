"""Effect sizes of two samples: how often one is better, whatever the scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def vargha_delaney(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Probability that a value of ``first`` is lower (better) than one of ``second``, ties counted half.

    Vargha and Delaney, "A critique and improvement of the CL common language effect size statistics" (2000), for a
    quantity where less is better: 1 is always better, 0.5 no difference.
    """
    difference = np.asarray(second)[None, :] - np.asarray(first)[:, None]
    return float((np.count_nonzero(difference > 0) + 0.5 * np.count_nonzero(difference == 0)) / difference.size)


def paired_superiority(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Share of blocks in which ``first`` is lower (better), ties counted half; the paired form of A."""
    difference = np.asarray(second) - np.asarray(first)
    return float((np.count_nonzero(difference > 0) + 0.5 * np.count_nonzero(difference == 0)) / difference.size)


def effect_word(effect: float) -> str:
    """The usual word for a Vargha-Delaney A: their thresholds 0.56, 0.64 and 0.71 on the better side."""
    size = max(effect, 1.0 - effect)
    if size < 0.56:
        return "negligible"
    if size < 0.64:
        return "small"
    return "medium" if size < 0.71 else "large"
