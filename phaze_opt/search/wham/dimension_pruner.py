"""The dimension pruner: from the largest array down, one axis at a time, until the metric has worsened too often.

Paper: WHAM's pruner with its hysteresis levels. Deviations: shapes wait in the order of their parent's score, so that a
search that runs out of probes has seen the promising ones; a shape reached on two ways keeps the more hopeful one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

Shape = tuple[int, int]
"""Positions on the axes of array width and depth."""


def prune_dimensions(largest: Shape, score: Callable[[Shape], float | None], *, hysteresis: int) -> dict[Shape, float]:
    """Scores of the shapes that the pruner visits.

    Args:
        largest: where to begin.
        score: metric of the best design of a shape, larger is better; minus infinity if it has none; None if it
            cannot be told any more.
        hysteresis: levels in a row that the metric may worsen before the subtree is dropped.
    """
    scores: dict[Shape, float] = {}
    reached: dict[Shape, int] = {}
    queue = [(-math.inf, 0, largest, -math.inf, 0)]
    serial = 1
    while queue:
        _, _, shape, best, worsened = heapq.heappop(queue)
        if reached.get(shape, hysteresis + 1) <= worsened:
            continue
        reached[shape] = worsened
        if shape not in scores:
            value = score(shape)
            if value is None:
                return scores
            scores[shape] = value
        # A shape without any feasible design says nothing about smaller ones.
        levels = worsened + 1 if scores[shape] < best else 0
        if levels > hysteresis:
            continue
        best = max(best, scores[shape])
        for child in ((shape[0] - 1, shape[1]), (shape[0], shape[1] - 1)):
            if min(child) >= 0:
                heapq.heappush(queue, (-scores[shape], serial, child, best, levels))
                serial += 1
    return scores
