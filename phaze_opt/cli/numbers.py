"""Numbers on the command line: read and checked at once, refused with the option, the value and the rule."""

from __future__ import annotations

import math
from collections.abc import Callable

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import shorten

MAX_COUNT = 10**9
"""Largest count an option takes unless it says otherwise; products of such counts stay within 64 bits."""
MAX_MICRO_BATCH = 1 << 16
MAX_HBM_GB = 1 << 20
MIN_NUMBER, MAX_NUMBER = 1e-15, 1e15
"""Of what an option takes as a number: sums and products of such numbers stay finite."""


def integer(option: str, *, low: int = 1, high: int = MAX_COUNT) -> Callable[[str | int], int]:
    """A parser of integers from ``low`` to ``high`` for a typer option (which also runs it on the default).

    The parser raises `InputError` for anything else.
    """

    def parse(text: str | int) -> int:
        value = read_integer(str(text), low=low, high=high)
        if value is None:
            message = f"{shorten(str(text))} must be an integer from {low:,} to {high:,}"
            raise InputError(message, source=option)
        return value

    return parse


def positive(option: str) -> Callable[[str | float], float]:
    """A parser of positive numbers of a sensible size for a typer option; it raises `InputError` for anything else."""

    def parse(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            message = f"{shorten(str(text))} must be a positive, finite number"
            raise InputError(message, source=option)
        if not MIN_NUMBER <= value <= MAX_NUMBER:
            message = f"{shorten(str(text))} must be from {MIN_NUMBER:g} to {MAX_NUMBER:g}"
            raise InputError(message, source=option)
        return value

    return parse


def relative_gap(option: str) -> Callable[[str | float], float]:
    """A parser of relative gaps, at least 0 and below 1; it raises `InputError` for anything else."""

    def parse(text: str | float) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value < 1:
            message = f"{shorten(str(text))} must be a relative gap, at least 0 and below 1"
            raise InputError(message, source=option)
        return value

    return parse


def read_integer(text: str, *, low: int, high: int) -> int | None:
    """The integer that a text spells in plain decimal digits, if it is one within the limits."""
    word = text.strip()
    digits = word.removeprefix("-").lstrip("0") or "0"
    if not word.isascii() or not word.removeprefix("-").isdigit() or len(digits) > len(str(high)):
        return None
    value = -int(digits) if word.startswith("-") else int(digits)
    return value if low <= value <= high else None


def parse_integers(text: str, *, option: str, high: int) -> tuple[int, ...]:
    """Comma-separated positive integers up to ``high``, ascending and distinct.

    Raises:
        InputError: one of them is not.
    """
    values = []
    for word in text.split(","):
        value = read_integer(word, low=1, high=high)
        if value is None:
            message = (
                f"{shorten(text)} must be integers from 1 to {high:,} separated by commas, such as 1,2,4,8; "
                f"{shorten(word.strip())} is not"
            )
            raise InputError(message, source=option)
        values.append(value)
    return tuple(sorted(set(values)))
