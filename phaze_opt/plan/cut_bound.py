"""Bounds from below on a step over all cuts of its stages, in closed form. Kernels; numba is loaded with this module.

Let S be the sum of the stages' loads, M the slowest of them, i its stage, ``before`` and ``behind`` what lies before
and behind it. The step takes before + m M + waits at least, and ``before`` is at most i M. With many micro-batches
(m > p - i) the two waits are 2 behind - (p - 1 - i) M together at least, so that the step takes (m - p - 1) M + 2 S.
With fewer, its one wait is behind - (m - 1) M / 2 at least, so that the step takes S + (m - 1) M / 2. The least S and M
bound all cuts.
"""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled

Floats = NDArray[np.float64]
ROUNDING = 1.0 - 1e-12
"""A bound stays below what it bounds though both are rounded."""


@compiled
def pipeline_bound_s(
    total_s: float, slowest_s: float, num_stages: float, num_micro_batches: float, interleave: float
) -> float:
    """Least time of micro-batches and fill over all cuts, s.

    Args:
        total_s: least sum of the stages' loads S.
        slowest_s: least slowest load.
        num_stages: p.
        num_micro_batches: m.
        interleave: model chunks a stage v; above 1 the fill is the sum of the other stages divided by v.
    """
    p, m = num_stages, num_micro_batches
    top = max(slowest_s, total_s / p)
    if interleave > 1.0:
        return float(ROUNDING * (m * top + (total_s - top) / interleave))
    # Rises with the slowest load where m > p; elsewhere it is least where both of its branches meet.
    many = max(m * top, (m - p - 1.0) * top + 2.0 * total_s)
    if m < p + 1.0:
        many = m * max(top, 2.0 * total_s / (p + 1.0))
    few = max(m * top, total_s + (m - 1.0) * top / 2.0)
    bound = many if m > p else min(many, few)
    return float(ROUNDING * min(bound, (m - 1.0) * top + total_s))


@compiled
def least_slowest_s(  # noqa: PLR0917 - kernels take no keywords
    first_s: float, block_s: float, last_s: float, between_s: float, num_blocks: int, num_stages: int
) -> float:
    """Least slowest load over all cuts of a chain, every block the same, s: at least, by rounding.

    The first, the last and the other stages take ``first_s``, ``last_s`` and ``between_s`` beside their blocks. The
    next value that a stage's load can have is tried until the stages hold all blocks.
    """
    whole = first_s + num_blocks * block_s + last_s + max(0, num_stages - 2) * between_s
    if num_stages == 1 or block_s <= 0.0:
        return whole / num_stages
    starts = (first_s, last_s, between_s)
    between = between_s + block_s if num_stages > 2 else 0.0  # noqa: PLR2004
    top = max(first_s, last_s, whole / num_stages, between)
    for _ in range(4 * num_blocks):
        reached = top / ROUNDING
        first, last = np.floor((reached - first_s) / block_s), np.floor((reached - last_s) / block_s)
        if first + last + (num_stages - 2) * np.floor((reached - between_s) / block_s) >= num_blocks:
            break
        following = np.inf
        for start in starts:
            following = min(following, start + block_s * (np.floor((reached - start) / block_s) + 1.0))
        top = following
    return float(ROUNDING * top)
