"""One run of an Optuna sampler over a search space, as a `StrategyRun`.

What the samplers of Optuna 5 do with a point that breaks a constraint decides how it is told. A trial told as FAIL
disappears: TPE, GP, CMA-ES and NSGA-II read finished trials only, so they would propose the same region again. Hence an
infeasible point is told as a COMPLETE trial with its constraint values (`Trial.set_constraint`, feasible when <= 0):
TPE ranks it below every feasible trial by total violation, GP fits the constraints beside the objective, NSGA-II uses
constrained domination; none of them ranks it by its value. A value must be told all the same: `InfeasibleValue` says
which one.
"""

import inspect
import math
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import optuna
from optuna.distributions import IntDistribution

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.search.encodings import Encoding, Rejected
from phaze_opt.search.strategy import Outcome, StrategyContext
from phaze_opt.space.codec import Codec

_MAX_STEPS = 400


class Repeats(StrEnum):
    """What becomes of a proposal that a run proposed, or was told of, before.

    A repeated point takes a trial of the budget and teaches nothing. Density samplers that have converged repeat
    themselves more often than not: with a pruner TPE spends about 36 of 60 trials on points it knows (decision 0091).

    ALLOWED: it is proposed again.
    SIDESTEPPED: its trial is dropped and a point near it is taken instead.
    RETOLD: its known outcome is told again, so that a generation can fill up, and the sampler goes on.
    """

    ALLOWED = "allowed"
    SIDESTEPPED = "sidestepped"
    RETOLD = "retold"

    @property
    def patience(self) -> int:
        """Repeats in a row after which a point near the last one is taken."""
        return 32 if self is Repeats.RETOLD else 1


def find_unseen(
    encoding: Encoding, params: Mapping[str, Any], *, seen: Container[DesignPoint], rng: np.random.Generator
) -> DesignPoint | None:
    """The first new point on a random walk over the parameters, one step of one of them at a time; None if it ends.

    Args:
        encoding: what parameters mean.
        params: where the walk begins.
        seen: points that will not do.
        rng: chooses parameters and directions.
    """
    ranges = [
        (name, known.low, known.high)
        for name, known in encoding.distributions().items()
        if isinstance(known, IntDistribution)
    ]
    current = dict(params)
    for _ in range(_MAX_STEPS if ranges else 0):
        name, low, high = ranges[int(rng.integers(len(ranges)))]
        before = current[name]
        current[name] = min(max(before + (1 if rng.random() < 0.5 else -1), low), high)
        found = encoding.decode(current)
        if isinstance(found, Rejected):
            current[name] = before
        elif found not in seen:
            return found
    return None


_OTHER_CONSTRAINT = "other"
_NOT_KEPT = "kept"
_LARGEST_CONSTRAINT = 1e18
MAX_TOLD_PRUNED = 200
"""Pruned points that a sampler is told the bounds of."""
_MAX_REJECTED = 1000
"""Proposals in a row that may mean no kept point, before one is drawn from the kept points."""
_STREAM = 0x5EE4
"""Keeps the draws of this module apart from the sampler's own, which start from the same seed."""


class InfeasibleValue(StrEnum):
    """The value told with an infeasible point.

    WORST: the worst value told of any feasible point so far, 0 before the first. GP fits the values of all trials, so
    an outlier would spoil its scale.
    PENALISED: the same, worsened by the total violation, and no constraints are set. CMA-ES knows none (Optuna warns)
    and ranks by value alone; so ranked, feasible beats infeasible and less violation beats more (Deb's rules).
    """

    WORST = "worst"
    PENALISED = "penalised"


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna logs errors only and warns of nothing experimental, inside; afterwards it does as before."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


