"""The range of a headline in words and as JSON."""

from dataclasses import asdict
from typing import Any

from phaze_opt.objective.headline_range import HeadlineRange, RangePart
from phaze_opt.report.text import format_number


def range_sentence(found: HeadlineRange) -> str:
    """One line: the lowest and the highest figure, and what each doubt alone makes of it."""
    parts = "; ".join(_words(part) for part in found.parts)
    ends = f"{format_number(found.low)} .. {format_number(found.high)}"
    if not found.parts:
        return f"No range: nothing is known of the error of {format_number(found.value)} samples/s."
    beyond = f" What was never measured of the plan is in none of them: {', '.join(found.unmeasured)}."
    return f"Range {ends} samples/s, each doubt alone: {parts}.{beyond if found.unmeasured else ''}"


def range_to_json(found: HeadlineRange | None) -> dict[str, Any] | None:
    """The range with its ends; null where none was asked for or nothing is feasible."""
    if found is None:
        return None
    parts = [asdict(part) for part in found.parts]
    return {"low": found.low, "high": found.high, "parts": parts, "unmeasured": list(found.unmeasured)}


def _words(part: RangePart) -> str:
    low, high = format_number(part.low), format_number(part.high)
    if part.low_setting == part.high_setting:
        return f"{part.name} {low} .. {high} ({part.low_setting})"
    return f"{part.name} {low} ({part.low_setting}) .. {high} ({part.high_setting})"
