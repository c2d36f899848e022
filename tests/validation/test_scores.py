"""Scores against figures worked out by hand and against definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.validation.result import mape, mape_by_cell, score


def test_figures_by_hand():
    measured = np.array([1.0, 2.0, 4.0, 10.0])
    predicted = np.array([1.1, 1.8, 4.0, 12.0])
    # Errors: +10 %, -10 %, 0 %, +20 %.
    found = score(predicted, measured)
    assert found.num_rows == 4
    assert found.mape == pytest.approx(10.0)
    assert found.median_ape == pytest.approx(10.0)
    assert found.bias == pytest.approx(5.0)
    # Sorted 0, 10, 10, 20: the 0.9 quantile lies at place 2.7.
    assert found.p90_ape == pytest.approx(17.0)
    assert found.spearman == pytest.approx(1.0)
    assert found.kendall == pytest.approx(1.0)


def test_rank_correlations_by_definition():
    measured = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    predicted = np.array([2.0, 1.0, 3.0, 5.0, 4.0])
    found = score(predicted, measured)
    # Two swapped neighbours of ten pairs: tau = (8 - 2) / 10; Spearman 1 - 6 sum d^2 / (n (n^2 - 1)), d^2 summing to 4.
    assert found.kendall == pytest.approx(0.6)
    assert found.spearman == pytest.approx(1 - 6 * 4 / (5 * 24))


def test_too_few_rows_have_no_rank():
    found = score(np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert math.isnan(found.spearman)
    constant = score(np.ones(5), np.arange(1.0, 6.0))
    assert math.isnan(constant.spearman)
    assert math.isnan(constant.kendall)


def test_nothing_scored_is_not_a_number():
    found = score(np.array([]), np.array([]))
    assert found.num_rows == 0
    assert math.isnan(found.mape)
    assert math.isnan(mape(np.array([]), np.array([])))
    assert math.isnan(mape_by_cell(np.array([]), np.array([]), []))


def test_every_cell_counts_once():
    measured = np.ones(5)
    predicted = np.array([1.1, 1.1, 1.1, 1.1, 1.5])
    assert mape_by_cell(predicted, measured, ["a", "a", "a", "a", "b"]) == pytest.approx((10 + 50) / 2)
    assert mape(predicted, measured) == pytest.approx((4 * 10 + 50) / 5)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=30), st.floats(0.5, 2.0))
def test_a_common_factor_is_the_error(times, factor):
    measured = np.array(times)
    found = score(measured * factor, measured)
    assert found.mape == pytest.approx(100 * abs(factor - 1), abs=1e-9)
    assert found.bias == pytest.approx(100 * (factor - 1), abs=1e-9)
    assert found.median_ape == pytest.approx(found.p90_ape, abs=1e-9)
