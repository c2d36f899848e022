"""The smallest, coolest and cheapest designs near the best, as a table and as JSON."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.least_within import LeastDesign, LeastOf
from phaze_opt.report.chip import chip_fields
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import GOAL_UNITS, format_number, format_value

UNITS = {LeastOf.SMALLEST: "mm2", LeastOf.COOLEST: "W", LeastOf.CHEAPEST: "USD"}


def least_table(found: Sequence[LeastDesign], *, goal: Goal, looked_at: str) -> TableContent:
    """One row a share and saving.

    Args:
        found: the designs.
        goal: what the shares are of.
        looked_at: which designs those that are not proved are the least of.
    """
    fields: Fields[LeastDesign] = (
        words("within", lambda least: f"{100.0 * least.within:g} %"),
        words("", lambda least: least.saving.value),
        number("takes", lambda least: f"{format_number(least.amount)} {UNITS[least.saving]}"),
        *chip_fields(lambda least: least.point),
        number(GOAL_UNITS[goal], lambda least: format_value(goal, least.value)),
        words("known", lambda least: "proved" if least.is_proved else "found"),
    )
    has_found = any(not least.is_proved for least in found)
    note = f"found: the least of {looked_at}" if has_found else "proved: no other design so near the best takes less"
    return table_of("Smallest, coolest and cheapest near the best", fields, found, note)


def least_to_json(found: Sequence[LeastDesign]) -> list[dict[str, Any]]:
    """One object a share and saving."""
    return [
        {
            "within": least.within,
            "saving": least.saving.value,
            "architecture": asdict(least.point),
            "value": least.value,
            "amount": least.amount,
            "unit": UNITS[least.saving],
            "is_proved": least.is_proved,
        }
        for least in found
    ]
