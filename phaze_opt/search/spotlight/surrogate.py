"""`LinearSurrogate`: a Gaussian process with the kernel "dot product + white noise"."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]

    def predict(self, features: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation (noise included) of points, each of shape (num_points,)."""
        mean, deviation = self.process.predict((features - self.centre) / self.spread, return_std=True)
        return mean, deviation


def fit_surrogate(features: NDArray[np.float64], costs: NDArray[np.float64]) -> LinearSurrogate:
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
