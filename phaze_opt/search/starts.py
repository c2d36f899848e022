"""Starting points: the same for every strategy of one seed."""

from __future__ import annotations

import numpy as np

from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace

_STREAM = 0x57A7
"""Keeps the draw apart from the strategies' own, which start from the same seed."""


def draw_start_points(space: SearchSpace, *, count: int, seed: int) -> tuple[DesignPoint, ...]:
    """Distinct kept points, each equally likely; the first ``n`` of a larger draw are the smaller draw.

    Args:
        space: the points.
        count: how many; the whole space at most.
        seed: the only source of randomness.
    """
    rng = np.random.default_rng([seed, _STREAM])
    chosen: dict[int, None] = {}
    while len(chosen) < min(count, space.size):
        chosen.setdefault(int(rng.integers(space.size)))
    return tuple(space.point(index) for index in chosen)
