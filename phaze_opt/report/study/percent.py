"""Regrets and prices as people read them: percentages that stay readable down to a thousandth of a percent."""

from __future__ import annotations

SPACE = "\N{NO-BREAK SPACE}"
LEAST_PERCENT = 0.001
DECIMALS = ((99.95, 0), (9.995, 1), (0.0995, 2))
"""(least percentage, decimals): three digits from 1 on, two below."""


def format_percent(share: float) -> str:
    """Three significant digits at most: ``12.3 %``, ``0.042 %``; what is below 0.001 % but not zero says so."""
    percent = 100 * share
    if percent == 0:
        return f"0{SPACE}%"
    if abs(percent) < LEAST_PERCENT:
        return f"<{SPACE}{LEAST_PERCENT}{SPACE}%"
    decimals = next((places for least, places in DECIMALS if abs(percent) >= least), 3)
    return f"{percent:,.{decimals}f}{SPACE}%"


def format_target(target: float) -> str:
    """A target as it is named in headings: ``5 %``, ``0.1 %``."""
    return f"{100 * target:g}{SPACE}%"


def format_p(p_value: float) -> str:
    """A p-value: ``0.032``, ``< 0.001``."""
    return f"<{SPACE}0.001" if p_value < 0.001 else f"{p_value:.3f}"


def format_mean(value: float) -> str:
    """A mean of counts: one decimal below a hundred, unless it is zero."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")
