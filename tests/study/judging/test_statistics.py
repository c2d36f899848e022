"""Regret, its curves and hypervolumes; tests on ranks; bootstrap intervals."""

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.record.arrays import Floats
from phaze_opt.study.judging.statistics import (
    area_under_curve,
    cliques,
    difference_interval,
    evaluations_to,
    friedman_p,
    half_reached_by,
    holm_adjust,
    hypervolume,
    hypervolume_curve,
    mann_whitney_p,
    mean_interval,
    mean_ranks,
    normalise_gains,
    paired_superiority,
    regret_curve,
    sign_p,
    signed_rank_lead,
    smallest_mann_whitney_p,
    smallest_sign_p,
    vargha_delaney,
    weighted_median,
    wilcoxon_p,
)

positive = st.floats(0.1, 1e6)
rows = st.lists(st.one_of(st.none(), positive), min_size=1, max_size=30)


def test_regret_curve_by_hand() -> None:
    curve = regret_curve([None, 50.0, 40.0, 100.0], 100.0)
    np.testing.assert_array_equal(curve, [1.0, 0.5, 0.5, 0.0])
    assert evaluations_to(curve, 0.5) == 2
    assert evaluations_to(curve, 0.0) == 4
    assert evaluations_to(curve[:3], 0.1) is None


def test_area_repeats_the_last_value_of_a_search_that_ended_early() -> None:
    curve = np.array([1.0, 0.5])
    assert area_under_curve(curve, 2) == 0.75
    assert area_under_curve(curve, 4) == pytest.approx((1.0 + 0.5 + 0.5 + 0.5) / 4)
    assert area_under_curve(curve, 1) == 0.75, "a search longer than the budget counts whole"
    assert area_under_curve(np.array([]), 4) == 1.0


@given(rows)
def test_curves_never_rise_and_end_at_the_regret_of_the_best(values: list[float | None]) -> None:
    best = 1e6
    curve = regret_curve(values, best)
    assert (np.diff(curve) <= 0.0).all()
    found = max((value for value in values if value is not None), default=0.0)
    assert curve[-1] == pytest.approx(1.0 - found / best)


def test_nothing_feasible_and_no_truth_is_all_regret() -> None:
    np.testing.assert_array_equal(regret_curve([None, None], 5.0), [1.0, 1.0])
    np.testing.assert_array_equal(regret_curve([None, None], 0.0), [1.0, 1.0])
    assert len(regret_curve([], 5.0)) == 0


@given(st.lists(positive, min_size=1, max_size=15))
def test_weighted_median_is_the_median_under_equal_weights_and_of_repeated_values(values: list[float]) -> None:
    assert weighted_median(values, [1.0] * len(values)) == pytest.approx(float(np.median(values)))
    repeats = [1 + index % 3 for index in range(len(values))]
    repeated = [value for value, count in zip(values, repeats, strict=True) for _ in range(count)]
    assert weighted_median(values, [float(count) for count in repeats]) == pytest.approx(float(np.median(repeated)))


def test_half_reached_counts_what_never_arrives() -> None:
    assert half_reached_by([3.0, 9.0, 5.0], [1.0, 1.0, 1.0], total=3.0) == 5.0
    assert half_reached_by([3.0, 9.0], [1.0, 1.0], total=4.0) == 9.0
    assert half_reached_by([3.0], [1.0], total=3.0) is None
    assert half_reached_by([], [], total=3.0) is None
    assert half_reached_by([3.0, 9.0], [3.0, 1.0], total=4.0) == 3.0


def by_inclusion_exclusion(gains: Floats) -> float:
    total = 0.0
    for size in range(1, len(gains) + 1):
        for chosen in combinations(gains, size):
            total -= (-1.0) ** size * float(np.prod(np.maximum(np.min(chosen, axis=0), 0.0)))
    return total


def by_cells_of_a_grid(gains: Floats, size: int) -> float:
    axes = np.meshgrid(*[np.arange(size) + 0.5] * gains.shape[1], indexing="ij")
    cells = np.stack([axis.ravel() for axis in axes], axis=1)
    return float((gains[:, None, :] >= cells[None, :, :]).all(axis=2).any(axis=0).sum())


@pytest.mark.parametrize(
    ("gains", "volume"),
    [
        ([[1.0, 1.0]], 1.0),
        ([[1.0, 0.5], [0.5, 1.0]], 0.75),
        ([[1.0, 0.5], [0.5, 1.0], [0.5, 0.5], [0.2, 0.9]], 0.75),
        ([[1.0, 0.0], [0.0, 1.0]], 0.0),
        ([[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]], 4.0),
        ([[0.3], [0.7]], 0.7),
        ([[1.0, -1.0]], 0.0),
    ],
)
def test_by_hand(gains: list[list[float]], volume: float) -> None:
    assert hypervolume(np.array(gains)) == pytest.approx(volume, abs=1e-15)


@pytest.mark.parametrize("num_objectives", [2, 3])
@given(data=st.data())
@settings(max_examples=80)
def test_equals_inclusion_exclusion_and_counting_cells(num_objectives: int, data: st.DataObject) -> None:
    """Small integers, so that ties in every coordinate are common."""
    row = st.lists(st.integers(0, 5), min_size=num_objectives, max_size=num_objectives)
    gains = np.array(data.draw(st.lists(row, min_size=1, max_size=8)), dtype=np.float64)
    volume = hypervolume(gains)
    assert volume == pytest.approx(by_inclusion_exclusion(gains), abs=1e-9)
    assert volume == pytest.approx(by_cells_of_a_grid(gains, 5), abs=1e-9)