@dataclass(slots=True)
class ConstraintLedger:
    """Gives every trial the same constraints, which GP demands, whatever outcomes name.

    The first outcome fixes the names; a name that a later outcome lacks counts as kept, its others go into ``other``,
    which is 1 when a point is infeasible for a reason not given as a constraint and -1 when there is nothing to add.
    """

    names: tuple[str, ...] | None = None

    def values(self, outcome: Outcome) -> dict[str, float]:
        """Finite constraint values by name, feasible when all are <= 0."""
        given = {name: _finite(value) for name, value in outcome.constraints}
        if self.names is None:
            self.names = tuple(name for name in given if name != _OTHER_CONSTRAINT)
        values = {name: given.pop(name, -1.0) for name in self.names}
        other = max(given.values(), default=-1.0)
        if not outcome.values and other <= 0 and all(value <= 0 for value in values.values()):
            other = 1.0
        return {**values, _OTHER_CONSTRAINT: other}


def _finite(value: float) -> float:
    """The value clipped to what a sampler can compute with; NaN counts as violated."""
    return 1.0 if math.isnan(value) else min(max(value, -_LARGEST_CONSTRAINT), _LARGEST_CONSTRAINT)


@dataclass(slots=True)
class SamplerRun:
    """Ask and tell over an in-memory Optuna study with the fixed distributions of an encoding.

    Attributes:
        study: the study; its sampler is seeded from `StrategyContext.seed` only.
        codec: between design points and the study's parameters; a `Codec` or another encoding.
        infeasible: value told with an infeasible point.
        repeats: what becomes of a proposal that was proposed before.
        during_ask: entered while a point is proposed.
        rng: draws what the sampler does not.
    """

    study: optuna.Study
    codec: Encoding
    infeasible: InfeasibleValue = InfeasibleValue.WORST
    repeats: Repeats = Repeats.ALLOWED
    during_ask: Callable[[], AbstractContextManager[object]] = nullcontext
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(_STREAM))
    _distributions: dict[str, optuna.distributions.BaseDistribution] = field(default_factory=dict)
    _pending: list[optuna.Trial] = field(default_factory=list)
    _ledger: ConstraintLedger = field(default_factory=ConstraintLedger)
    _worst: tuple[float, ...] | None = None
    _seen: dict[DesignPoint, Outcome | None] = field(default_factory=dict)
    _num_pruned: int = 0

    def ask(self, count: int) -> Sequence[DesignPoint]:
        """Propose ``count`` points; every one is in the space, and one may repeat."""
        points = []
        with quiet_optuna(), self.during_ask():
            for _ in range(count):
                trial, point = self._propose()
                self._pending.append(trial)
                self._seen.setdefault(point, None)
                points.append(point)
        return tuple(points)

    def _propose(self) -> tuple[optuna.Trial, DesignPoint]:
        """The sampler's next proposal that is kept and, if so wished, new; no other is charged for."""
        num_rejected = num_repeated = 0
        while num_rejected < _MAX_REJECTED:
            trial = self.study.ask(self._distributions)
            found = self.codec.decode(trial.params)
            if isinstance(found, Rejected):
                self._tell_rejected(trial, found)
                num_rejected += 1
                continue
            if self.repeats is Repeats.ALLOWED or found not in self._seen or self._is_spent:
                return trial, found
            num_repeated += 1
            params = dict(trial.params)
            self._settle_repeat(trial, self._seen[found])
            if num_repeated >= self.repeats.patience:
                return self._ask_for(find_unseen(self.codec, params, seen=self._seen, rng=self.rng) or found)
        return self._ask_for(self.codec.space.point(int(self.rng.integers(self.codec.space.size))))

    @property
    def _is_spent(self) -> bool:
        """Whether every point was proposed: then a repeat is all there is, and to look for another takes long."""
        return len(self._seen) >= self.codec.space.size

    def _settle_repeat(self, trial: optuna.Trial, known: Outcome | None) -> None:
        """Tell the outcome again, or drop the trial."""
        if self.repeats is Repeats.RETOLD and known is not None:
            self._tell_one(trial, known)
        else:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def _tell_rejected(self, trial: optuna.Trial, rejected: Rejected) -> None:
        """Finish a trial that means no kept point: infeasible by what it breaks, never evaluated."""
        constraints = {_NOT_KEPT: _finite(rejected.violation)}
        if self.infeasible is InfeasibleValue.WORST:
            trial.set_constraint(_NOT_KEPT, constraints[_NOT_KEPT])
        self.study.tell(trial, list(self._stand_in(constraints)))

    def _ask_for(self, point: DesignPoint) -> tuple[optuna.Trial, DesignPoint]:
        """A trial of a point that the sampler did not propose."""
        self.study.enqueue_trial(self.codec.encode(point))
        return self.study.ask(self._distributions), point

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """Report the outcomes of the last ask, in its order, or before the first ask those of the starting points.

        Raises:
            InputError: more outcomes than points asked for.
        """
        if not self._pending and not self.study.trials:
            with quiet_optuna(), self.during_ask():
                self._take_up([outcome.point for outcome in outcomes])
        if len(outcomes) > len(self._pending):
            message = f"{len(outcomes)} outcomes told for {len(self._pending)} points asked; tell each point once"
            raise InputError(message)
        with quiet_optuna():
            for outcome in outcomes:
                self._tell_one(self._pending.pop(0), outcome)
                self._seen[outcome.point] = outcome

    def _take_up(self, points: Sequence[DesignPoint]) -> None:
        """Make trials of points that this run did not propose."""
        for point in points:
            self._pending.append(self._ask_for(point)[0])

    def _tell_one(self, trial: optuna.Trial, outcome: Outcome) -> None:
        """Finish one trial; constraints come first, because a finished trial is frozen.

        Samplers slow down with every trial they know, and a pruner may drop thousands: of the first hundreds a sampler
        is told the bounds, of later ones nothing.
        """
        self._num_pruned += outcome.is_pruned
        if outcome.is_pruned and self._num_pruned > MAX_TOLD_PRUNED:
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return
        constraints = self._ledger.values(outcome)
        if self.infeasible is InfeasibleValue.WORST:
            for name, value in constraints.items():
                trial.set_constraint(name, value)
        if outcome.values:
            self._note_worst(outcome.values)
        self.study.tell(trial, list(outcome.values or self._stand_in(constraints)))

    def _signs(self) -> list[float]:
        """+1 for an objective to maximise, -1 for one to minimise."""
        maximise = optuna.study.StudyDirection.MAXIMIZE
        return [1.0 if direction == maximise else -1.0 for direction in self.study.directions]

    def _note_worst(self, values: tuple[float, ...]) -> None:
        """Keep the worst value of each objective seen so far."""
        before = self._worst or values
        self._worst = tuple(
            sign * min(sign * old, sign * new) for sign, old, new in zip(self._signs(), before, values, strict=True)
        )

    def _stand_in(self, constraints: dict[str, float]) -> tuple[float, ...]:
        """The value told with an infeasible point, one per objective."""
        signs = self._signs()
        worst = self._worst or (0.0,) * len(signs)
        if self.infeasible is InfeasibleValue.WORST:
            return worst
        violation = sum(max(0.0, value) for value in constraints.values())
        return tuple(sign * (min(sign * value, 0.0) - violation) for sign, value in zip(signs, worst, strict=True))


def knows_constraints(sampler: optuna.samplers.BaseSampler) -> bool:
    """Whether a sampler, or the one that it wraps, looks at constraints; others rank infeasible points by value."""
    kinds = type(getattr(sampler, "sampler", sampler)).__mro__
    return any("constraints_func" in inspect.signature(kind).parameters for kind in kinds[:-1])


def start_sampler(
    context: StrategyContext,
    sampler: optuna.samplers.BaseSampler,
    *,
    codec: Encoding | None = None,
    repeats: Repeats = Repeats.ALLOWED,
    during_ask: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> SamplerRun:
    """A run of an Optuna sampler over the space of a context; the rest is as in `SamplerRun`."""
    codec = codec or Codec(context.space)
    with quiet_optuna():
        directions = [optuna.study.StudyDirection[direction.upper()] for direction in context.directions]
        study = optuna.create_study(directions=directions, sampler=sampler)
    return SamplerRun(
        study=study,
        codec=codec,
        infeasible=InfeasibleValue.WORST if knows_constraints(sampler) else InfeasibleValue.PENALISED,
        repeats=repeats,
        during_ask=during_ask,
        rng=np.random.default_rng([context.seed, _STREAM]),
        _distributions=codec.distributions(),
    )
