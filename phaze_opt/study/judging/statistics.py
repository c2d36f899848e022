"""Regret over a search, hypervolume of several objectives, bootstrap intervals and tests of ranks."""

import math
import warnings
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from phaze_opt.record.arrays import Flags, Floats

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


MAX_EXACT_ARRANGEMENTS = 20_000
"""Up to this many ways to deal tied values into two samples, all are tried instead of an approximation."""


def mann_whitney_p(first: Floats, second: Floats) -> float:
    """Two-sided p-value that two samples come from one distribution; 1 if all values are equal or a sample is empty.

    Exact without ties, exact over all arrangements with ties and few values, else by the normal approximation with
    the correction for ties.
    """
    if len(first) == 0 or len(second) == 0:
        return 1.0
    pooled = np.concatenate([first, second])
    if np.ptp(pooled) == 0.0:
        return 1.0
    if min(len(first), len(second)) == 1:
        return _one_against_many_p(first, second)
    from scipy.stats import PermutationMethod, mannwhitneyu

    has_ties = len(np.unique(pooled)) < len(pooled)
    num_arrangements = math.comb(len(pooled), len(first))
    method: object = "asymptotic"
    if not has_ties and len(pooled) <= 60:
        method = "exact"
    elif has_ties and num_arrangements <= MAX_EXACT_ARRANGEMENTS:
        method = PermutationMethod(n_resamples=MAX_EXACT_ARRANGEMENTS)
    return float(min(1.0, mannwhitneyu(first, second, alternative="two-sided", method=method).pvalue))


def _one_against_many_p(first: Floats, second: Floats) -> float:
    """The same test where a sample is a single value, which scipy refuses with ties: its place among all values."""
    single = first[0] if len(first) == 1 else second[0]
    pooled = np.concatenate([first, second])
    return float(min(1.0, 2.0 * min((pooled <= single).mean(), (pooled >= single).mean())))


def smallest_mann_whitney_p(num_first: int, num_second: int) -> float:
    """The least two-sided p-value that samples of these sizes can give: every value of one below all of the other."""
    return min(1.0, 2.0 / math.comb(num_first + num_second, num_first))


def sign_p(sample: Floats, constant: float) -> float:
    """Two-sided p-value that the median of a sample is a constant (sign test; equal values are left out)."""
    below, above = int(np.count_nonzero(sample < constant)), int(np.count_nonzero(sample > constant))
    if below + above == 0:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(below, below + above, 0.5).pvalue)


def smallest_sign_p(num_values: int) -> float:
    """The least two-sided p-value of a sign test, and of Wilcoxon's, on this many values or blocks."""
    return min(1.0, 2.0 / 2.0**num_values)


def wilcoxon_p(first: Floats, second: Floats) -> float:
    """Two-sided p-value that two treatments are alike over blocks; 1 if they are equal in every block.

    Ranks of zero differences are split evenly, as in Demsar, "Statistical comparisons of classifiers over multiple data
    sets" (JMLR 7, 2006). Exact over all signs for up to 13 blocks, and up to 50 without ties, as scipy decides.

    Args:
        first: one value per block.
        second: one value per block, in the same order.
    """
    difference = np.asarray(first) - np.asarray(second)
    if len(difference) == 0 or not difference.any():
        return 1.0
    from scipy.stats import wilcoxon

    return float(min(1.0, wilcoxon(difference, zero_method="zsplit").pvalue))


def signed_rank_lead(first: Floats, second: Floats) -> float:
    """By how much of the signed-rank sum ``first`` is lower (better) than ``second``: the side Wilcoxon's test takes.

    Returns:
        Ranks of the blocks in which it is lower less those in which it is higher; 0 for neither.
    """
    from scipy.stats import rankdata

    difference = np.asarray(second) - np.asarray(first)
    return float(np.sum(np.sign(difference) * rankdata(np.abs(difference))))


def friedman_p(blocks: Floats) -> float | None:
    """P-value that all treatments are alike, by Friedman's chi-square with the correction for ties.

    Args:
        blocks: shape (num_blocks, num_treatments).

    Returns:
        None if there are fewer than three treatments or two blocks; 1 if every block is tied throughout.
    """
    if blocks.shape[0] < 2 or blocks.shape[1] < 3:
        return None
    if (np.ptp(blocks, axis=1) == 0.0).all():
        return 1.0
    from scipy.stats import friedmanchisquare

    return float(friedmanchisquare(*blocks.T).pvalue)


def mean_ranks(blocks: Floats) -> Floats:
    """Mean rank of each treatment over blocks, 1 for the lowest value, ties sharing their mean rank.

    Args:
        blocks: shape (num_blocks, num_treatments).
    """
    from scipy.stats import rankdata

    ranks: Floats = rankdata(blocks, axis=1).mean(axis=0)
    return ranks


