from __future__ import annotations

import numpy as np
import pytest

from phaze_opt.study.judging.statistics.bootstrap import difference_interval, mean_interval


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
