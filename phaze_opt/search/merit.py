"""How good an outcome is among others, for strategies with one objective: Deb's rules, with bounds of pruned points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.strategy import Outcome


@dataclass(frozen=True, slots=True, order=True)
class Merit:
    """Ordered: a larger merit is better.

    Feasible beats infeasible; among feasible ones the objective counts, among infeasible ones the smaller total
    violation. A pruned point counts by the bound that it cannot beat, below an evaluated one of the same value.

    Attributes:
        is_feasible: it has a value or a bound.
        gain: the objective, turned so that more is better; minus the violation if infeasible.
        is_evaluated: the gain is a value, not a bound.
    """

    is_feasible: bool
    gain: float
    is_evaluated: bool


def merit_of(outcome: Outcome, *, sign: float) -> Merit:
    """The merit of an outcome.

    Args:
        outcome: of a search with one objective.
        sign: +1 if it is to rise, -1 if it is to fall.
    """
    if outcome.values:
        return Merit(is_feasible=True, gain=sign * outcome.values[0], is_evaluated=not outcome.is_pruned)
    violations = [value for _, value in outcome.constraints if value > 0]
    # Infeasible for a reason that is no constraint, or by an amount that is no number: worse than any stated amount.
    total = sum(violations) if violations else math.inf
    gain = -math.inf if math.isnan(total) else -total
    return Merit(is_feasible=False, gain=gain, is_evaluated=not outcome.is_pruned)


@dataclass(slots=True)
class Archive:
    """Every point told, with its merit; the first telling of a point counts.

    Attributes:
        sign: +1 if the objective is to rise, -1 if it is to fall.
        merits: by point, in the order of telling.
    """

    sign: float
    merits: dict[DesignPoint, Merit] = field(default_factory=dict)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Take outcomes up."""
        for outcome in outcomes:
            self.merits.setdefault(outcome.point, merit_of(outcome, sign=self.sign))

    def best(self, count: int) -> list[DesignPoint]:
        """The best points, best first; of equally good ones the earlier."""
        return self.ranked(list(self.merits))[:count]

    def ranked(self, points: Sequence[DesignPoint]) -> list[DesignPoint]:
        """Points told before, best first; of equally good ones the earlier in the sequence."""
        return sorted(points, key=lambda point: self.merits[point], reverse=True)
