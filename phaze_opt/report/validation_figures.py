"""Figures of a validation: predicted against measured, error by regime, and all sets beside their trivial models."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from phaze_opt.report.picture import (
    BAR,
    BEST_COLOUR,
    COLOURS,
    GRID_COLOUR,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    Boxes,
    Curve,
    Layer,
    Marks,
    Picture,
    PlotAxis,
    Rule,
    contender_look,
    row_axis,
)
from phaze_opt.report.text import TIME_UNITS, format_time
from phaze_opt.report.validation_tables import describe_row, format_figure
from phaze_opt.validation.result import GroupResult, RowResult, SetResult, Validation, group_labels

BAND = 0.1
"""Relative error marked beside the line of equality."""
_FEW = 4.0
"""Largest over smallest time below which 1, 2 and 5 may leave an axis with one tick or none."""
_ROOM = 1.15
"""What an axis shows beyond its smallest and largest time."""
MAX_SERIES = 12
MAX_REGIMES = 16
_ROW_PX = 26
_OVERVIEW_ROW_PX = 18


def scatter_picture(entry: SetResult) -> Picture:
    """Predicted over measured on logarithmic axes, with equality and a band of 10 % beside it."""
    scored = [result for result in entry.rows if not result.reason]
    is_time = not entry.dataset.is_context
    times = [time for result in scored for time in (result.measured_s, result.predicted_s)]
    words = "measured time, predicted time" if is_time else "measured, predicted"
    x, y = (_log_axis(label, times, is_time=is_time) for label in words.split(", "))
    layers: tuple[Layer, ...] = (*_equality(times), *_points(entry, scored, lambda result: result.predicted_s))
    return Picture("Predicted against measured", layers, x, y, height_px=420)


def _points(entry: SetResult, scored: Sequence[RowResult], height: Callable[[RowResult], float]) -> Iterator[Marks]:
    """Every row of a set over its measured value, a colour and a mark for each series."""
    series = _series(scored)
    for index, (name, results) in enumerate(series.items()):
        look = contender_look(index)
        yield Marks(
            [result.measured_s for result in results], [height(result) for result in results],
            name if len(series) > 1 else "", look.colour, look.marker, 7 if len(scored) < 500 else 5, 0.75,
            hovers=[hover_text(entry, result) for result in results],
        )  # fmt: skip


def error_picture(entry: SetResult) -> Picture:
    """Error in per cent over the measured value: what a plot over decades cannot show of a few per cent."""
    scored = [result for result in entry.rows if not result.reason]
    is_time = not entry.dataset.is_context
    label = "measured time" if is_time else "measured"
    axis = _log_axis(label, [result.measured_s for result in scored], is_time=is_time)
    layers: tuple[Layer, ...] = (Rule(y=0.0, dash="solid"), *_points(entry, scored, lambda result: 100 * result.error))
    return Picture("Error over the measured value", layers, axis, PlotAxis("error, %"), height_px=300)


def _log_axis(label: str, values: Sequence[float], *, is_time: bool) -> PlotAxis:
    """A logarithmic axis, of times in ns, us, ms and s: at powers of ten, or finer where it spans few of them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1,) if high - low > 3 else (1, 2, 5)
    ends = (min(values) / _ROOM, max(values) * _ROOM)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    if max(values) < _FEW * min(values):
        ticks = _even_ticks(*ends)
    units = [_unit_of(tick) if is_time else (1.0, "") for tick in ticks]
    labels = [f"{tick / scale:.4g} {unit}".strip() for tick, (scale, unit) in zip(ticks, units, strict=True)]
    shown = tuple(tick for tick in zip(ticks, labels, strict=True) if ends[0] <= tick[0] <= ends[1])
    return PlotAxis(label, is_log=True, span=ends, ticks=shown)


def _even_ticks(low: float, high: float) -> list[float]:
    """Two to six round values within a range."""
    power = 10.0 ** math.floor(math.log10(high - low))
    apart = next(step * power for step in (0.2, 0.5, 1, 2) if high - low <= 6 * step * power)
    return [number * apart for number in range(math.ceil(low / apart), math.floor(high / apart) + 1)]


def _unit_of(seconds: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in TIME_UNITS if seconds >= scale * (1 - 1e-9)), TIME_UNITS[-1])


def _equality(times: Sequence[float]) -> Iterator[Curve]:
    """Where predictions are measurements, and where they are off by `BAND`."""
    ends = [min(times) / _ROOM, max(times) * _ROOM]
    yield Curve(ends, ends, "equal", REFERENCE_COLOUR, 1.2)
    for factor in (1.0 - BAND, 1.0 + BAND):
        yield Curve(ends, [end * factor for end in ends], "10 % off", MUTED_COLOUR, 1.0, "dot")


def _series(scored: Sequence[RowResult]) -> dict[str, list[RowResult]]:
    """Rows by what tells them apart best in a legend: the group, the regime, or nothing."""
    choices = (_group, lambda result: result.regime, lambda result: result.row.values.get("tp", ""))
    for choose in choices:
        names = sorted({choose(result) for result in scored})
        if 1 < len(names) <= MAX_SERIES:
            return {name or "other": [result for result in scored if choose(result) == name] for name in names}
    return {"rows": list(scored)}


def _group(result: RowResult) -> str:
    labels = group_labels(result.row)
    return labels[-1] if labels else ""


