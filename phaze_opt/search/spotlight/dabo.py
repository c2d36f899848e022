"""`DaboRun`: domain-aware Bayesian optimisation, the loop of Spotlight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.template import DesignPoint, PointColumns
from phaze_opt.record.near_ties import comparable_scores
from phaze_opt.search.genome import propose_new
from phaze_opt.search.options import option
from phaze_opt.search.spotlight.ledger import CostLedger
from phaze_opt.search.spotlight.surrogate import fit_surrogate
from phaze_opt.search.strategy import Outcome, StrategyContext

FeatureMap = Callable[[PointColumns], NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class DaboOptions:
    """Of `spotlight` and its variants; the defaults are the paper's."""

    warm_up: int = option(10, "random points before the model is used", low=1, high=100_000)
    candidates: int = option(1000, "random points of which the best are proposed", low=1, high=1_000_000)
    explore: float = option(0.1, "probability of a random point instead", low=0.0, high=1.0)
    kappa: float = option(
        1.0, "standard deviations below the mean cost that candidates are ranked by", low=0.0, high=100.0
    )
    refit_every: int = option(10, "valid points proposed from one ranking before the next fit", low=1, high=100_000)


_STREAM = 0xDAB0
_MAX_DRAWS = 64
"""Draws of an allowed new point before a repeated one will do."""


def allow_all(columns: PointColumns) -> NDArray[np.bool_]:
    """Every point may be proposed."""
    return np.ones(len(columns), dtype=np.bool_)


@dataclass(slots=True)
class DaboRun:
    """Ranks random kept points by the lower confidence bound of a linear model of their cost, and proposes in order.

    Attributes:
        context: of the search.
        options: of the loop.
        make_features: gives the features, once the first point is known.
        is_allowed: which points may be proposed.
    """

    context: StrategyContext
    options: DaboOptions
    make_features: Callable[[StrategyContext, DesignPoint], FeatureMap]
    is_allowed: Callable[[PointColumns], NDArray[np.bool_]] = allow_all
    _rng: np.random.Generator = field(init=False)
    _ledger: CostLedger = field(init=False)
    _features: FeatureMap | None = None
    _queue: list[DesignPoint] = field(default_factory=list)
    _num_told: int = 0
    _num_feasible_at_fit: int = 0
    _asked: set[DesignPoint] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Seed the generator."""
        self._rng = np.random.default_rng([self.context.seed, _STREAM])
        self._ledger = CostLedger(self.context.directions[0])

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """Warm-up and exploration at random, everything else from the ranking."""
        return propose_new(count, (self._next,), known=self._asked)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes; the ranking is thrown away when enough valid points were taken from it."""
        self._ledger.note(outcomes)
        self._asked.update(outcome.point for outcome in outcomes)
        self._num_told += sum(1 for outcome in outcomes if not outcome.is_pruned)
        if self._ledger.num_feasible - self._num_feasible_at_fit >= self.options.refit_every:
            self._queue.clear()

    def _next(self) -> DesignPoint:
        """One proposal."""
        is_warm = self._num_told >= min(self.options.warm_up, self.context.num_trials)
        if not is_warm or not self._ledger.num_feasible or self._rng.random() < self.options.explore:
            return self._draw()
        if not self._queue:
            self._queue = self._rank()
        while self._queue:
            point = self._queue.pop(0)
            if point not in self._asked:
                return point
        return self._draw()

    def _candidates(self, count: int) -> PointColumns:
        """Random kept points, without those that may not be proposed."""
        drawn = self.context.space.draw(count, self._rng)
        return drawn.take(np.flatnonzero(self.is_allowed(drawn)))

    def _draw(self) -> DesignPoint:
        """A random allowed point, new if one is found."""
        last: DesignPoint | None = None
        # Once every point was asked a repeat is all there is.
        is_spent = len(self._asked) >= self.context.space.size
        for _ in range(1 if is_spent else _MAX_DRAWS):
            columns = self._candidates(16)
            for row in range(len(columns)):
                last = columns.point(row)
                if last not in self._asked:
                    return last
        return last or self.context.space.point(int(self._rng.integers(self.context.space.size)))

    def _rank(self) -> list[DesignPoint]:
        """Candidates by mean - kappa x deviation of their cost, best first."""
        points = self._ledger.points
        if self._features is None:
            self._features = self.make_features(self.context, points[0])
        self._num_feasible_at_fit = self._ledger.num_feasible
        surrogate = fit_surrogate(self._features(PointColumns.of(points)), self._ledger.costs())
        columns = self._candidates(self.options.candidates)
        if not len(columns):
            return []
        mean, deviation = surrogate.predict(self._features(columns))
        bound = comparable_scores(mean - self.options.kappa * deviation)
        order = np.argsort(bound, kind="stable")
        kept = max(4 * self.options.refit_every, 64)
        return list(dict.fromkeys(columns.point(int(row)) for row in order[:kept]))
