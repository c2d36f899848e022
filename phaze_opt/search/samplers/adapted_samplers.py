"""Optuna's samplers adapted: TPE with its ties decided, kept points alike, constraints that say nothing left out."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.record.arrays import Floats
from phaze_opt.record.near_ties import comparable_scores
from phaze_opt.search.encodings import ENCODINGS
from phaze_opt.space.codec import Codec
from phaze_opt.space.search_space import SearchSpace

_APART = 2.0**-30
"""Between equal values of two trials that follow each other: far below a step of 1; densities stay as they are."""


class _EstimatorOfTrials(_ParzenEstimator):
    """Optuna's estimator of densities, with equal values of trials told apart.

    Optuna sorts values to find how far each is from the next, without a stable sort: which of several equal values got
    the distance to the next one was up to the CPU's sorting code.
    """

    def _calculate_numerical_distributions(self, observations: Floats, *given: Any, **named: Any) -> Any:
        apart = observations + _APART * np.arange(len(observations))
        return super()._calculate_numerical_distributions(apart, *given, **named)


class DecidedTPESampler(TPESampler):
    """Optuna's sampler, the same on every CPU.

    Candidates of equal density but for rounding are taken in the order in which they were drawn. Optuna has no public
    seam for either; tests/search/test_samplers.py notices if these methods are no longer asked.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of Optuna's sampler."""
        super().__init__(**options)
        self._parzen_estimator_cls = _EstimatorOfTrials

    def _compute_acquisition_func(self, *given: Any, **named: Any) -> Floats:
        return comparable_scores(super()._compute_acquisition_func(*given, **named))


class InformedSampler(BaseSampler):
    """Samples independently as long as some constraint was violated by the same amount in every trial.

    A Gaussian process fitted to such a constraint is certain that no point satisfies it: Optuna's GPSampler then
    weighs its candidates by zero and fails (0/0 in optim_mixed). Any other outcome gives the model something to learn
    from, also if no point was feasible yet.

    Args:
        sampler: the sampler to keep; its `sample_independent` stands in for it.
    """

    def __init__(self, sampler: BaseSampler) -> None:
        """Wrap a sampler."""
        self.sampler = sampler

    def reseed_rng(self) -> None:
        """Pass on."""
        self.sampler.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Pass on."""
        return self.sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Pass on if informed, else leave everything to `sample_independent`."""
        if has_hopeless_constraint(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))):
            return {}
        return self.sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Pass on."""
        return self.sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Pass on."""
        self.sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Pass on."""
        self.sampler.after_trial(study, trial, state, values)


def has_hopeless_constraint(trials: Sequence[FrozenTrial]) -> bool:
    """Whether some constraint has one and the same violation in all trials."""
    seen: dict[str, set[float]] = {}
    for trial in trials:
        for name, value in trial.constraints.items():
            seen.setdefault(name, set()).add(value)
    return any(len(values) == 1 and min(values) > 0 for values in seen.values())


class KeptPointSampler(BaseSampler):
    """Draws every kept point of a space with the same probability.

    The encoding of semantics 8 maps many coordinates to one point where few cores fit, so uniform coordinates favour
    the points of large cores. This sampler draws a point for each trial, from the seed and the trial's number alone,
    and gives its coordinates. Parameters that are not the space's own are drawn uniformly and independently.

    Args:
        space: the points.
        codec: its codec, made from ``space`` if not given.
        seed: of the generator; without one it draws entropy, as Optuna's samplers do.
    """

    def __init__(self, space: SearchSpace, *, codec: Codec | None = None, seed: int | None = None) -> None:
        """Take the space; nothing is drawn yet."""
        self._space = space
        self._codec = codec or Codec(space)
        self._distributions: dict[str, BaseDistribution] = dict(self._codec.distributions())
        self._seeds = np.random.SeedSequence(seed)
        self._independent = RandomSampler(seed=seed)

    def point_of(self, trial_number: int) -> DesignPoint:
        """The point of a trial."""
        seeds = np.random.SeedSequence(self._seeds.entropy, spawn_key=(trial_number,))
        return self._space.point(int(np.random.default_rng(seeds).integers(self._space.size)))

    def reseed_rng(self) -> None:
        """Draw new entropy, as Optuna asks of the copies of a sampler in parallel workers."""
        self._seeds = np.random.SeedSequence()
        self._independent.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Nothing: which parameters a trial has is known only when it asks for them."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Each parameter as `sample_independent` gives it."""
        return {name: self.sample_independent(study, trial, name, search_space[name]) for name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The coordinate of the trial's point, or a uniform value if the parameter is not the space's own."""
        if self._distributions.get(param_name) == param_distribution:
            return self._codec.encode(self.point_of(trial.number))[param_name]
        return self._independent.sample_independent(study, trial, param_name, param_distribution)


def random_sampler(space: SearchSpace, *, encoding: str, seed: int) -> BaseSampler:
    """Draws kept points, or the parameters of an encoding, alike."""
    return RandomSampler(seed=seed) if encoding in ENCODINGS else KeptPointSampler(space, seed=seed)


def gp_sampler(space: SearchSpace, *, seed: int, **options: Any) -> BaseSampler:
    """Optuna's Gaussian process, whose random trials are uniform over kept points."""
    kept = KeptPointSampler(space, seed=seed)
    return informed(GPSampler(independent_sampler=kept, warn_independent_sampling=False, seed=seed, **options))


def informed(sampler: BaseSampler) -> BaseSampler:
    """A Gaussian process that does without constraints which say nothing; any other sampler as it is."""
    return InformedSampler(sampler) if isinstance(sampler, GPSampler) else sampler
