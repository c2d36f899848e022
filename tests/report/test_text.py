"""Figures as text keep their value: reading one back gives the number to three digits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phaze_opt.report.text import (
    TIME_UNITS,
    counted,
    format_number,
    format_ratio,
    format_scaled,
    format_share,
    format_time,
)

POSITIVE = st.floats(min_value=1e-8, max_value=1e14)


@given(value=POSITIVE)
def test_numbers_keep_three_digits(value: float) -> None:
    text = format_number(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-3)


@given(value=POSITIVE)
def test_times_keep_three_digits_in_their_unit(value: float) -> None:
    number, unit = format_time(value).split()
    scale = {name: factor for factor, name in TIME_UNITS}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=6e-3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (counted(1, "device"), "1 device"),
        (counted(1024, "device"), "1,024 devices"),
        (counted(0, "search", "searches"), "0 searches"),
        (format_number(0), "0.00"),
        (format_number(76004.4), "76,004"),
        (format_number(43.04), "43.0"),
        (format_number(0.2547), "0.255"),
        (format_time(0), "0 s"),
        (format_time(0.0539), "53.9 ms"),
        (format_time(21.6e-6), "21.6 us"),
        (format_share(0.42).replace("\N{NO-BREAK SPACE}", " "), "42.0 %"),
        (format_share(1e-5).replace("\N{NO-BREAK SPACE}", " "), "< 0.1 %"),
        (format_share(0.0).replace("\N{NO-BREAK SPACE}", " "), "0.0 %"),
        (format_scaled(5.51e14, "FLOP/s"), "551 TFLOP/s"),
        (format_scaled(950.0, "FLOP/s"), "950 FLOP/s"),
        (format_ratio(2.514), "2.51x"),
        (format_ratio(0), "-"),
    ],
)
def test_examples(text: str, expected: str) -> None:
    assert text == expected
