"""`InformedSampler`: keeps a sampler from modelling constraints before their values say anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


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
        self._sampler = sampler

    def reseed_rng(self) -> None:
        """Pass on."""
        self._sampler.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Pass on."""
        return self._sampler.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Pass on if informed, else leave everything to `sample_independent`."""
        if has_hopeless_constraint(study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))):
            return {}
        return self._sampler.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Pass on."""
        return self._sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Pass on."""
        self._sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Pass on."""
        self._sampler.after_trial(study, trial, state, values)


def has_hopeless_constraint(trials: Sequence[FrozenTrial]) -> bool:
    """Whether some constraint has one and the same violation in all trials."""
    seen: dict[str, set[float]] = {}
    for trial in trials:
        for name, value in trial.constraints.items():
            seen.setdefault(name, set()).add(value)
    return any(len(values) == 1 and min(values) > 0 for values in seen.values())
