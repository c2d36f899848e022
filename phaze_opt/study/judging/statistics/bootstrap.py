"""Bootstrap intervals of means over strata, by scipy; data that do not vary have an interval without width."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from phaze_opt.record.arrays import Floats

SEED = 0
"""Of the resampling: the same data have the same interval on every machine."""


def mean_interval(
    strata: Sequence[Floats], weights: Sequence[float], *, confidence: float, num_resamples: int
) -> tuple[float, float]:
    """Interval of a weighted mean of the means of strata, each resampled by itself.

    Bias-corrected and accelerated (Efron 1987) where that is defined, else percentiles. A stratum of one value, or of
    equal values, counts as known: with one observation nothing is learnt about its spread, which the caller must say.

    Args:
        strata: samples, such as the regrets of the seeds of one condition.
        weights: of the strata, positive; they are normalised.
        confidence: of the interval.
        num_resamples: of the bootstrap.

    Returns:
        Low and high.
    """
    shares = [weight / float(np.sum(weights)) for weight in weights]
    return _interval(strata, shares, confidence=confidence, num_resamples=num_resamples)


def difference_interval(
    first: Sequence[Floats],
    second: Sequence[Floats],
    weights: Sequence[float],
    *,
    confidence: float,
    num_resamples: int,
) -> tuple[float, float]:
    """Interval of the weighted mean over strata of ``mean(second) - mean(first)``.

    Args:
        first: one sample per stratum.
        second: likewise, of the same strata.
        weights: of the strata; they are normalised.
        confidence: of the interval.
        num_resamples: of the bootstrap.
    """
    shares = [weight / float(np.sum(weights)) for weight in weights]
    return _interval(
        [*second, *first], [*shares, *(-share for share in shares)], confidence=confidence, num_resamples=num_resamples
    )


def _interval(
    samples: Sequence[Floats], factors: Sequence[float], *, confidence: float, num_resamples: int
) -> tuple[float, float]:
    """Interval of the sum of factor x mean; samples that do not vary are a constant."""
    varying = [(sample, factor) for sample, factor in zip(samples, factors, strict=True) if _varies(sample)]
    constant = sum(
        factor * float(np.mean(sample)) for sample, factor in zip(samples, factors, strict=True) if not _varies(sample)
    )
    if not varying:
        return constant, constant
    scales = [factor for _, factor in varying]

    def statistic(*resampled: Floats, axis: int) -> Any:
        return sum(scale * sample.mean(axis=axis) for scale, sample in zip(scales, resampled, strict=True))

    data = tuple(sample for sample, _ in varying)
    for method in ("BCa", "percentile"):
        low, high = _scipy_interval(data, statistic, confidence=confidence, num_resamples=num_resamples, method=method)
        if np.isfinite(low) and np.isfinite(high):
            break
    return constant + low, constant + high


def _scipy_interval(
    data: tuple[Floats, ...], statistic: Any, *, confidence: float, num_resamples: int, method: str
) -> tuple[float, float]:
    from scipy.stats import bootstrap

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        interval = bootstrap(
            data,
            statistic,
            vectorized=True,
            paired=False,
            axis=-1,
            confidence_level=confidence,
            n_resamples=num_resamples,
            batch=min(num_resamples, 2000),
            method=method,
            rng=np.random.default_rng(SEED),
        ).confidence_interval
    return float(interval.low), float(interval.high)


def _varies(sample: Floats) -> bool:
    return len(sample) > 1 and bool(np.ptp(sample) > 0.0)
