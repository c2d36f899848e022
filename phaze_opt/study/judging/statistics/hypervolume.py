"""Exact hypervolume in one, two and three dimensions, and its growth over a search."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MAX_DIMENSIONS = 3


def hypervolume(gains: NDArray[np.float64]) -> float:
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


def normalise_gains(
    values: NDArray[np.float64], *, worst: NDArray[np.float64], best: NDArray[np.float64]
) -> NDArray[np.float64]:
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


def hypervolume_curve(gains: Sequence[NDArray[np.float64] | None], *, num_objectives: int) -> NDArray[np.float64]:
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
