from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.study.judging.statistics.rank_tests import (
    cliques,
    friedman_p,
    holm_adjust,
    mann_whitney_p,
    mean_ranks,
    paired_superiority,
    sign_p,
    signed_rank_lead,
    smallest_mann_whitney_p,
    smallest_sign_p,
    vargha_delaney,
    wilcoxon_p,
)

# fmt: off
ROUNDING_FIRST_BASE = np.array([
    [5.40, 5.50, 5.55], [5.85, 5.70, 5.75], [5.20, 5.60, 5.50], [5.55, 5.50, 5.40], [5.90, 5.85, 5.70],
    [5.45, 5.55, 5.60], [5.40, 5.40, 5.35], [5.45, 5.50, 5.35], [5.25, 5.15, 5.00], [5.85, 5.80, 5.70],
    [5.25, 5.20, 5.10], [5.65, 5.55, 5.45], [5.60, 5.35, 5.45], [5.05, 5.00, 4.95], [5.50, 5.50, 5.40],
    [5.45, 5.55, 5.50], [5.55, 5.55, 5.35], [5.45, 5.50, 5.55], [5.50, 5.45, 5.25], [5.65, 5.60, 5.40],
    [5.70, 5.65, 5.55], [6.30, 6.30, 6.25],
])
"""Hollander and Wolfe, Nonparametric Statistical Methods (1973), p. 140: three ways to round first base, 22 players."""

DEMSAR_RANKS = np.array([
    [4, 3, 2, 1], [1, 2, 3, 4], [4, 1, 2, 3], [4, 1, 3, 2], [4, 2, 3, 1], [1, 2.5, 4, 2.5], [3, 2, 4, 1],
    [2.5, 2.5, 4, 1], [4, 3, 2, 1], [2.5, 2.5, 2.5, 2.5], [4, 2.5, 1, 2.5], [3, 2, 4, 1], [4, 1, 2, 3], [3, 1, 4, 2],
])
"""Demsar (JMLR 7, 2006), table 6: ranks of four variants of C4.5 on 14 data sets."""
# fmt: on


def test_friedman_of_hollander_and_wolfe() -> None:
    """R's friedman.test documents chi-squared = 11.143, df = 2, p-value = 0.003805."""
    p_value = friedman_p(ROUNDING_FIRST_BASE)
    assert p_value == pytest.approx(0.003805, abs=5e-7)
    assert p_value == pytest.approx(math.exp(-11.142857142857142 / 2))


