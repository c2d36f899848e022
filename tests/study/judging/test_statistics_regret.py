from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.study.judging.statistics.regret import (
    area_under_curve,
    evaluations_to,
    half_reached_by,
    regret_curve,
    weighted_median,
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
