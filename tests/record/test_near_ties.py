"""Numbers compare equal where rounding alone tells them apart, and only there."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.record.near_ties import comparable, comparable_scores, is_at_most

values = st.floats(1e-300, 1e300)


@given(values)
def test_a_value_is_moved_by_less_than_its_tenth_digit(value):
    assert abs(float(comparable(value)) - value) <= 1e-10 * value
    assert comparable(-value) == -comparable(value)


@given(st.integers(1, 2**20), st.integers(-200, 200))
def test_values_of_few_digits_keep_their_bits_and_swallow_the_last_of_others(mantissa, exponent):
    value = float(np.ldexp(mantissa, exponent))
    assert comparable(value) == value
    assert comparable(np.nextafter(value, np.inf)) == comparable(np.nextafter(value, 0.0)) == value


@given(values, st.floats(1e-9, 1.0))
def test_order_is_kept_where_there_is_one(value, more):
    assert comparable(value) < comparable(value * (1.0 + more))


@given(values, st.integers(-2000, 2000), st.sampled_from((-1.0, 1.0)))
def test_what_is_at_most_is_so_on_the_grid(value, steps, sign):
    other = value * (1.0 + steps * 2.0**-44)
    for one, two in ((value, other), (other, value), (value, 0.0), (0.0, value), (value, np.inf), (np.nan, value)):
        has, most = sign * np.array([one, value]), sign * two
        assert is_at_most(has, most).tolist() == (comparable(has) <= comparable(most)).tolist()
        assert bool(is_at_most(sign * one, most)) == bool(comparable(sign * one) <= comparable(most))


def test_infinities_zero_and_shapes_stay():
    assert comparable([[0.0, np.inf], [-np.inf, 1.5]]).tolist() == [[0.0, np.inf], [-np.inf, 1.5]]
    assert np.isnan(comparable(np.nan))


def test_scores_are_told_apart_by_their_difference():
    assert comparable_scores(1e-14) == comparable_scores(-1e-14) == 0.0
    assert comparable_scores([-3.0, -3.0 + 1e-13]).tolist() == [-3.0, -3.0]
    assert comparable_scores(1e-5) > 0.0