def test_mean_ranks_of_demsar() -> None:
    ranks = mean_ranks(DEMSAR_RANKS)
    np.testing.assert_allclose(ranks, [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    chi_square = 12 * 14 / (4 * 5) * ((ranks**2).sum() - 4 * 25 / 4)
    assert chi_square == pytest.approx(9.28, abs=5e-3)
    p_value = friedman_p(DEMSAR_RANKS)
    assert p_value is not None
    assert p_value < 0.026, "9.28 with three degrees of freedom; the correction for ties only sharpens it"


def test_friedman_without_a_test() -> None:
    assert friedman_p(np.ones((5, 2))) is None
    assert friedman_p(np.ones((1, 3))) is None
    assert friedman_p(np.ones((5, 3))) == 1.0


def test_holm_of_a_worked_example() -> None:
    """Four hypotheses at 0.01, 0.04, 0.03, 0.005 (the example of Wikipedia's article on the procedure)."""
    assert holm_adjust([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm_adjust([]) == ()
    assert holm_adjust([0.9, 0.8]) == (1.0, 1.0)


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_holm_rejects_what_stepping_down_rejects(p_values: list[float]) -> None:
    level, rejected = 0.05, set()
    for step, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[index] * (len(p_values) - step) > level:
            break
        rejected.add(index)
    adjusted = holm_adjust(p_values)
    assert {index for index, value in enumerate(adjusted) if value <= level} == rejected


values = st.lists(st.integers(0, 4), min_size=1, max_size=5)


@given(values, values)
@settings(max_examples=60, deadline=None)
def test_mann_whitney_equals_trying_all_arrangements(first: list[int], second: list[int]) -> None:
    """Twice the smaller tail, as two-sided permutation tests are defined in scipy."""
    pooled = np.array([*first, *second], dtype=np.float64)

    def wins(rows: tuple[int, ...]) -> float:
        is_first = np.isin(np.arange(len(pooled)), rows)
        return vargha_delaney(pooled[is_first], pooled[~is_first])

    seen = wins(tuple(range(len(first))))
    all_wins = np.array([wins(rows) for rows in combinations(range(len(pooled)), len(first))])
    low, high = (all_wins <= seen + 1e-12).mean(), (all_wins >= seen - 1e-12).mean()
    expected = 1.0 if np.ptp(pooled) == 0.0 else min(1.0, 2.0 * min(low, high))
    assert mann_whitney_p(np.array(first, dtype=float), np.array(second, dtype=float)) == pytest.approx(expected)


@pytest.mark.parametrize(("num_first", "num_second"), [(1, 1), (2, 3), (5, 5), (10, 10)])
def test_smallest_mann_whitney_p_is_attained(num_first: int, num_second: int) -> None:
    first, second = np.arange(num_first, dtype=float), 100.0 + np.arange(num_second)
    assert mann_whitney_p(first, second) == pytest.approx(smallest_mann_whitney_p(num_first, num_second))


def test_mann_whitney_with_nothing_to_tell() -> None:
    assert mann_whitney_p(np.zeros(10), np.zeros(10)) == 1.0
    assert mann_whitney_p(np.array([]), np.zeros(3)) == 1.0


@pytest.mark.parametrize("num_blocks", [1, 3, 5, 6, 10])
def test_smallest_wilcoxon_p_is_attained(num_blocks: int) -> None:
    better = np.arange(num_blocks, dtype=float)
    worse = better + 1.0 + 0.1 * np.arange(num_blocks)
    assert wilcoxon_p(better, worse) == pytest.approx(smallest_sign_p(num_blocks))
    assert wilcoxon_p(worse, better) == pytest.approx(smallest_sign_p(num_blocks))


def test_six_blocks_are_the_fewest_for_a_claim() -> None:
    assert smallest_sign_p(5) > 0.05 > smallest_sign_p(6)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_wilcoxon_equals_trying_all_signs(differences: list[int]) -> None:
    """Ranks of absolute differences with ties shared; those of zeros are split, so they sit on both sides."""
    from scipy.stats import rankdata

    difference = np.array(differences, dtype=np.float64)
    p_value = wilcoxon_p(difference, np.zeros(len(difference)))
    if not difference.any():
        assert p_value == 1.0
        return
    ranks = rankdata(np.abs(difference))
    zeros = 0.5 * ranks[difference == 0].sum()
    moving = ranks[difference != 0]
    sums = np.array(
        [zeros + moving[np.array(signs, dtype=bool)].sum() for signs in product((0, 1), repeat=len(moving))]
    )
    seen = zeros + ranks[difference > 0].sum()
    expected = min(1.0, 2.0 * min((sums <= seen + 1e-9).mean(), (sums >= seen - 1e-9).mean()))
    assert p_value == pytest.approx(expected)


def test_wilcoxon_of_equal_treatments() -> None:
    assert wilcoxon_p(np.ones(8), np.ones(8)) == 1.0
    assert wilcoxon_p(np.array([]), np.array([])) == 1.0


def test_sign_test_by_hand() -> None:
    sample = np.array([2.0, 3.0, 4.0, 5.0, 6.0, 1.0])
    assert sign_p(sample, 1.0) == pytest.approx(2 / 2**5), "five above, one equal"
    assert sign_p(np.ones(4), 1.0) == 1.0
    assert sign_p(np.arange(10, dtype=float), -1.0) == pytest.approx(smallest_sign_p(10))


def test_cliques_are_maximal_runs() -> None:
    def different(size: int, *pairs: tuple[int, int]) -> np.ndarray:
        matrix = np.zeros((size, size), dtype=bool)
        for first, second in pairs:
            matrix[first, second] = matrix[second, first] = True
        return matrix

    assert cliques(different(3)) == ((0, 2),)
    assert cliques(different(4, (0, 2), (0, 3), (1, 3))) == ((0, 1), (1, 2), (2, 3))
    assert cliques(different(4, (0, 3))) == ((0, 2), (1, 3))
    assert cliques(different(3, (0, 1), (0, 2), (1, 2))) == ()
    assert cliques(different(1)) == ()


def test_effect_sizes_by_hand() -> None:
    low, high = np.array([1.0, 2.0, 3.0]), np.array([2.0, 3.0, 4.0])
    assert vargha_delaney(low, high) == pytest.approx((6 + 0.5 * 2) / 9)
    assert vargha_delaney(low, low) == 0.5
    assert vargha_delaney(low, low + 10.0) == 1.0
    assert paired_superiority(low, high) == 1.0
    assert paired_superiority(low, np.array([1.0, 1.0, 9.0])) == 0.5


def test_the_side_of_a_signed_rank_test_is_that_of_its_rank_sums() -> None:
    """Differences 1, 2, 3 and -10: the first treatment wins three blocks of four, by ranks 1 + 2 + 3 against 4."""
    first = np.array([0.0, 0.0, 0.0, 10.0])
    second = np.array([1.0, 2.0, 3.0, 0.0])
    assert signed_rank_lead(first, second) == 2.0
    assert signed_rank_lead(second, first) == -2.0
    assert signed_rank_lead(first, first) == 0.0
