"""Tables of fitted constants and of fits."""

from __future__ import annotations

from dataclasses import replace

from phaze_opt.hardware.fitted import FittedGroup, FittedValue
from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.validation_tables import format_figure
from phaze_opt.validation.calibrate import Calibration, FamilyFit

CONSTANT_COLUMNS = (
    Column("group"),
    Column("constant"),
    Column("value", is_number=True),
    Column("bounds", is_number=True),
    Column("unit"),
    Column("meaning"),
)
AT_BOUND = 1e-3
"""Share of itself, or of its range, within which a constant is at a bound."""
_BOUND_NOTE = "* at a bound, so that the bound rather than the measurements decides."


def constants_table(title: str, groups: dict[str, FittedGroup], *, note: str = "") -> TableContent:
    """Every constant with bounds, unit and meaning; those at a bound stand out and have an asterisk."""
    rows: list[tuple[str, ...]] = []
    at_bound: set[int] = set()
    for name, group in sorted(groups.items()):
        for index, (key, item) in enumerate(sorted(group.constants.items())):
            if is_at_bound(item):
                at_bound.add(len(rows))
            value = f"{item.value:.4g} *" if len(rows) in at_bound else f"{item.value:.4g}"
            bounds = f"{item.low:.3g} to {item.high:.3g}"
            rows.append((name if index == 0 else "", key, value, bounds, item.unit, item.meaning))
    notes = ([_BOUND_NOTE] if at_bound else []) + ([note] if note else [])
    return TableContent(title, CONSTANT_COLUMNS, tuple(rows), " ".join(notes), frozenset(at_bound))


def is_at_bound(item: FittedValue) -> bool:
    """Whether the bound rather than the measurements decides; ranges may span decades, so nearness is relative."""
    width = item.high - item.low
    near = [AT_BOUND * min(width, max(abs(item.value), abs(bound))) for bound in (item.low, item.high)]
    # A bound of zero is approached in steps of the range.
    near[0] = max(near[0], AT_BOUND**2 * 2 * width) if item.low <= 0 else near[0]
    return item.value - item.low <= near[0] or item.high - item.value <= near[1]


def calibration_tables(found: Calibration) -> tuple[TableContent, ...]:
    """Fits by set, and constants by family."""
    note = "The file says what each means."
    tables = [_fit_table(found.families)]
    for family in found.families:
        full = constants_table(f"Constants of {family.family}", dict(family.groups), note=note)
        # A terminal has no room for the meanings, which are the last column.
        rows = tuple(row[:-1] for row in full.rows)
        tables.append(replace(full, columns=full.columns[:-1], rows=rows))
    return tuple(tables)


def few_rows_sentences(found: Calibration) -> tuple[str, ...]:
    """A warning for each family that has more constants than rows."""
    counts = {family.family: sum(item.whole.fitted.num_rows for item in family.sets) for family in found.families}
    return tuple(
        f"{family.family}: {family.num_constants} constants were fitted to {counts[family.family]} "
        f"{'row' if counts[family.family] == 1 else 'rows'}; they may say little of other configurations"
        for family in found.families
        if family.num_constants >= counts[family.family]
    )


def _fit_table(families: tuple[FamilyFit, ...]) -> TableContent:
    columns = (
        Column("data set"), Column("family"), Column("constants", is_number=True), Column("rows", is_number=True),
        Column("MAPE", is_number=True), Column("by cells kept out", is_number=True), Column("others kept out"),
    )  # fmt: skip
    rows = []
    for family in families:
        for item in family.sets:
            others = ", ".join(f"{name} {format_figure(value)}" for name, value in item.others.items())
            rows.append(
                (item.name, family.family, f"{family.num_constants}", f"{item.whole.fitted.num_rows}",
                 format_figure(item.whole.fitted.mape), format_figure(item.cross_validated_mape), others)
            )  # fmt: skip
    note = "Mean absolute errors in per cent: on the rows fitted, and on rows kept out of the fit."
    return TableContent("Fits", columns, tuple(rows), note)
