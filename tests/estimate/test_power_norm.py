"""The p-norm of two times: its two ends, Pythagoras, and no loss at extreme sizes."""

import math

import numpy as np
import pytest

from phaze_opt.estimate.machine import power_norm


@pytest.mark.parametrize(("order", "expected"), [(1.0, 7.0), (2.0, 5.0), (math.inf, 4.0), (3.0, 91 ** (1 / 3))])
def test_closed_forms(order, expected):
    assert power_norm(3.0, 4.0, order) == pytest.approx(expected, rel=1e-15)
    assert power_norm(4.0, 3.0, order) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("order", [1.0, 12.0, math.inf])
def test_nothing_beside_a_time_leaves_it_as_it_is(order):
    assert power_norm(0.0, 2e-6, order) == 2e-6
    assert power_norm(0.0, 0.0, order) == 0.0


def test_tiny_and_huge_times_keep_their_digits():
    for scale in (1e-280, 1e280):
        assert power_norm(3 * scale, 4 * scale, 12.0) / scale == pytest.approx(float(power_norm(3.0, 4.0, 12.0)))


def test_an_order_for_every_element():
    found = power_norm(np.full(3, 3.0), np.full(3, 4.0), np.array([1.0, 2.0, math.inf]))
    assert found == pytest.approx([7.0, 5.0, 4.0])
