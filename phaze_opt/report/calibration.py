"""Tables and sentences of a calibration: what was fitted to how many rows, how far off it is, and every constant."""

import math
from dataclasses import replace

from phaze_opt.hardware.fitted import FittedGroup, FittedValue
from phaze_opt.report.table import Column, Fields, TableContent, number, numbers, table_of, words
from phaze_opt.report.text import counted
from phaze_opt.report.validation_tables import format_figure
from phaze_opt.validation.calibrate import Calibration, FamilyFit, SetFit

CONSTANT_COLUMNS = (Column("group"), Column("constant"), *numbers("value", "bounds"), Column("unit"), Column("meaning"))
AT_BOUND = 1e-3
"""Share of itself, or of its range, within which a constant is at a bound."""
_BOUND_NOTE = "* at a bound, so that the bound rather than the measurements decides."


def fit_sentences(found: Calibration) -> tuple[str, ...]:
    """What was fitted to how many rows, and how far off rows are that were fitted and that were kept out."""
    fits = [item for family in found.families for item in family.sets if item.whole.fitted.num_rows]
    count = sum(item.whole.fitted.num_rows for item in fits)
    constants = sum(family.num_constants for family in found.families)
    mape = sum(item.whole.fitted.mape * item.whole.fitted.num_rows for item in fits) / max(count, 1)
    fitted = f"{counted(constants, 'constant')} fitted to {counted(count, 'row')}"
    first = f"{fitted}: these are predicted {mape:.3g} % off in the mean."
    kept = [item for item in fits if math.isfinite(item.cross_validated_mape)]
    if not kept:
        return (first, "Rows that were kept out of a fit would say how well others are predicted: none were.")
    rows = sum(item.whole.fitted.num_rows for item in kept)
    out = sum(item.cross_validated_mape * item.whole.fitted.num_rows for item in kept) / rows
    return (first, f"Configurations that were kept out of the fit in turn are {out:.3g} % off: expect that of others.")


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
    fields: Fields[tuple[FamilyFit, SetFit]] = (
        words("data set", lambda fit: fit[1].name),
        words("family", lambda fit: fit[0].family),
        number("constants", lambda fit: f"{fit[0].num_constants}"),
        number("rows", lambda fit: f"{fit[1].whole.fitted.num_rows}"),
        number("MAPE", lambda fit: format_figure(fit[1].whole.fitted.mape)),
        number("by cells kept out", lambda fit: format_figure(fit[1].cross_validated_mape)),
        words("others kept out", lambda fit: ", ".join(f"{k} {format_figure(v)}" for k, v in fit[1].others.items())),
    )
    fits = ((family, item) for family in families for item in family.sets)
    note = "Mean absolute errors in per cent: on the rows fitted, and on rows kept out of the fit."
    return table_of("Fits", fields, fits, note)
