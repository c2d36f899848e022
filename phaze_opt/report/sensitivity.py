"""The sensitivity table: what each assumption is worth, most consequential first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from phaze_opt.report.content import Column, TableContent
from phaze_opt.report.text import format_number, format_ratio

if TYPE_CHECKING:
    from phaze_opt.objective.sensitivity import SensitivityRow

NOMINAL = "nominal"
ENDS = ("low", "high")
BILLION = 1e9


def sensitivity_content(rows: Sequence[SensitivityRow]) -> TableContent:
    """One line per assumption with both ends of its range side by side, one per alternative of an option.

    Ordered by how far the throughput moves from the nominal one; ratios are design over reference under the same
    setting.
    """
    nominal = next((row for row in rows if row.origin == NOMINAL), None)
    base = 0.0 if nominal is None else nominal.throughput_samples_per_s
    groups: dict[tuple[str, str], list[SensitivityRow]] = {}
    for row in rows:
        if row.origin != NOMINAL:
            key = (row.assumption, "" if row.origin in ENDS else row.setting)
            groups.setdefault(key, []).append(row)
    ordered = sorted(groups.values(), key=lambda group: -_movement(group, base))
    moving = [group for group in ordered if nominal is None or any(_differs(row, nominal) for row in group)]
    still = [_name(group) for group in ordered if group not in moving]
    lines = [] if nominal is None else [_line("as assumed", [nominal])]
    lines += [_line(group[0].assumption, group) for group in moving]
    headings = ("samples/s", "/ tpu-v4", "/ published")
    columns = (Column("assumption: range"), *(Column(heading, is_number=True) for heading in headings))
    note = "from the low to the high end of each range; ratios to the reference under the same assumption"
    if still:
        note += f"; without effect on these figures: {', '.join(still)}"
    return TableContent("Sensitivity", columns, tuple(lines), note, frozenset({0} if nominal else ()))


def _movement(group: Sequence[SensitivityRow], base: float) -> float:
    return max(abs(row.throughput_samples_per_s - base) for row in group)


def _differs(row: SensitivityRow, nominal: SensitivityRow) -> bool:
    """Whether any figure moves by more than a millionth."""
    names = ("throughput_samples_per_s", "ratio_tpu_v4", "ratio_tpu_v4_published")
    pairs = ((getattr(row, name), getattr(nominal, name)) for name in names)
    return any(not math.isclose(one, other, rel_tol=1e-6) for one, other in pairs)


def _name(group: Sequence[SensitivityRow]) -> str:
    row = group[0]
    return row.assumption if row.origin in ENDS else f"{row.assumption} = {row.setting}"


def _line(name: str, group: Sequence[SensitivityRow]) -> tuple[str, ...]:
    return (
        ": ".join(filter(None, (name, _range([row.setting for row in group])))),
        _join([format_number(row.throughput_samples_per_s) for row in group]),
        _join([format_ratio(row.ratio_tpu_v4) for row in group]).replace("x..", ".."),
        _join([format_ratio(row.ratio_tpu_v4_published) for row in group]).replace("x..", ".."),
    )


def _range(settings: Sequence[str]) -> str:
    """``4..16 cycles``: the unit once, where both ends share it."""
    parts = [setting.partition(" ") for setting in settings]
    units = {unit for _, _, unit in parts}
    if len(parts) > 1 and len(units) == 1:
        return f"{_join([_shorten(value) for value, _, _ in parts])} {units.pop()}".rstrip()
    return _join(settings)


def _shorten(value: str) -> str:
    """``225e9`` for ``2.25e+11``."""
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number / BILLION:g}e9" if abs(number) >= BILLION else value


def _join(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    return "..".join(distinct)
