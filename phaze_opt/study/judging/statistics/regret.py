"""Simple regret over a search, and what it costs to bring it down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def regret_curve(values: Sequence[float | None], best: float) -> NDArray[np.float64]:
    """Relative simple regret after each evaluation, ``1 - best so far / best``.

    Args:
        values: of a maximised, positive objective, in the order of the evaluations; None where infeasible.
        best: what regret is against.

    Returns:
        Shape (num_evaluations,); 1 while nothing feasible was found, or if ``best`` is not positive. Never negative:
        rounding in ``best`` must not reward a search.
    """
    gains = np.array([-np.inf if value is None else value for value in values], dtype=np.float64)
    so_far = np.maximum.accumulate(gains) if len(gains) else gains
    if best <= 0.0:
        return np.ones(len(gains))
    return np.clip(1.0 - np.maximum(so_far, 0.0) / best, 0.0, 1.0)


def evaluations_to(curve: NDArray[np.float64], target: float) -> int | None:
    """Evaluations until the curve was at most the target; None if it never was."""
    reached = np.flatnonzero(curve <= target)
    return int(reached[0]) + 1 if len(reached) else None


def area_under_curve(curve: NDArray[np.float64], budget: int) -> float:
    """Mean of the curve over a budget; a search that ended early keeps its last value, an empty one is worth 1."""
    if len(curve) == 0:
        return 1.0
    missing = max(0, budget - len(curve))
    return float((curve.sum() + missing * curve[-1]) / (len(curve) + missing))


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value with half of the weight on either side; the mean of two if exactly half lies below the upper one.

    Raises:
        ValueError: no value is given.
    """
    ordered, below = _ordered(values, weights)
    half = 0.5 * below[-1]
    upper = int(np.searchsorted(below, half * (1.0 - 1e-12)))
    is_split = abs(below[upper] - half) <= 1e-12 * below[-1] and upper + 1 < len(ordered)
    return float(0.5 * (ordered[upper] + ordered[upper + 1]) if is_split else ordered[upper])


def half_reached_by(values: Sequence[float], weights: Sequence[float], *, total: float) -> float | None:
    """The least value by which half of a total weight has arrived; None if less than half ever arrives.

    This is the median of data of which those that never arrive are unknown but large.

    Args:
        values: of those that arrived.
        weights: of those that arrived.
        total: weight of all, arrived or not.
    """
    if not len(values):
        return None
    ordered, below = _ordered(values, weights)
    arrived = np.flatnonzero(below >= 0.5 * total * (1.0 - 1e-12))
    return float(ordered[arrived[0]]) if len(arrived) else None


def _ordered(values: Sequence[float], weights: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values in ascending order and the weight up to each."""
    if not len(values):
        message = "the median of nothing is undefined"
        raise ValueError(message)
    array, order = np.asarray(values, dtype=np.float64), np.argsort(values, kind="stable")
    return array[order], np.cumsum(np.asarray(weights, dtype=np.float64)[order])
