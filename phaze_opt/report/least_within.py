"""The best design with the smallest, coolest and cheapest ones near it, as a table and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.least_within import LeastDesign, LeastOf
from phaze_opt.report.chip import chip_fields, chip_note
from phaze_opt.report.table import Fields, TableContent, lines, number, table_of
from phaze_opt.report.text import GOAL_UNITS, format_number, numbers_apart, shown_value

UNITS = {LeastOf.SMALLEST: "mm2", LeastOf.COOLEST: "W", LeastOf.CHEAPEST: "USD"}
KEYS = {LeastOf.SMALLEST: "area_mm2", LeastOf.COOLEST: "tdp_w", LeastOf.CHEAPEST: "device_usd"}


@dataclass(frozen=True, slots=True)
class NearBest:
    """A design in the table: what it is, its value of the goal and what it takes."""

    what: tuple[str, ...]
    point: DesignPoint
    value: float
    amounts: Mapping[LeastOf, float]


def near_rows(best: NearBest, found: Sequence[LeastDesign]) -> tuple[NearBest, ...]:
    """The best design, then each other one once, with all that it is the least of."""
    rows = {best.point: best}
    what: dict[DesignPoint, dict[float, list[str]]] = {}
    for least in found:
        rows.setdefault(least.point, NearBest((), least.point, least.value, least.amounts))
        mark = "" if least.is_proved else "*"
        what.setdefault(least.point, {}).setdefault(least.within, []).append(f"{least.saving.value}{mark}")
    named = {
        point: tuple(f"{100.0 * within:g} % {saving}" for within, savings in each.items() for saving in savings)
        for point, each in what.items()
    }
    return tuple(
        NearBest((*row.what, *named.get(point, ())), point, row.value, row.amounts) for point, row in rows.items()
    )


def near_table(
    best: NearBest, found: Sequence[LeastDesign], *, goal: Goal, looked_at: str, note: str = "", is_mean: bool = False
) -> TableContent:
    """The best design, and those near it that take less: one row a design.

    Args:
        best: the best design.
        found: the least of those near it.
        goal: what is maximised.
        looked_at: which designs those that are not proved are the least of.
        note: more to say below the table.
        is_mean: whether values are means over models.
    """
    rows = near_rows(best, found)
    rates = numbers_apart([shown_value(goal, row.value) for row in rows])
    fields: Fields[tuple[NearBest, str]] = (
        lines("design", lambda item: item[0].what),
        number(f"mean {GOAL_UNITS[goal]}" if is_mean else GOAL_UNITS[goal], lambda item: item[1]),
        *(number(UNITS[saving], partial(_taken, saving)) for saving in best.amounts),
        *chip_fields(lambda item: item[0].point),
    )
    starred = "" if all(least.is_proved for least in found) else f"* the least of {looked_at}, not proved"
    proved = "no other design so near the best takes less" if any(least.is_proved for least in found) else ""
    blank = "a blank line: the design above it" if any(len(row.what) > 1 for row in rows) else ""
    text = "; ".join(filter(None, (note, blank, proved, starred, chip_note(row.point for row in rows))))
    title = "Best design, and smallest, coolest and cheapest within 1 and 5 % of it"
    return table_of(title, fields, zip(rows, rates, strict=True), text, emphasis=lambda item: item[0] is rows[0])


def _taken(saving: LeastOf, item: tuple[NearBest, str]) -> str:
    return format_number(item[0].amounts[saving])


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
            **{KEYS[saving]: amount for saving, amount in least.amounts.items()},
            "is_proved": least.is_proved,
        }
        for least in found
    ]
