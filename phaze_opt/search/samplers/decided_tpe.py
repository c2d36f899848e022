"""`DecidedTPESampler`: Optuna's TPE on integers, with ties decided by the order of trials and of candidates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import TPESampler
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

from phaze_opt.record.near_ties import comparable_scores

_APART = 2.0**-30
"""Between equal values of two trials that follow each other: far below a step of 1; densities stay as they are."""


class _EstimatorOfTrials(_ParzenEstimator):
    """Optuna's estimator of densities, with equal values of trials told apart.

    Optuna sorts values to find how far each is from the next, without a stable sort: which of several equal values got
    the distance to the next one was up to the CPU's sorting code.
    """

    def _calculate_numerical_distributions(self, observations: NDArray[np.float64], *given: Any, **named: Any) -> Any:
        apart = observations + _APART * np.arange(len(observations))
        return super()._calculate_numerical_distributions(apart, *given, **named)


class DecidedTPESampler(TPESampler):
    """Optuna's sampler, the same on every CPU.

    Candidates of equal density but for rounding are taken in the order in which they were drawn. Optuna has no public
    seam for either; tests/search/test_decided_samplers.py notices if these methods are no longer asked.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of Optuna's sampler."""
        super().__init__(**options)
        self._parzen_estimator_cls = _EstimatorOfTrials

    def _compute_acquisition_func(self, *given: Any, **named: Any) -> NDArray[np.float64]:
        return comparable_scores(super()._compute_acquisition_func(*given, **named))
