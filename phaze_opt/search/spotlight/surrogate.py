"""`LinearSurrogate`: a Gaussian process with the kernel "dot product + white noise", in its weight-space form."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SMALLEST_SPREAD = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class LinearSurrogate:
    """Posterior mean and standard deviation of a cost that is linear in its features.

    A Gaussian process with the kernel v x.x' + s is Bayesian linear regression with weights of variance v and noise of
    variance s, whose evidence scikit-learn's BayesianRidge maximises over v and s: the posteriors are the same (by
    test, against GaussianProcessRegressor at the same v and s), for cubic cost in the features instead of the trials.

    Attributes:
        regression: the fitted BayesianRidge.
        centre: of the features, shape (num_features,).
        spread: of the features, same shape.
    """

    regression: Any
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    def predict(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation (noise included) of points, each of shape (num_points,)."""
        mean, deviation = self.regression.predict((features - self.centre) / self.spread, return_std=True)
        return mean, deviation


def fit_surrogate(features: NDArray[np.float64], costs: NDArray[np.float64]) -> LinearSurrogate:
    """Fit features, shape (num_trials, num_features), to costs, shape (num_trials,)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import BayesianRidge

    centre, spread = features.mean(axis=0), features.std(axis=0)
    # A feature that never varied so far says nothing, and must not say much once it varies a little.
    spread = np.where(spread > _SMALLEST_SPREAD, spread, 1.0)
    regression = BayesianRidge()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        regression.fit((features - centre) / spread, costs)
    return LinearSurrogate(regression=regression, centre=centre, spread=spread)
