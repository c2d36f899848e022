"""Simple regret over a search, what it costs to bring it down, and of several objectives the exact hypervolume."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from phaze_opt.record.arrays import Floats

MAX_DIMENSIONS = 3
"""Objectives that a hypervolume is computed of."""


def regret_curve(values: Sequence[float | None], best: float) -> Floats:
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


def evaluations_to(curve: Floats, target: float) -> int | None:
    """Evaluations until the curve was at most the target; None if it never was."""
    reached = np.flatnonzero(curve <= target)
    return int(reached[0]) + 1 if len(reached) else None


def area_under_curve(curve: Floats, budget: int) -> float:
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


def _ordered(values: Sequence[float], weights: Sequence[float]) -> tuple[Floats, Floats]:
    """Values in ascending order and the weight up to each."""
    if not len(values):
        message = "the median of nothing is undefined"
        raise ValueError(message)
    array, order = np.asarray(values, dtype=np.float64), np.argsort(values, kind="stable")
    return array[order], np.cumsum(np.asarray(weights, dtype=np.float64)[order])


def hypervolume(gains: Floats) -> float:
    """Volume that points dominate above the origin, all objectives maximised.

    Three dimensions are swept from the highest third coordinate down, as in Fonseca, Paquete and Lopez-Ibanez, "An
    improved dimension-sweep algorithm for the hypervolume indicator" (CEC 2006): between two levels lies the
    two-dimensional staircase of the points above times the difference in level.

    Args:
        gains: shape (num_points, num_objectives), one to three objectives; a point that is not above the origin in
            every objective dominates nothing.

    Raises:
        ValueError: more than three objectives.
    """
    rows = np.asarray(gains, dtype=np.float64)
    if rows.size == 0:
        return 0.0
    num_objectives = rows.shape[1]
    if num_objectives > MAX_DIMENSIONS:
        message = f"{num_objectives} objectives: the hypervolume is computed for one to {MAX_DIMENSIONS}"
        raise ValueError(message)
    rows = rows[(rows > 0.0).all(axis=1)]
    if len(rows) == 0:
        return 0.0
    if num_objectives == 1:
        return float(rows.max())
    # Two objectives are three of which the third is always 1.
    padded = rows if num_objectives == MAX_DIMENSIONS else np.column_stack([rows, np.ones(len(rows))])
    ordered = padded[np.argsort(-padded[:, 2], kind="stable")]
    stairs, volume = _Staircase(), 0.0
    levels = [*ordered[:, 2].tolist(), 0.0]
    for (first, second, level), below in zip(ordered.tolist(), levels[1:], strict=True):
        stairs.add(first, second)
        volume += stairs.area * (level - below)
    return volume


class _Staircase:
    """The area that points dominate in two dimensions, kept up to date as points come."""

    def __init__(self) -> None:
        self.area = 0.0
        self._firsts: list[float] = []
        self._seconds: list[float] = []

    def add(self, first: float, second: float) -> None:
        """Add a point; firsts ascend and seconds descend strictly along the staircase."""
        firsts, seconds = self._firsts, self._seconds
        # Steps from `start` on are no better in either objective and go; the one at `right` may dominate the point.
        right = bisect_left(firsts, first)
        if right < len(firsts) and seconds[right] >= second:
            return
        stop = right + 1 if right < len(firsts) and firsts[right] == first else right
        start = right
        while start > 0 and seconds[start - 1] <= second:
            start -= 1
        self.area += self._gain(first, second, start=start, stop=stop)
        firsts[start:stop] = [first]
        seconds[start:stop] = [second]

    def _gain(self, first: float, second: float, *, start: int, stop: int) -> float:
        """Area won over the steps ``start:stop`` that the point replaces, and over the step that follows them."""
        left = self._firsts[start - 1] if start > 0 else 0.0
        heights = [*self._seconds[start:stop], self._seconds[stop] if stop < len(self._seconds) else 0.0]
        edges = [*self._firsts[start:stop], first]
        gain = 0.0
        for edge, height in zip(edges, heights, strict=True):
            gain += (edge - left) * (second - height)
            left = edge
        return gain


def normalise_gains(values: Floats, *, worst: Floats, best: Floats) -> Floats:
    """Objectives mapped so that 0 is the worst known value of each and 1 the best; 1 where both are the same.

    Args:
        values: shape (num_points, num_objectives), in the units of the objectives.
        worst: worst known value of each, shape (num_objectives,).
        best: best known value of each, same shape; the direction of an objective is that from worst to best.
    """
    width = best - worst
    is_flat = width == 0.0
    shares = (values - worst) / np.where(is_flat, 1.0, width)
    return np.where(is_flat, 1.0, shares)


def hypervolume_curve(gains: Sequence[Floats | None], *, num_objectives: int) -> Floats:
    """Hypervolume after each evaluation.

    Args:
        gains: normalised objectives of each evaluation, shape (num_objectives,); None where infeasible.
        num_objectives: of each.

    Returns:
        Shape (num_evaluations,), never falling.
    """
    front = np.empty((0, num_objectives))
    curve, volume = np.zeros(len(gains)), 0.0
    for index, gain in enumerate(gains):
        if gain is not None and not (front >= gain).all(axis=1).any():
            front = np.vstack([front[~(front <= gain).all(axis=1)], gain])
            volume = max(volume, hypervolume(front))
        curve[index] = volume
    return curve
