"""What a front of several goals asks of a proof: throughput is bounded, the other goals are known of every point.

A point is off the front, within a tolerance, where a solved point is no worse in every goal that is known and attains
its throughput's upper bound over one and the tolerance. So for each point one number decides: the most that solved
points attain which are no worse in the goals that are known. With a single goal that is the incumbent's value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.objective.goals import FrontAxis
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled, inlined
from phaze_opt.record.pareto import undominated

NEAR = 1e-9
"""Relative difference of two values of a goal that are the same: rounding must not put a point on a front."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownGoals:
    """The goals of a front that are known of every point.

    Attributes:
        values: to be minimised, a column each, shape (num_points, num_known).
        has_throughput: whether throughput is a goal too; else it only counts whether a point attains any.
    """

    values: Floats
    has_throughput: bool

    @classmethod
    def of(cls, axes: Sequence[FrontAxis], *, area_mm2: Floats, tdp_w: Floats, cost_usd: Floats) -> "KnownGoals":
        """Those among the axes of a front."""
        columns = {FrontAxis.TDP: tdp_w, FrontAxis.AREA: area_mm2, FrontAxis.COST: cost_usd}
        values = np.column_stack([columns[axis] for axis in axes if axis in columns])
        return cls(values, FrontAxis.THROUGHPUT in axes)

    def worth(self, rates: Floats) -> Floats:
        """What throughputs count for: themselves, or 1 where there is any."""
        return rates if self.has_throughput else np.asarray(rates > 0.0, dtype=np.float64)

    def no_better_than(self, point: Floats) -> Flags:
        """Points that one with these known values is no worse than, shape (num_points,)."""
        return np.asarray((self.values * (1.0 + NEAR) >= point).all(axis=1))

    def on_front(self, rates: Floats) -> Ints:
        """Points on the front of those that attain something, in their order; of equal ones the first.

        Args:
            rates: attained; 0 where nothing is known to be; shape (num_points,).
        """
        solved = np.flatnonzero(rates > 0.0)
        costs = np.column_stack([self.values[solved], -self.worth(rates[solved])])
        return np.asarray(solved[undominated(costs, NEAR)], dtype=np.int64)

    def num_tied(self, places: Ints, rates_upper: Floats, *, least: Floats) -> list[int]:
        """Of each of some points the others of equal known goals whose bound leaves them as good.

        Args:
            places: of points of the front.
            rates_upper: bounds of all points.
            least: throughput of each of ``places`` that is as good.
        """
        order = np.argsort(self.values[:, 0], kind="stable")
        rising, own = self.values[order, 0], self.values[places, 0]
        # Equal points are among those whose first goal is near.
        first, last = (np.searchsorted(rising, own * (1.0 + share * NEAR)) for share in (-2.0, 2.0))
        wanted = least if self.has_throughput else np.full(len(places), np.nextafter(0.0, 1.0))
        ties = []
        for number, place in enumerate(places.tolist()):
            near = order[first[number] : last[number]]
            is_equal = (np.abs(self.values[near] - self.values[place]) <= NEAR * self.values[place]).all(axis=1)
            ties.append(int((is_equal & (rates_upper[near] >= wanted[number])).sum()) - 1)
        return ties


@dataclass(slots=True, eq=False)
class Reach:
    """What solved points attain of each point's place: the most of those no worse in the known goals.

    Attributes:
        known: goals of all points.
        attained: by point, shape (num_points,); 0 where nothing is solved that is no worse.
    """

    known: KnownGoals
    attained: Floats

    @classmethod
    def of(cls, known: KnownGoals) -> "Reach":
        """Before anything is solved."""
        return cls(known, np.zeros(len(known.values)))

    def take(self, point: Floats, rate: float) -> None:
        """Take in a solved point by its known values and its throughput."""
        here = self.known.no_better_than(point)
        self.attained[here] = np.maximum(self.attained[here], rate)

    def limits(self, slack: float) -> Floats:
        """Throughput up to which each point is off the front; infinite where it need not be known."""
        if self.known.has_throughput:
            return self.attained * (1.0 + slack)
        return np.where(self.attained > 0.0, np.inf, 0.0)

    def gap(self, rates_upper: Floats) -> float:
        """Least tolerance by which every point is off the front or on it."""
        is_open = rates_upper > 0.0
        if not is_open.any():
            return 0.0
        attained, upper = self.known.worth(self.attained[is_open]), self.known.worth(rates_upper[is_open])
        if (attained == 0.0).any():
            return float("inf")
        return max(0.0, float((upper / attained).max()) - 1.0)


