"""The least regret, by bounds: of all designs in their worst world, and of those that keep one parameter in each.

The design whose largest regret over the worlds is least is certified over the whole space.

With b(p, w) an upper bound on what point p is worth in world w and v*(w) what the best design found attains there,

    regret(p, w) = 1 - value(p, w) / v*(w)  >=  1 - b(p, w) / v*(w)
    max_w regret(p, w)  >=  LB(p) = max_w (1 - b(p, w) / v*(w))

so a point whose LB exceeds the least largest regret found cannot beat it. The point of least LB is evaluated in the
one world where its bound promises the most regret; the exact worth takes the bound's place, and the point goes back
among the others. A point that stays in front until it is evaluated in every world is the answer.

Min-max regret over dies: only what could have the least largest regret is bounded die by die; the answer is lean.

A die that is none in some world has a regret of 1 there, so the answer is among the common ones, and on their frontier:
with more buffer, rate or HBM no regret rises. The best common die of a world bounds all others by its regret there; the
worst world of the best known die is looked at next, until that is a world that was looked at. What then may still have
a smaller largest regret is bounded by itself in one world after the other.
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.certify.best_first import PROOF_SLACK
from phaze_opt.certify.leanest import LEAN_ORDER, SAME, first_that
from phaze_opt.certify.robust.ledger import Ledger, OwnRows
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import Positions

MAX_ROUNDS = 12
"""Points evaluated for one parameter in one world; what is still open then stays an interval."""
SHARPENED_AT_ONCE = 256
"""Rows of one parameter in one world that are bounded by themselves at a time."""


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


def find_minimax(
    ledger: Ledger, candidates: Sequence[int], *, tolerance: float, nominal_within: float = math.inf
) -> MinimaxSearch:
    """The point of least largest regret, to within a tolerance on the regret.

    Args:
        ledger: every world proved.
        candidates: points worth a full evaluation at once: the better they are, the fewer others are looked at.
        tolerance: absolute, as regrets are shares; 0 looks at every point that could equal the best, too.
        nominal_within: only points that come so near the optimum of world 0, relative; infinite for all points.
    """
    while True:
        optimum = ledger.optimum()
        rows = [int(row) for row in np.flatnonzero(optimum > 0.0)]
        if not rows:
            return MinimaxSearch(-1, 0.0, 0.0)
        least = 0.0 if math.isinf(nominal_within) else float(optimum[0]) * (1.0 - nominal_within)
        try:
            return _WholeSearch(ledger, rows, optimum, tolerance, least).run(candidates)
        except _OptimumBeatenError:
            continue


def lower_regrets(upper: Floats, optimum: Floats) -> Floats:
    """LB(p): shape (num_points,); worlds in rows, all of a positive optimum."""
    worst: Floats = np.zeros(upper.shape[1])
    for bounds, best in zip(upper, optimum, strict=True):
        np.maximum(worst, 1.0 - bounds / best, out=worst)
    return worst


class _OptimumBeatenError(Exception):
    """An evaluation beat the best design known in its world: regrets are to be counted anew."""


@dataclass(slots=True)
class _WholeSearch:
    """The search against fixed optima.

    Attributes:
        ledger: worths and bounds.
        rows: worlds with a feasible point.
        optimum: of every world.
        tolerance: on the regret.
        least: of the nominal value; 0 where any will do.
    """

    ledger: Ledger
    rows: Sequence[int]
    optimum: Floats
    tolerance: float
    least: float
    _best: tuple[float, tuple[float, float, int]] | None = None

    def run(self, candidates: Sequence[int]) -> MinimaxSearch:
        """Candidates first, then the others in the order of their bounds."""
        for index in candidates:
            if self._worth(0, index) >= self.least:
                self._consider(index)
        heap = self._heap()
        regret_lower = 1.0
        while heap:
            bound, index = heapq.heappop(heap)
            if self._best is not None and bound > self._best[0] - self.tolerance:
                regret_lower = min(regret_lower, bound)
                break
            row = self._next_world(index)
            if row is None:  # known everywhere: what keeps its bound low is the gap of its schedules
                self._consider(index)
                regret_lower = min(regret_lower, bound)
            elif self._worth(row, index) >= (self.least if row == 0 else 0.0):
                heapq.heappush(heap, (max(bound, self._lower(row, index)), index))
        if self._best is None:
            return MinimaxSearch(-1, 0.0, 0.0)
        return MinimaxSearch(self._best[1][2], self._best[0], min(regret_lower, self._best[0]))

    def _heap(self) -> list[tuple[float, int]]:
        """LB of every point that may be near enough to the nominal optimum.

        A regret of 1 cannot be beaten by a point that is infeasible somewhere: those need no look.
        """
        bounds = lower_regrets(self.ledger.upper[self.rows], self.optimum[self.rows])
        may_be = np.flatnonzero((self.ledger.upper[0] >= self.least) & (bounds < 1.0))
        heap = [(float(bounds[place]), int(self.ledger.common[place])) for place in may_be]
        heapq.heapify(heap)
        return heap

    def _consider(self, index: int) -> None:
        """Take a point for the best if it is."""
        regret = max(1.0 - self._worth(row, index) / float(self.optimum[row]) for row in self.rows)
        key = (regret, self.ledger.rank(0, index))
        self._best = key if self._best is None else min(self._best, key)

    def _next_world(self, index: int) -> int | None:
        """Of the worlds where a point is not known exactly, that which promises the most regret; None if none is left.

        The nominal one comes first where a point's place there decides whether it counts.
        """
        open_rows = [row for row in self.rows if index not in self.ledger.known[row]]
        if self.least > 0.0 and 0 in open_rows:
            return 0
        return max(open_rows, key=lambda row: self._lower(row, index), default=None)

    def _lower(self, row: int, index: int) -> float:
        """Regret of a point in a world, by its bound."""
        return 1.0 - self.ledger.bound(row, index) / float(self.optimum[row])

    def _worth(self, row: int, index: int) -> float:
        """Value of a point in a world."""
        value = self.ledger.worth(row, index).value
        if value > self.optimum[row]:
            raise _OptimumBeatenError
        return value


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """Points of one value on one axis.

    Attributes:
        row: world.
        axis: name.
        is_in: of every row of the world's proof, shape (num_rows,).
    """

    row: int
    axis: str
    is_in: Flags


@dataclass(frozen=True, slots=True)
class KeptCost:
    """The regret of the best design within a restriction.

    Attributes:
        regret: of the best one found: at most so much is lost.
        regret_lower: by bounds: at least so much is lost.
    """

    regret: float
    regret_lower: float


def measure_costs(
    ledger: Ledger, restrictions: Iterable[Restriction], *, tolerance: float
) -> dict[tuple[int, str], KeptCost]:
    """Costs by world and axis, each to within the tolerance if `MAX_ROUNDS` evaluations are enough.

    In the order of bounds, all restrictions side by side, one point of each a round: a round is a batch of work.
    """
    slack = max(tolerance, PROOF_SLACK)
    searches = [_KeptSearch(ledger, restriction, slack) for restriction in restrictions]
    for _ in range(MAX_ROUNDS):
        _sharpen(ledger, searches)
        picked = [(search.restriction.row, search.next_point()) for search in searches]
        pairs = [(row, index) for row, index in picked if index is not None]
        if not pairs:
            break
        ledger.evaluate_pairs(pairs)
    return {(search.restriction.row, search.restriction.axis): search.cost() for search in searches}


def _sharpen(ledger: Ledger, searches: Sequence["_KeptSearch"]) -> None:
    """Bound rows by themselves until none leads its search by the bound of its group."""
    while True:
        wanted: dict[int, set[int]] = {}
        for search in searches:
            wanted.setdefault(search.restriction.row, set()).update(search.shared_rows())
        asked = {row: np.array(sorted(places), dtype=np.int64) for row, places in wanted.items() if places}
        if not asked:
            return
        ledger.sharpen_own(asked)


@dataclass(slots=True)
class _KeptSearch:
    """The best point of one restriction, by bounds."""

    ledger: Ledger
    restriction: Restriction
    slack: float

    def next_point(self) -> int | None:
        """The point of the largest bound, unless what is known is near enough to it or to the optimum."""
        best, bound, place = self._standing()
        if self._is_settled(best, bound):
            return None
        index = int(self._own.indices[place])
        return None if index in self.ledger.known[self.restriction.row] else index

    def shared_rows(self) -> list[int]:
        """Rows to be bounded by themselves: those of the largest bounds, if the largest of all is of a group."""
        best, bound, place = self._standing()
        if self._is_settled(best, bound) or not self._own.is_shared[place]:
            return []
        rows = np.flatnonzero(self.restriction.is_in & self._own.is_shared & (self._own.upper > best))
        largest = rows[np.argsort(-self._own.upper[rows], kind="stable")][:SHARPENED_AT_ONCE]
        return [int(row) for row in largest]

    def cost(self) -> KeptCost:
        """The regret of the best point known, and of the largest bound."""
        best, bound, _ = self._standing()
        optimum = self._optimum()
        regret = 1.0 - best / optimum
        return KeptCost(regret, min(regret, max(0.0, 1.0 - bound / optimum)))

    @property
    def _own(self) -> OwnRows:
        return self.ledger.own[self.restriction.row]

    def _is_settled(self, best: float, bound: float) -> bool:
        is_near = best >= self._optimum() * (1.0 - self.slack)
        return is_near or max(bound, best) <= best * (1.0 + self.slack)

    def _standing(self) -> tuple[float, float, int]:
        """Best value known, largest bound, and the row that has it."""
        known = self.ledger.known[self.restriction.row]
        places = ((self._own.place(index), worth.value) for index, worth in known.items())
        best = max((value for place, value in places if place >= 0 and self.restriction.is_in[place]), default=0.0)
        bounds = np.where(self.restriction.is_in, self._own.upper, 0.0)
        place = int(bounds.argmax())
        return best, float(bounds[place]), place

    def _optimum(self) -> float:
        return float(self.ledger.optimum()[self.restriction.row])


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
