"""`CostLedger`: outcomes as costs that a regression can be fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.search.strategy import Outcome


@dataclass(slots=True)
class CostLedger:
    """What was told, each point once.

    The cost to minimise is the negative logarithm of a value to maximise (for throughput: log time), or the value's
    own negative where some value is not positive. An infeasible point costs as much as the worst feasible one; a
    pruned one, whose value is a bound, what its bound says.

    Attributes:
        direction: ``maximize`` or ``minimize``.
    """

    direction: str
    _told: dict[DesignPoint, tuple[float, ...]] = field(default_factory=dict)

    def note(self, outcomes: Sequence[Outcome]) -> None:
        """Take in outcomes."""
        for outcome in outcomes:
            self._told[outcome.point] = outcome.values

    def __contains__(self, point: object) -> bool:
        """Whether a point was told."""
        return point in self._told

    @property
    def points(self) -> tuple[DesignPoint, ...]:
        """Points told, in order."""
        return tuple(self._told)

    @property
    def num_feasible(self) -> int:
        """Points with a value."""
        return sum(1 for values in self._told.values() if values)

    def costs(self) -> NDArray[np.float64]:
        """Cost of each of `points`, shape (num_points,); zeros while none is feasible."""
        sign = -1.0 if self.direction == "maximize" else 1.0
        known = [values[0] for values in self._told.values() if values]
        is_positive = all(value > 0 for value in known)
        costs = {value: sign * (math.log(value) if is_positive else value) for value in known}
        worst = max(costs.values(), default=0.0)
        return np.array([costs[values[0]] if values else worst for values in self._told.values()])