def test_equals_monte_carlo_on_a_large_front() -> None:
    rng = np.random.default_rng(7)
    front = np.abs(rng.normal(size=(60, 3)))
    front /= np.linalg.norm(front, axis=1, keepdims=True)
    samples = rng.random((200_000, 3))
    hits = np.zeros(len(samples), dtype=bool)
    for point in front:
        hits |= (samples <= point).all(axis=1)
    share = hits.mean()
    assert hypervolume(front) == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / len(samples)))


def test_equals_the_hypervolume_of_optuna() -> None:
    from optuna._hypervolume import compute_hypervolume

    rng = np.random.default_rng(3)
    for num_objectives in (2, 3):
        gains = rng.random((40, num_objectives))
        assert hypervolume(gains) == pytest.approx(compute_hypervolume(-gains, np.zeros(num_objectives)))


def test_more_objectives_than_it_can_are_refused() -> None:
    with pytest.raises(ValueError, match="4 objectives"):
        hypervolume(np.ones((2, 4)))


def test_curve_grows_to_the_hypervolume_of_all() -> None:
    rng = np.random.default_rng(1)
    gains = [None if index % 5 == 0 else row for index, row in enumerate(rng.random((30, 3)))]
    curve = hypervolume_curve(gains, num_objectives=3)
    assert curve[0] == 0.0
    assert (np.diff(curve) >= 0.0).all()
    for stop in (5, 17, 30):
        seen = np.array([row for row in gains[:stop] if row is not None])
        assert curve[stop - 1] == pytest.approx(hypervolume(seen))


def test_normalised_gains_point_from_worst_to_best() -> None:
    values = np.array([[10.0, 5.0, 3.0], [20.0, 1.0, 3.0]])
    gains = normalise_gains(values, worst=np.array([10.0, 5.0, 3.0]), best=np.array([30.0, 1.0, 3.0]))
    np.testing.assert_allclose(gains, [[0.0, 0.0, 1.0], [0.5, 1.0, 1.0]])


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


def test_data_that_do_not_vary_have_no_width() -> None:
    options = {"confidence": 0.95, "num_resamples": 200}
    assert mean_interval([np.zeros(10)], [1.0], **options) == (0.0, 0.0)
    assert mean_interval([np.array([0.25])], [1.0], **options) == (0.25, 0.25)
    assert mean_interval([np.full(3, 1.0), np.full(3, 4.0)], [2.0, 1.0], **options) == pytest.approx((2.0, 2.0))
    assert difference_interval([np.ones(3)], [np.full(5, 3.0)], [1.0], **options) == (2.0, 2.0)


def test_one_outlier_among_zeros_gives_a_finite_interval() -> None:
    low, high = mean_interval([np.array([0.0, 0.0, 0.0, 0.0, 1.0])], [1.0], confidence=0.95, num_resamples=2000)
    assert 0.0 <= low < 0.2 < high <= 1.0


def test_intervals_cover_the_mean_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        low, high = mean_interval([rng.exponential(size=25)], [1.0], confidence=0.9, num_resamples=500)
        covered += low <= 1.0 <= high
    assert 0.80 * 200 <= covered <= 0.96 * 200


def test_a_normal_mean_has_the_classic_interval() -> None:
    sample = np.random.default_rng(5).normal(size=400)
    low, high = mean_interval([sample], [1.0], confidence=0.95, num_resamples=4000)
    half = 1.96 * sample.std() / 20
    assert low == pytest.approx(sample.mean() - half, abs=0.01)
    assert high == pytest.approx(sample.mean() + half, abs=0.01)


def test_a_skewed_sample_moves_the_interval_to_its_tail() -> None:
    """Percentiles of resampled means, by hand, lie to the left of the corrected and accelerated interval."""
    rng = np.random.default_rng(1)
    sample = rng.exponential(size=12) ** 2
    low, high = mean_interval([sample], [1.0], confidence=0.95, num_resamples=4000)
    plain = np.quantile(sample[rng.integers(12, size=(4000, 12))].mean(axis=1), [0.025, 0.975])
    assert low > plain[0] * 1.05
    assert high > plain[1] * 1.05


def test_strata_are_resampled_apart() -> None:
    """Two strata far apart: pooling them would give an interval ten times wider."""
    rng = np.random.default_rng(2)
    strata = [rng.normal(0.0, 0.1, 20), rng.normal(10.0, 0.1, 20)]
    low, high = mean_interval(strata, [1.0, 1.0], confidence=0.95, num_resamples=1000)
    assert high - low < 0.1
    assert low < 5.0 + 0.1
    weighted = mean_interval(strata, [3.0, 1.0], confidence=0.95, num_resamples=1000)
    assert weighted[0] < 2.55
    assert weighted[1] > 2.45


def test_the_difference_has_the_sign_of_second_minus_first() -> None:
    rng = np.random.default_rng(2)
    first, second = [rng.normal(1.0, 0.1, 15)], [rng.normal(2.0, 0.1, 15)]
    low, high = difference_interval(first, second, [1.0], confidence=0.95, num_resamples=1000)
    assert 0.8 < low < high < 1.2


def test_the_same_data_have_the_same_interval() -> None:
    sample = [np.random.default_rng(0).random(9)]
    one = mean_interval(sample, [1.0], confidence=0.95, num_resamples=500)
    assert one == mean_interval(sample, [1.0], confidence=0.95, num_resamples=500)
