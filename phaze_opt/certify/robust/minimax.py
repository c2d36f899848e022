"""The design whose largest regret over the worlds is least, certified over the whole space.

With b(p, w) an upper bound on what point p is worth in world w and v*(w) what the best design found attains there,

    regret(p, w) = 1 - value(p, w) / v*(w)  >=  1 - b(p, w) / v*(w)
    max_w regret(p, w)  >=  LB(p) = max_w (1 - b(p, w) / v*(w))

so a point whose LB exceeds the least largest regret found cannot beat it. The point of least LB is evaluated in the
one world where its bound promises the most regret; the exact worth takes the bound's place, and the point goes back
among the others. A point that stays in front until it is evaluated in every world is the answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.robust.ledger import Ledger

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MinimaxSearch:
    """What `find_minimax` found.

    Attributes:
        index: the point; -1 if no world has a feasible one.
        regret: its largest regret.
        regret_lower: every point of the space has at least this one.
    """

    index: int
    regret: float
    regret_lower: float


def find_minimax(ledger: Ledger, candidates: Sequence[int], *, tolerance: float) -> MinimaxSearch:
    """The point of least largest regret, to within a tolerance on the regret.

    Args:
        ledger: every world proved.
        candidates: points worth a full evaluation at once: the better they are, the fewer others are looked at.
        tolerance: absolute, as regrets are shares; 0 looks at every point that could equal the best, too.
    """
    while True:
        optimum = ledger.optimum()
        rows = [int(row) for row in np.flatnonzero(optimum > 0.0)]
        if not rows:
            return MinimaxSearch(-1, 0.0, 0.0)
        found = _close(ledger, rows, optimum, candidates, tolerance=tolerance)
        if found is not None:
            return found


def lower_regrets(upper: Floats, optimum: Floats) -> Floats:
    """LB(p): shape (num_points,); worlds in rows, all of a positive optimum."""
    worst: Floats = np.zeros(upper.shape[1])
    for bounds, best in zip(upper, optimum, strict=True):
        np.maximum(worst, 1.0 - bounds / best, out=worst)
    return worst


def _close(
    ledger: Ledger, rows: Sequence[int], optimum: Floats, candidates: Sequence[int], *, tolerance: float
) -> MinimaxSearch | None:
    """The search against fixed optima; None as soon as an evaluation beats one of them."""
    best: tuple[float, tuple[float, float, int]] | None = None
    for index in candidates:
        regret = _largest_regret(ledger, rows, optimum, index)
        if regret is None:
            return None
        key = (regret, ledger.rank(0, index))
        best = key if best is None else min(best, key)
    bounds = lower_regrets(ledger.upper[rows], optimum[rows])
    # A regret of 1 cannot be beaten by a point that is infeasible somewhere: those need no look.
    heap = [(bound, index) for index, bound in enumerate(bounds.tolist()) if bound < 1.0]
    heapq.heapify(heap)
    while heap and (best is None or heap[0][0] <= best[0] - tolerance):
        bound, index = heapq.heappop(heap)
        row = _next_world(ledger, rows, optimum, index)
        if row is None:  # known everywhere: what keeps its bound low is the gap of its schedules
            key = (
                max(1.0 - ledger.worth(row, index).value / float(optimum[row]) for row in rows),
                ledger.rank(0, index),
            )
            best = key if best is None else min(best, key)
            continue
        if ledger.worth(row, index).value > optimum[row]:
            return None
        raised = max(bound, 1.0 - float(ledger.upper[row, index]) / float(optimum[row]))
        heapq.heappush(heap, (raised, index))
    if best is None:
        return MinimaxSearch(-1, 0.0, 0.0)
    least = float(lower_regrets(ledger.upper[rows], optimum[rows]).min())
    return MinimaxSearch(best[1][2], best[0], min(least, best[0]))


def _largest_regret(ledger: Ledger, rows: Sequence[int], optimum: Floats, index: int) -> float | None:
    """Of one point over all worlds; None if it beats an optimum."""
    regrets = [1.0 - ledger.worth(row, index).value / float(optimum[row]) for row in rows]
    return None if min(regrets) < 0.0 else max(regrets)


def _next_world(ledger: Ledger, rows: Sequence[int], optimum: Floats, index: int) -> int | None:
    """Of the worlds where a point is not known exactly, that which promises the most regret; None if there is none."""
    open_rows = [row for row in rows if index not in ledger.known[row]]
    return max(open_rows, key=lambda row: 1.0 - float(ledger.upper[row, index]) / float(optimum[row]), default=None)