def holm_adjust(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values of one family after Holm's step-down correction, to be compared with the level itself.

    Holm, "A simple sequentially rejective multiple test procedure" (Scandinavian Journal of Statistics 6, 1979).
    """
    order = np.argsort(p_values, kind="stable")
    adjusted, largest = [1.0] * len(p_values), 0.0
    for position, index in enumerate(order):
        # Step-down: no p-value may be below one that is smaller before the correction.
        largest = max(largest, min(1.0, (len(p_values) - position) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def vargha_delaney(first: Floats, second: Floats) -> float:
    """Probability that a value of ``first`` is lower (better) than one of ``second``, ties counted half.

    Vargha and Delaney, "A critique and improvement of the CL common language effect size statistics" (2000), for a
    quantity where less is better: 1 is always better, 0.5 no difference.
    """
    difference = np.asarray(second)[None, :] - np.asarray(first)[:, None]
    return float((np.count_nonzero(difference > 0) + 0.5 * np.count_nonzero(difference == 0)) / difference.size)


def paired_superiority(first: Floats, second: Floats) -> float:
    """Share of blocks in which ``first`` is lower (better), ties counted half; the paired form of A."""
    difference = np.asarray(second) - np.asarray(first)
    return float((np.count_nonzero(difference > 0) + 0.5 * np.count_nonzero(difference == 0)) / difference.size)


def cliques(is_different: Flags) -> tuple[tuple[int, int], ...]:
    """Maximal runs of at least two ranked treatments of which no pair differs, as (first, last), not within another.

    Args:
        is_different: symmetric, shape (num_treatments, num_treatments), best rank first.
    """
    runs: list[tuple[int, int]] = []
    for first in range(len(is_different)):
        last = first
        while last + 1 < len(is_different) and not is_different[first : last + 1, last + 1].any():
            last += 1
        if last > first and (not runs or last > runs[-1][1]):
            runs.append((first, last))
    return tuple(runs)


MAX_DIMENSIONS = 3
"""Objectives that a hypervolume is computed of."""


def regret_curve(values: Sequence[float | None], best: float) -> Floats:
    """Relative simple regret after each evaluation, ``1 - best so far / best``.

    Args:
        values: of a maximised, positive objective, in the order of the evaluations; None where infeasible.
        best: what regret is against.

    Returns:
        Shape (num_evaluations,); 1 while nothing feasible was found, or if ``best`` is not positive. Never negative:
        rounding in ``best`` must not reward a search.
    """
    gains = np.array([-np.inf if value is None else value for value in values], dtype=np.float64)
    so_far = np.maximum.accumulate(gains) if len(gains) else gains
    if best <= 0.0:
        return np.ones(len(gains))
    return np.clip(1.0 - np.maximum(so_far, 0.0) / best, 0.0, 1.0)


def evaluations_to(curve: Floats, target: float) -> int | None:
    """Evaluations until the curve was at most the target; None if it never was."""
    reached = np.flatnonzero(curve <= target)
    return int(reached[0]) + 1 if len(reached) else None


def area_under_curve(curve: Floats, budget: int) -> float:
    """Mean of the curve over a budget; a search that ended early keeps its last value, an empty one is worth 1."""
    if len(curve) == 0:
        return 1.0
    missing = max(0, budget - len(curve))
    return float((curve.sum() + missing * curve[-1]) / (len(curve) + missing))


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value with half of the weight on either side; the mean of two if exactly half lies below the upper one.

    Raises:
        ValueError: no value is given.
    """
    ordered, below = _ordered(values, weights)
    half = 0.5 * below[-1]
    upper = int(np.searchsorted(below, half * (1.0 - 1e-12)))
    is_split = abs(below[upper] - half) <= 1e-12 * below[-1] and upper + 1 < len(ordered)
    return float(0.5 * (ordered[upper] + ordered[upper + 1]) if is_split else ordered[upper])


def half_reached_by(values: Sequence[float], weights: Sequence[float], *, total: float) -> float | None:
    """The least value by which half of a total weight has arrived; None if less than half ever arrives.

    This is the median of data of which those that never arrive are unknown but large.

    Args:
        values: of those that arrived.
        weights: of those that arrived.
        total: weight of all, arrived or not.
    """
    if not len(values):
        return None
    ordered, below = _ordered(values, weights)
    arrived = np.flatnonzero(below >= 0.5 * total * (1.0 - 1e-12))
    return float(ordered[arrived[0]]) if len(arrived) else None


def _ordered(values: Sequence[float], weights: Sequence[float]) -> tuple[Floats, Floats]:
    """Values in ascending order and the weight up to each."""
    if not len(values):
        message = "the median of nothing is undefined"
        raise ValueError(message)
    array, order = np.asarray(values, dtype=np.float64), np.argsort(values, kind="stable")
    return array[order], np.cumsum(np.asarray(weights, dtype=np.float64)[order])


def hypervolume(gains: Floats) -> float:
    """Volume that points dominate above the origin, all objectives maximised.

    Three dimensions are swept from the highest third coordinate down, as in Fonseca, Paquete and Lopez-Ibanez, "An
    improved dimension-sweep algorithm for the hypervolume indicator" (CEC 2006): between two levels lies the
    two-dimensional staircase of the points above times the difference in level.

    Args:
        gains: shape (num_points, num_objectives), one to three objectives; a point that is not above the origin in
            every objective dominates nothing.

    Raises:
        ValueError: more than three objectives.
    """
    rows = np.asarray(gains, dtype=np.float64)
    if rows.size == 0:
        return 0.0
    num_objectives = rows.shape[1]
    if num_objectives > MAX_DIMENSIONS:
        message = f"{num_objectives} objectives: the hypervolume is computed for one to {MAX_DIMENSIONS}"
        raise ValueError(message)
    rows = rows[(rows > 0.0).all(axis=1)]
    if len(rows) == 0:
        return 0.0
    if num_objectives == 1:
        return float(rows.max())
    # Two objectives are three of which the third is always 1.
    padded = rows if num_objectives == MAX_DIMENSIONS else np.column_stack([rows, np.ones(len(rows))])
    ordered = padded[np.argsort(-padded[:, 2], kind="stable")]
    stairs, volume = _Staircase(), 0.0
    levels = [*ordered[:, 2].tolist(), 0.0]
    for (first, second, level), below in zip(ordered.tolist(), levels[1:], strict=True):
        stairs.add(first, second)
        volume += stairs.area * (level - below)
    return volume


class _Staircase:
    """The area that points dominate in two dimensions, kept up to date as points come."""

    def __init__(self) -> None:
        self.area = 0.0
        self._firsts: list[float] = []
        self._seconds: list[float] = []

    def add(self, first: float, second: float) -> None:
        """Add a point; firsts ascend and seconds descend strictly along the staircase."""
        firsts, seconds = self._firsts, self._seconds
        # Steps from `start` on are no better in either objective and go; the one at `right` may dominate the point.
        right = bisect_left(firsts, first)
        if right < len(firsts) and seconds[right] >= second:
            return
        stop = right + 1 if right < len(firsts) and firsts[right] == first else right
        start = right
        while start > 0 and seconds[start - 1] <= second:
            start -= 1
        self.area += self._gain(first, second, start=start, stop=stop)
        firsts[start:stop] = [first]
        seconds[start:stop] = [second]

    def _gain(self, first: float, second: float, *, start: int, stop: int) -> float:
        """Area won over the steps ``start:stop`` that the point replaces, and over the step that follows them."""
        left = self._firsts[start - 1] if start > 0 else 0.0
        heights = [*self._seconds[start:stop], self._seconds[stop] if stop < len(self._seconds) else 0.0]
        edges = [*self._firsts[start:stop], first]
        gain = 0.0
        for edge, height in zip(edges, heights, strict=True):
            gain += (edge - left) * (second - height)
            left = edge
        return gain


def normalise_gains(values: Floats, *, worst: Floats, best: Floats) -> Floats:
    """Objectives mapped so that 0 is the worst known value of each and 1 the best; 1 where both are the same.

    Args:
        values: shape (num_points, num_objectives), in the units of the objectives.
        worst: worst known value of each, shape (num_objectives,).
        best: best known value of each, same shape; the direction of an objective is that from worst to best.
    """
    width = best - worst
    is_flat = width == 0.0
    shares = (values - worst) / np.where(is_flat, 1.0, width)
    return np.where(is_flat, 1.0, shares)


def hypervolume_curve(gains: Sequence[Floats | None], *, num_objectives: int) -> Floats:
    """Hypervolume after each evaluation.

    Args:
        gains: normalised objectives of each evaluation, shape (num_objectives,); None where infeasible.
        num_objectives: of each.

    Returns:
        Shape (num_evaluations,), never falling.
    """
    front = np.empty((0, num_objectives))
    curve, volume = np.zeros(len(gains)), 0.0
    for index, gain in enumerate(gains):
        if gain is not None and not (front >= gain).all(axis=1).any():
            front = np.vstack([front[~(front <= gain).all(axis=1)], gain])
            volume = max(volume, hypervolume(front))
        curve[index] = volume
    return curve
