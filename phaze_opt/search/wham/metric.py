"""What the search ranks designs by: one figure for each goal, several in turn for a Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

MINIMIZE = "minimize"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure made of the objectives; larger is better.

    Attributes:
        directions: ``maximize`` or ``minimize`` of each objective.
        column: 0 for the first objective itself; i for the first per unit of objective i.
    """

    directions: tuple[str, ...]
    column: int = 0

    def score(self, values: Sequence[float]) -> float:
        """The figure of some objectives; minus infinity where there are none (the point is infeasible)."""
        if not values:
            return -math.inf
        first = -values[0] if self.directions[0] == MINIMIZE else values[0]
        if self.column == 0:
            return first
        cost = values[self.column]
        is_ratio = self.directions[0] != MINIMIZE and self.directions[self.column] == MINIMIZE and cost > 0
        if is_ratio:
            return first / cost
        return -cost if self.directions[self.column] == MINIMIZE else cost


def metrics_of(directions: Sequence[str]) -> tuple[Metric, ...]:
    """The figures a goal is searched by: its objective, or throughput, throughput/TDP and throughput/area."""
    return tuple(Metric(tuple(directions), column) for column in range(len(directions)))
