"""Tests on ranks, by scipy, of samples and of treatments over blocks; Holm's correction; effects; cliques."""

import math
from collections.abc import Sequence

import numpy as np

from phaze_opt.record.arrays import Flags, Floats

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
