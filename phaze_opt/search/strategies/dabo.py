"""`DaboRun`: domain-aware Bayesian optimisation, the loop of Spotlight; the costs and the model it ranks by."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.near_ties import comparable_scores
from phaze_opt.search.options import option
from phaze_opt.search.strategies.genome import propose_new
from phaze_opt.search.strategy import Outcome, StrategyContext


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

    def costs(self) -> Floats:
        """Cost of each of `points`, shape (num_points,); zeros while none is feasible."""
        sign = -1.0 if self.direction == "maximize" else 1.0
        known = [values[0] for values in self._told.values() if values]
        is_positive = all(value > 0 for value in known)
        costs = {value: sign * (math.log(value) if is_positive else value) for value in known}
        worst = max(costs.values(), default=0.0)
        return np.array([costs[values[0]] if values else worst for values in self._told.values()])


_SMALLEST_SPREAD = 1e-9
_INTERCEPT_BOUNDS = (1e-3, 1e3)
_NOISE_BOUNDS = (1e-4, 1e1)
"""Variance of the noise as a share of that of the costs: a model of 20 features fits 10 trials without any, and its
deviations would vanish."""
_THETA_DIGITS = 4
"""Decimals of the logarithms of intercept and noise: optimisers on two CPUs agree to the seventh."""


@dataclass(frozen=True, slots=True, eq=False)
class LinearSurrogate:
    """Posterior mean and standard deviation of a cost that is linear in its features.

    scikit-learn's GaussianProcessRegressor with DotProduct + WhiteKernel; intercept and noise maximise the evidence.
    BayesianRidge, the same model in its weights, was tried first: where there are more features than trials its
    evidence has no maximum in the noise, and its deviations can come out as no number (docs/decisions/0090).

    Attributes:
        process: the fitted process.
        centre: of the features, shape (num_features,).
        spread: of the features, same shape.
    """

    process: Any
    centre: Floats
    spread: Floats

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation (noise included) of points, each of shape (num_points,)."""
        mean, deviation = self.process.predict((features - self.centre) / self.spread, return_std=True)
        return mean, deviation


def fit_surrogate(features: Floats, costs: Floats) -> LinearSurrogate:
    """Fit features, shape (num_trials, num_features), to costs, shape (num_trials,)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import DotProduct, WhiteKernel
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    centre, spread = features.mean(axis=0), features.std(axis=0)
    # A feature that never varied so far says nothing, and must not say much once it varies a little.
    spread = np.where(spread > _SMALLEST_SPREAD, spread, 1.0)
    kernel = DotProduct(1.0, _INTERCEPT_BOUNDS) + WhiteKernel(0.1, _NOISE_BOUNDS)
    process = GaussianProcessRegressor(kernel, normalize_y=True)
    # Matrices of the size of the trials: threads would cost more than they save and could change the order of sums.
    with warnings.catch_warnings(), threadpool_limits(1):
        # An optimum at a bound of the noise or of the intercept is an answer, not a fault.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit((features - centre) / spread, costs)
        # The optimiser ends in other last digits on other CPUs; what they make of a prediction grows with its distance.
        settled = process.kernel_.clone_with_theta(np.round(process.kernel_.theta, _THETA_DIGITS))
        process = GaussianProcessRegressor(settled, optimizer=None, normalize_y=True)
        process.fit((features - centre) / spread, costs)
    return LinearSurrogate(process=process, centre=centre, spread=spread)


FeatureMap = Callable[[PointColumns], Floats]


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


def allow_all(columns: PointColumns) -> Flags:
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
    is_allowed: Callable[[PointColumns], Flags] = allow_all
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
