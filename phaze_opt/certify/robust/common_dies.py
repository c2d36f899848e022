"""Min-max regret over dies: only what could have the least largest regret is bounded die by die; the answer is lean.

A die that is none in some world has a regret of 1 there, so the answer is among the common ones, and on their frontier:
with more buffer, rate or HBM no regret rises. The best common die of a world bounds all others by its regret there; the
worst world of the best known die is looked at next, until that is a world that was looked at. What then may still have
a smaller largest regret is bounded by itself in one world after the other.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phaze_opt.certify.leanest import LEAN_ORDER, SAME, first_that
from phaze_opt.certify.robust.least_regret import lower_regrets
from phaze_opt.certify.robust.ledger import Ledger
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import Positions

MOST_PROVED = 12
"""Worlds whose best common die is proved."""


def bound_common(ledger: Ledger, candidates: Sequence[int], *, tolerance: float) -> tuple[int, ...]:
    """Bound the common dies as far as `least_regret.find_minimax` asks; the candidates and the dies found on the way.

    Args:
        ledger: every world proved and the candidates evaluated in all of them.
        candidates: designs.
        tolerance: absolute, of regrets.
    """
    found, proved = list(candidates), set[int]()
    rows = np.flatnonzero(ledger.optimum() > 0.0)
    if not ledger.problem.has_frontier or not len(rows) or not len(ledger.common):
        return tuple(found)
    row = int(rows[0])
    while row not in proved and len(proved) < MOST_PROVED:
        proved.add(row)
        best = ledger.prove_common(row, tuple(found))
        if best >= 0 and best not in found:
            found.append(best)
            ledger.evaluate_all([best])
        row = int(rows[int(np.argmax(_regrets(ledger, _leader(ledger, found))))])
    _bound_rivals(ledger, _leader(ledger, found), tolerance=tolerance)
    return tuple(found)


def leanest_alike(ledger: Ledger, index: int) -> int:
    """Of a die the least rate, stacks and buffer that lose nothing in any world, one after the other."""
    space, grid = ledger.problem.space, ledger.designs
    if not ledger.problem.has_frontier or index < 0:
        return index
    assert isinstance(grid, Grid)
    positions = space.positions(grid.point(index))

    def keeps(other: Positions) -> bool:
        return _is_as_good(ledger, grid.index(space.point_at(other)), index)

    for name in dict.fromkeys(name for name in LEAN_ORDER if getattr(space.axes, name)):
        rising = [replace(positions, **{name: place}) for place in range(getattr(positions, name) + 1)]
        positions = first_that(rising, keeps)
    return grid.index(space.point_at(positions))


def _is_as_good(ledger: Ledger, index: int, than: int) -> bool:
    """Whether a design attains what another does in every world; the first world decides most."""
    every = range(len(ledger.worlds))
    for rows in (every[:1], every[1:]):
        ledger.evaluate_pairs([(row, index) for row in rows])
        if any(ledger.worth(row, index).value < ledger.worth(row, than).value * (1.0 - SAME) for row in rows):
            return False
    return True


def _regrets(ledger: Ledger, index: int) -> list[float]:
    """Of a design in every world with a feasible one."""
    optimum = ledger.optimum()
    return [
        1.0 - ledger.worth(row, index).value / float(best) for row, best in enumerate(optimum.tolist()) if best > 0.0
    ]


def _leader(ledger: Ledger, found: Sequence[int]) -> int:
    """The design of least largest regret; the first of equal ones."""
    return min(found, key=lambda index: max(_regrets(ledger, index)))


def _bound_rivals(ledger: Ledger, leader: int, *, tolerance: float) -> None:
    """Bound by themselves the dies that could beat a design, where it does worst first."""
    optimum = ledger.optimum()
    rows, regrets = np.flatnonzero(optimum > 0.0), _regrets(ledger, leader)
    for place in np.argsort(-np.array(regrets), kind="stable").tolist():
        lower = lower_regrets(ledger.upper[rows], optimum[rows])
        ledger.sharpen_common(int(rows[place]), np.flatnonzero(lower <= max(regrets) - tolerance))
