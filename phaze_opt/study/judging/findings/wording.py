"""Figures and lists as they stand in sentences."""

from __future__ import annotations

from collections.abc import Sequence

PERCENT = 100.0


def percent(share: float) -> str:
    """A share in percent, two significant digits below 10 %: ``0.53 %``, ``12 %``, ``0 %``."""
    value = PERCENT * share
    if value == 0.0:
        return "0 %"
    if abs(value) < 0.001:
        return "under 0.001 %" if value > 0.0 else "over -0.001 %"
    return f"{value:.0f} %" if abs(value) >= 10 else f"{value:.2g} %"


def percent_range(low: float, high: float, confidence: float, *, has_seeds: bool) -> str:
    """An interval of shares: ``95 % interval 0.2 % to 1.1 %``; one without width says why."""
    if low == high:
        return "no spread over seeds" if has_seeds else "one seed, no interval"
    return f"{percent(confidence)} interval {percent(low)} to {percent(high)}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def figure(value: float) -> str:
    """Three significant digits, without an exponent where that reads well: ``41``, ``3.46``, ``1200``."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
