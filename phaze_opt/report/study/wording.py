"""Figures, lists and designs of a study in words: as tables show them, and as sentences do."""

from collections.abc import Sequence

from phaze_opt.objective.scenario import CommonMean
from phaze_opt.report.text import counted

SPACE = "\N{NO-BREAK SPACE}"
LEAST_PERCENT = 0.001
DECIMALS = ((99.95, 0), (9.995, 1), (0.0995, 2))
"""(least percentage, decimals): three digits from 1 on, two below."""
MAX_LISTED = 4
"""Conditions named before only their number is given."""


def format_percent(share: float) -> str:
    """Three significant digits at most: ``12.3 %``, ``0.042 %``; what is below 0.001 % but not zero says so."""
    value = 100 * share
    if value == 0:
        return f"0{SPACE}%"
    if abs(value) < LEAST_PERCENT:
        return f"<{SPACE}{LEAST_PERCENT}{SPACE}%"
    decimals = next((places for least, places in DECIMALS if abs(value) >= least), 3)
    return f"{value:,.{decimals}f}{SPACE}%"


def format_target(target: float) -> str:
    """A target as it is named in headings: ``5 %``, ``0.1 %``."""
    return f"{100 * target:g}{SPACE}%"


def format_p(p_value: float) -> str:
    """A p-value: ``0.032``, ``< 0.001``."""
    return f"<{SPACE}0.001" if p_value < 0.001 else f"{p_value:.3f}"


def format_mean(value: float) -> str:
    """A mean of counts: one decimal below a hundred, unless it is zero."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}".removesuffix(".0")


def mean_name(mean: str) -> str:
    """What designs are chosen by, in words: ``arithmetic mean``, ``worst case``."""
    return "worst case" if mean == CommonMean.WORST.value else f"{mean} mean"


def percent(share: float) -> str:
    """A share in a sentence, two significant digits below 10 %: ``0.53 %``, ``12 %``, ``0 %``."""
    value = 100.0 * share
    if value == 0.0:
        return "0 %"
    if abs(value) < LEAST_PERCENT:
        return f"under {LEAST_PERCENT} %" if value > 0.0 else f"over -{LEAST_PERCENT} %"
    return f"{value:.0f} %" if abs(value) >= 10 else f"{value:.2g} %"


def percent_range(low: float, high: float, confidence: float, *, has_seeds: bool) -> str:
    """An interval of shares: ``95 % interval 0.2 % to 1.1 %``; one without width says why."""
    if low == high:
        return "no spread over seeds" if has_seeds else "one seed, no interval"
    return f"{percent(confidence)} interval {percent(low)} to {percent(high)}"


def listed(names: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def named(keys: Sequence[str]) -> str:
    """Conditions by name, or how many."""
    return listed(keys) if len(keys) <= MAX_LISTED else f"{len(keys)} conditions"


def counted_mean(value: float, noun: str) -> str:
    """A mean count with its noun; ``no probes`` for none."""
    if value == 0.0:
        return f"no {noun}s"
    return counted(int(value), noun) if value == int(value) else f"{figure(value)} {noun}s"


def figure(value: float) -> str:
    """Three significant digits, without an exponent where that reads well: ``41``, ``3.46``, ``1200``."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def times(ratio: float) -> str:
    """A factor: ``2.5``, ``31``."""
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def effect_word(effect: float) -> str:
    """The usual word for a Vargha-Delaney A: their thresholds 0.56, 0.64 and 0.71 on the better side."""
    size = max(effect, 1.0 - effect)
    if size < 0.56:
        return "negligible"
    if size < 0.64:
        return "small"
    return "medium" if size < 0.71 else "large"
