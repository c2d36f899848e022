"""Figures as people read them: units, three significant digits, shares, values of a goal."""

import math
from collections.abc import Sequence
from itertools import combinations

from phaze_opt.objective.goals import Goal
from phaze_opt.record.result_fields import Digits, ResultField
from phaze_opt.units import bytes_to_gib, bytes_to_mib

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
GOAL_UNITS = {
    Goal.THROUGHPUT: "samples/s",
    Goal.THROUGHPUT_PER_TDP: "samples/s/kW",
    Goal.THROUGHPUT_PER_USD: "samples/USD",
    Goal.THROUGHPUT_PER_JOULE: "samples/J",
    Goal.PARETO: "samples/s",
}
"""Units in which values of a goal are read, of a front of its fastest design; files and JSON keep samples/s/W."""
WATTS_PER_KILOWATT = 1000.0
LARGE = 100.0
"""From here on amounts are written to the unit."""
LEAST_DIGITS, MOST_DIGITS = 3, 7
"""Of figures that are to be told apart."""
SAME = 1e-9
"""Relative difference up to which two figures are one, but for rounding."""


def format_number(value: float) -> str:
    """Three significant digits; thousands are grouped and never in exponent form."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 or value == 0 else f"{value:.3g}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun, one or many: ``1 seed``, ``3 seeds``, ``1,024 devices``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def format_amount(value: float) -> str:
    """In words from a thousand million on, in full below."""
    for scale, word in ((1e12, "trillion"), (1e9, "billion")):
        if value >= scale:
            return f"{format_number(value / scale)} {word}"
    return f"{value:,.0f}" if abs(value) >= LARGE else format_number(value)


def numbers_apart(values: Sequence[float]) -> tuple[str, ...]:
    """Figures with as many digits, three to seven, as tell apart all that differ; ties read the same."""
    for digits in range(LEAST_DIGITS, MOST_DIGITS):
        texts = tuple(_with_digits(value, digits) for value in values)
        if all(
            (one == other) == math.isclose(first, second, rel_tol=SAME)
            for (first, one), (second, other) in combinations(zip(values, texts, strict=True), 2)
        ):
            return texts
    return tuple(_with_digits(value, MOST_DIGITS) for value in values)


def _with_digits(value: float, digits: int) -> str:
    """So many significant digits; those before the point are never rounded away."""
    if value == 0.0:
        return "0"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def format_scaled(value: float, unit: str) -> str:
    """With a decimal prefix from a million on: ``35.5 Mtokens/s``."""
    for scale, prefix in SCALES:
        if abs(value) >= scale:
            return f"{format_number(value / scale)} {prefix}{unit}"
    return f"{format_number(value)} {unit}"


def format_time(seconds: float) -> str:
    """In s, ms, us or ns."""
    if seconds == 0:
        return "0 s"
    for scale, unit in TIME_UNITS:
        if abs(seconds) >= scale:
            return f"{format_number(seconds / scale)} {unit}"
    return f"{seconds:.3g} s"


def format_share(share: float) -> str:
    """A share as a percentage: one decimal, ``< 0.1 %`` for what would read as zero; its space does not break."""
    if 0 < share < 0.0005:
        return "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def format_percentage(share: float) -> str:
    """A gap or a regret: two digits, three from ten per cent: ``0.53 %``, ``26.5 %``."""
    return f"{100.0 * share:.2g} %" if abs(share) < 0.1 else f"{100.0 * share:.3g} %"


def format_ratio(ratio: float) -> str:
    """A factor: ``2.51x``; ``-`` where there is nothing to compare with."""
    return f"{ratio:.2f}x" if ratio > 0 else "-"


def format_figure(figure: ResultField, value: float) -> str:
    """A declared figure with the digits that people read it with."""
    return _DIGITS[figure.digits](value * figure.scale)


def format_mib(num_bytes: float) -> str:
    """A buffer in binary megabytes."""
    return f"{bytes_to_mib(num_bytes):g} MB"


def format_gib(num_bytes: float) -> str:
    """What a memory holds; a chip's capacity is said in its maker's GB (`units.gib_to_bytes`)."""
    return f"{bytes_to_gib(num_bytes):.3g} GiB"


def format_capacity(num_bytes: float) -> str:
    """The capacity of a chip's memory in its maker's GB, which are binary."""
    return f"{bytes_to_gib(num_bytes):.3g} GB"


def shown_value(goal: Goal, value: float) -> float:
    """A value of a goal in the unit of `GOAL_UNITS`.

    Args:
        goal: throughput or throughput per TDP.
        value: samples/s, or samples/s/W.
    """
    return value * WATTS_PER_KILOWATT if goal is Goal.THROUGHPUT_PER_TDP else value


def format_value(goal: Goal, value: float) -> str:
    """A value of the goal with enough digits to tell an incumbent from its bound, or from the runner-up."""
    value = shown_value(goal, value)
    return f"{value:,.1f}" if value >= 1000.0 else f"{value:.6g}"


_DIGITS = {
    Digits.NUMBER: format_number,
    Digits.SHARE: format_share,
    Digits.TIME: format_time,
    Digits.AMOUNT: format_amount,
    Digits.COUNT: "{:,.0f}".format,
    Digits.BYTES: format_gib,
}