def hover_text(entry: SetResult, result: RowResult) -> str:
    """Lines for a hover box: identity, configuration in short lines, times and error."""
    words = describe_row(result.row).split(", ")
    lines = [", ".join(words[start : start + 4]) for start in range(0, len(words), 4)]
    is_time = not entry.dataset.is_context
    measured, predicted = (
        format_time(value) if is_time else f"{value:.3g}" for value in (result.measured_s, result.predicted_s)
    )
    return "\n".join(
        [f"{result.row.id} ({result.regime})", *lines,
         f"measured {measured}, predicted {predicted} ({100 * result.error:+.1f} %)"]
    )  # fmt: skip


def regimes_picture(groups: Sequence[GroupResult]) -> Picture:
    """Mean error of every regime beside the trivial model's, largest first."""
    shown = sorted(groups, key=lambda group: (-group.scores.mape, group.label))[:MAX_REGIMES]
    names = [f"{group.label} ({group.scores.num_rows})" for group in shown]
    count = len(shown)
    bars = Boxes(
        [0.0] * count, [row - BAR / 2 for row in range(count)], [group.scores.mape for group in shown], [BAR] * count,
        "the model", COLOURS[0],
        hovers=[f"{name}: {format_figure(group.scores.mape)} %, bias {group.scores.bias:+.1f} %"
                for name, group in zip(names, shown, strict=True)],
    )  # fmt: skip
    layers: tuple[Layer, ...] = (
        bars,
        *_trivial([(name, group.baseline_mape) for name, group in zip(names, shown, strict=True)]),
    )
    axis = PlotAxis("mean error, %", is_from_zero=True)
    return Picture("Error by regime", layers, axis, row_axis(names), 70 + _ROW_PX * count)


def overview_picture(result: Validation, kept_out: Mapping[str, Mapping[str, float]] = MappingProxyType({})) -> Picture:
    """Mean error of every set, of rows kept out of the fit, of the trivial model, and the goal.

    Args:
        result: what was found.
        kept_out: errors when the constants were fitted, by set, as the file of constants holds them.
    """
    shown = [entry for entry in result.sets if entry.scores.num_rows and not entry.dataset.is_context]
    rows = {entry.name: row for row, entry in enumerate(shown)}
    layers: list[Layer] = [
        Curve([entry.scores.mape, entry.baseline_mape], [row, row], "", GRID_COLOUR, 4.0)
        for row, entry in enumerate(shown)
    ]
    errors = [entry.scores.mape for entry in shown]
    hovers = [f"{entry.name}: {format_figure(entry.scores.mape)} %" for entry in shown]
    layers.append(Marks(errors, list(rows.values()), "the model", COLOURS[0], px=11, hovers=hovers))
    layers += _trivial([(entry.name, entry.baseline_mape) for entry in shown])
    goals = [goal for goal in result.goals if goal.figure == "mape" and not goal.group and goal.dataset in rows]
    if goals:
        layers.append(
            Marks(
                [goal.goal for goal in goals], [rows[goal.dataset] for goal in goals], "goal", BEST_COLOUR,
                "line-ns-open", 15, hovers=[f"{goal.dataset}: goal {goal.goal:g} %" for goal in goals],
            )
        )  # fmt: skip
    layers += _kept_out(rows, kept_out)
    ticks = tuple((tick, f"{tick:g}") for tick in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0))
    axis = PlotAxis("mean error, %", is_log=True, ticks=ticks)
    height = 70 + _OVERVIEW_ROW_PX * len(shown)
    return Picture("Mean error by data set", tuple(layers), axis, row_axis(list(rows)), height)


def _kept_out(rows: Mapping[str, int], kept_out: Mapping[str, Mapping[str, float]]) -> Iterator[Marks]:
    """Errors with cells kept out, and the worst with a device, model or the like kept out."""
    cells = {name: kept_out.get(name, {}).get("cross_validated_mape", math.nan) for name in rows}
    whole = {name: _worst_kept_out(kept_out.get(name, {})) for name in rows}
    marks = (("cells kept out", "circle-open", 11, cells), ("one kept out whole", "x-thin-open", 8, whole))
    for label, symbol, px, errors in marks:
        known = [(name, error) for name, error in errors.items() if math.isfinite(error)]
        if known:
            hovers = [f"{name}, {label}: {format_figure(error)} %" for name, error in known]
            at = [rows[name] for name, _ in known]
            yield Marks([error for _, error in known], at, label, COLOURS[0], symbol, px, hovers=hovers)


def _worst_kept_out(errors: Mapping[str, float]) -> float:
    """The largest error with one device, model or the like kept out; not a number where none was."""
    return max((error for key, error in errors.items() if key.startswith("leave_one_")), default=math.nan)


def _trivial(known: Sequence[tuple[str, float]]) -> Iterator[Marks]:
    """Errors of the trivial model, a row each."""
    points = [(row, name, value) for row, (name, value) in enumerate(known) if math.isfinite(value)]
    if points:
        hovers = [f"{name}, trivial: {format_figure(value)} %" for _, name, value in points]
        rows, errors = [row for row, _, _ in points], [value for _, _, value in points]
        yield Marks(errors, rows, "trivial model", REFERENCE_COLOUR, "diamond-open", 9, hovers=hovers)