def staircase(upper: Floats, known: Floats, *, most: int) -> Ints:
    """Indices of points, the highest bound first, that no earlier of them is as good as in every known goal.

    Args:
        upper: bounds on throughput, shape (num_points,).
        known: goals to be minimised, shape (num_points, num_known).
        most: at most so many.
    """
    order = np.lexsort((*known.T[::-1], -upper))
    return np.asarray(order[front_of(known[order], NEAR, most)], dtype=np.int64)


@inlined
def _is_no_worse(one: Floats, other: Floats, near: float) -> bool:
    is_worse = False
    for goal in range(len(one)):
        is_worse = is_worse or one[goal] > other[goal] * (1.0 + near)
    return not is_worse


@compiled
def front_of(known: Floats, near: float, most: int) -> Ints:
    """Indices on the front of designs that stand with the largest worth first and, of equal worth, the least known.

    A design is off the front where an earlier one is no worse in every known goal: k_j <= k_i (1 + near).

    Args:
        known: goals to be minimised, shape (num_designs, num_known).
        near: relative difference of goals that are the same.
        most: at most so many, the first ones.
    """
    kept = np.empty(len(known), dtype=np.int64)
    count = 0
    for index in range(len(known)):
        if count == most:
            break
        is_dominated = False
        # Those found last are nearest, so that they dominate most.
        for back in range(count):
            if _is_no_worse(known[kept[count - 1 - back]], known[index], near):
                is_dominated = True
                break
        if not is_dominated:
            kept[count] = index
            count += 1
    return kept[:count]


@compiled
def attained_for(known: Floats, front: Floats, worth: Floats, near: float) -> Floats:
    """The most that designs of a front attain which are no worse than each design; 0 where none is.

    Args:
        known: goals to be minimised, shape (num_designs, num_known).
        front: goals of the designs on the front, the largest worth first, shape (num_front, num_known).
        worth: theirs, falling, shape (num_front,).
        near: relative difference of goals that are the same.
    """
    found = np.zeros(len(known))
    for place in range(len(known)):
        for other in range(len(worth)):
            if _is_no_worse(front[other], known[place], near):
                found[place] = worth[other]
                break
    return found


@compiled
def is_attained(known: Floats, needed: Floats, front: Floats, worth: Floats, near: float) -> Flags:
    """Whether a design of a front that is no worse attains what each design needs.

    Args:
        known: as `attained_for` takes them.
        needed: of each design, shape (num_designs,).
        front: as `attained_for` takes it, like those behind.
        worth: falling.
        near: relative.
    """
    found, rising = np.zeros(len(known), dtype=np.bool_), -worth
    for place in range(len(known)):
        # Those that attain just enough are smallest and coolest: one of them is no worse, mostly, where any is.
        enough = np.searchsorted(rising, -needed[place], side="right")
        for other in range(enough - 1, -1, -1):
            if _is_no_worse(front[other], known[place], near):
                found[place] = True
                break
    return found


def compile_ahead() -> None:
    """Compile all for the arrays of covers: no front of few dies needs them, one of many would wait for them."""
    one = np.ones((1, 1))
    front_of(one, 0.0, 1)
    attained_for(one, one, one[0], 0.0)
    is_attained(one, one[0], one, one[0], 0.0)
