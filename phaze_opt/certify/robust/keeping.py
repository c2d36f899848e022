"""What it costs to keep one parameter of the nominal best design: the best design that has it, in every world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.closing import PROOF_SLACK
from phaze_opt.certify.robust.ledger import Ledger

MAX_ROUNDS = 12
"""Points evaluated for one parameter in one world; what is still open then stays an interval."""


@dataclass(frozen=True, slots=True, eq=False)
class Restriction:
    """Points of one value on one axis.

    Attributes:
        row: world.
        axis: name.
        is_in: of every point, shape (num_points,).
    """

    row: int
    axis: str
    is_in: NDArray[np.bool_]


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
    searches = [_Search(ledger, restriction, slack) for restriction in restrictions]
    for _ in range(MAX_ROUNDS):
        picked = [(search.restriction.row, search.next_point()) for search in searches]
        pairs = [(row, index) for row, index in picked if index is not None]
        if not pairs:
            break
        ledger.evaluate_pairs(pairs)
    return {(search.restriction.row, search.restriction.axis): search.cost() for search in searches}


@dataclass(slots=True)
class _Search:
    """The best point of one restriction, by bounds."""

    ledger: Ledger
    restriction: Restriction
    slack: float

    def next_point(self) -> int | None:
        """The point of the largest bound, unless what is known is near enough to it or to the optimum."""
        best, bound, index = self._standing()
        is_settled = max(bound, best) <= best * (1.0 + self.slack) or best >= self._optimum() * (1.0 - self.slack)
        return None if is_settled or index in self.ledger.known[self.restriction.row] else index

    def cost(self) -> KeptCost:
        """The regret of the best point known, and of the largest bound."""
        best, bound, _ = self._standing()
        optimum = self._optimum()
        regret = 1.0 - best / optimum
        return KeptCost(regret, min(regret, max(0.0, 1.0 - bound / optimum)))

    def _standing(self) -> tuple[float, float, int]:
        """Best value known, largest bound, and the point that has it."""
        known = self.ledger.known[self.restriction.row]
        best = max((worth.value for index, worth in known.items() if self.restriction.is_in[index]), default=0.0)
        bounds = np.where(self.restriction.is_in, self.ledger.upper[self.restriction.row], 0.0)
        index = int(bounds.argmax())
        return best, float(bounds[index]), index

    def _optimum(self) -> float:
        return float(self.ledger.optimum()[self.restriction.row])
