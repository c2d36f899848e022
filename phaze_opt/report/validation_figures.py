"""Figures of a validation: predicted against measured, error by regime, and all sets beside their trivial models."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from phaze_opt.report.style import (
    BEST_COLOUR,
    COLOURS,
    GRID_COLOUR,
    LEGEND_ROW_PX,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    contender_look,
    finish_figure,
    plot_text,
)
from phaze_opt.report.text import TIME_UNITS, format_time
from phaze_opt.report.validation_tables import describe_row, format_figure
from phaze_opt.validation.result import GroupResult, RowResult, SetResult, Validation, group_labels

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BAND = 0.1
"""Relative error marked beside the line of equality."""
_FEW = 4.0
"""Largest over smallest time below which 1, 2 and 5 may leave an axis with one tick or none."""
_ROOM = 1.15
"""What an axis shows beyond its smallest and largest time."""
MAX_SERIES = 12
MAX_REGIMES = 16
MAX_LABEL = 34
"""Characters of a line of a bar's label."""
_ROW_PX = 26
_LINE_PX = 12
_OVERVIEW_ROW_PX = 18


def scatter_figure(entry: SetResult) -> Figure:
    """Predicted over measured on logarithmic axes, with equality and a band of 10 % beside it."""
    import plotly.graph_objects as go

    scored = [result for result in entry.rows if not result.reason]
    series = _series(scored)
    figure = go.Figure()
    _add_equality(figure, scored)
    _add_points(figure, entry, series, lambda result: result.predicted_s)
    is_time = not entry.dataset.is_context
    times = [time for result in scored for time in (result.measured_s, result.predicted_s)]
    axis = _log_axis(times, is_time=is_time)
    figure.update_xaxes(title="measured time" if is_time else "measured", **axis)
    figure.update_yaxes(title="predicted time" if is_time else "predicted", **axis)
    return finish_figure(figure, height=480, num_legend=len(series) + 2)


def _add_points(
    figure: Figure, entry: SetResult, series: Mapping[str, Sequence[RowResult]], height: Callable[[RowResult], float]
) -> None:
    """Every row of a set over its measured value, a colour and a mark for each series."""
    num_points = sum(len(results) for results in series.values())
    for index, (name, results) in enumerate(series.items()):
        look = contender_look(index)
        figure.add_scatter(
            x=[result.measured_s for result in results],
            y=[height(result) for result in results],
            mode="markers",
            name=plot_text(name),
            hoverinfo="text",
            hovertext=[hover_text(entry, result) for result in results],
            showlegend=len(series) > 1,
            marker={"color": look.colour, "symbol": look.marker, "size": 7 if num_points < 500 else 5, "opacity": 0.75},
        )


def error_figure(entry: SetResult) -> Figure:
    """Error in per cent over the measured value: what a plot over decades cannot show of a few per cent."""
    import plotly.graph_objects as go

    scored = [result for result in entry.rows if not result.reason]
    series = _series(scored)
    figure = go.Figure()
    _add_points(figure, entry, series, lambda result: 100 * result.error)
    is_time = not entry.dataset.is_context
    axis = _log_axis([result.measured_s for result in scored], is_time=is_time)
    figure.update_xaxes(title="measured time" if is_time else "measured", **axis)
    figure.update_yaxes(title="error, %", rangemode="tozero", zeroline=True, zerolinecolor=REFERENCE_COLOUR)
    finish_figure(figure, height=340, num_legend=len(series))
    return figure.update_yaxes(zeroline=True)


def _log_axis(values: Sequence[float], *, is_time: bool) -> dict[str, Any]:
    """A logarithmic axis, of times in ns, us, ms and s: at powers of ten, or finer where it spans few of them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1,) if high - low > 3 else (1, 2, 5)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    axis: dict[str, Any] = {"type": "log"}
    if max(values) < _FEW * min(values):
        ends = (min(values) / _ROOM, max(values) * _ROOM)
        ticks = _even_ticks(*ends)
        axis["range"] = [math.log10(end) for end in ends]
    units = [_unit_of(tick) if is_time else (1.0, "") for tick in ticks]
    labels = [f"{tick / scale:.4g} {unit}".strip() for tick, (scale, unit) in zip(ticks, units, strict=True)]
    return {**axis, "tickvals": ticks, "ticktext": labels}


def _even_ticks(low: float, high: float) -> list[float]:
    """Two to six round values within a range."""
    power = 10.0 ** math.floor(math.log10(high - low))
    apart = next(step * power for step in (0.2, 0.5, 1, 2) if high - low <= 6 * step * power)
    return [number * apart for number in range(math.ceil(low / apart), math.floor(high / apart) + 1)]


def _unit_of(seconds: float) -> tuple[float, str]:
    return next(((scale, unit) for scale, unit in TIME_UNITS if seconds >= scale * (1 - 1e-9)), TIME_UNITS[-1])


def _add_equality(figure: Figure, scored: Sequence[RowResult]) -> None:
    times = [time for result in scored for time in (result.measured_s, result.predicted_s)]
    ends = [min(times) / _ROOM, max(times) * _ROOM]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", name="equal", hoverinfo="skip", line={"color": REFERENCE_COLOUR, "width": 1.2}
    )
    for factor in (1.0 - BAND, 1.0 + BAND):
        figure.add_scatter(
            x=ends, y=[end * factor for end in ends], mode="lines", name="10 % off", hoverinfo="skip",
            showlegend=factor < 1.0, line={"color": MUTED_COLOUR, "width": 1, "dash": "dot"},
        )  # fmt: skip


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
    return "<br>".join(
        [f"<b>{plot_text(result.row.id)}</b> ({plot_text(result.regime)})", *(plot_text(line) for line in lines),
         f"measured {measured}, predicted {predicted} ({100 * result.error:+.1f} %)"]
    )  # fmt: skip


def regimes_figure(groups: Sequence[GroupResult]) -> Figure:
    """Mean error of every regime beside the trivial model's, largest first."""
    import plotly.graph_objects as go

    shown = sorted(groups, key=lambda group: (-group.scores.mape, group.label))[:MAX_REGIMES]
    names = [_in_lines(f"{plot_text(group.label)} ({group.scores.num_rows})") for group in shown]
    num_lines = max(name.count("<br>") for name in names) + 1
    figure = go.Figure()
    figure.add_bar(
        y=names, x=[group.scores.mape for group in shown], orientation="h", name="the model",
        marker={"color": COLOURS[0]}, hoverinfo="text",
        hovertext=[f"{name}: {format_figure(group.scores.mape)} %, bias {group.scores.bias:+.1f} %"
                   for name, group in zip(names, shown, strict=True)],
        textposition="none",
    )  # fmt: skip
    known = [(name, group.baseline_mape) for name, group in zip(names, shown, strict=True)]
    _add_trivial(figure, known)
    figure.update_xaxes(title="mean error, %", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", ticksuffix="  ")
    row_px = _ROW_PX + _LINE_PX * (num_lines - 1)
    return finish_figure(figure, height=130 + row_px * len(shown), num_legend=2)


def _in_lines(label: str) -> str:
    """A label broken at spaces, so that bars keep their room on a narrow page."""
    return "<br>".join(textwrap.wrap(label, MAX_LABEL, break_long_words=False))


def overview_figure(result: Validation, kept_out: Mapping[str, Mapping[str, float]] = MappingProxyType({})) -> Figure:
    """Mean error of every set, of rows kept out of the fit, of the trivial model, and the goal.

    Args:
        result: what was found.
        kept_out: errors when the constants were fitted, by set, as the file of constants holds them.
    """
    import plotly.graph_objects as go

    shown = [entry for entry in result.sets if entry.scores.num_rows and not entry.dataset.is_context]
    names = [entry.name for entry in shown]
    figure = go.Figure()
    for entry in shown:
        figure.add_scatter(
            x=[entry.scores.mape, entry.baseline_mape], y=[entry.name] * 2, mode="lines", hoverinfo="skip",
            showlegend=False, line={"color": GRID_COLOUR, "width": 4},
        )  # fmt: skip
    figure.add_scatter(
        y=names, x=[entry.scores.mape for entry in shown], mode="markers", name="the model",
        marker={"color": COLOURS[0], "size": 12}, hoverinfo="text",
        hovertext=[f"{entry.name}: {format_figure(entry.scores.mape)} %" for entry in shown],
    )  # fmt: skip
    _add_trivial(figure, [(entry.name, entry.baseline_mape) for entry in shown])
    goals = [goal for goal in result.goals if goal.figure == "mape" and not goal.group and goal.dataset in names]
    if goals:
        figure.add_scatter(
            y=[goal.dataset for goal in goals], x=[goal.goal for goal in goals], mode="markers", name="goal",
            hoverinfo="text", hovertext=[f"{goal.dataset}: goal {goal.goal:g} %" for goal in goals],
            marker={"symbol": "line-ns-open", "color": BEST_COLOUR, "size": 16, "line": {"width": 3}},
        )  # fmt: skip
    num_kept_out = _add_kept_out(figure, names, kept_out)
    figure.update_xaxes(title="mean error, %", type="log", tickvals=[0.2, 0.5, 1, 2, 5, 10, 20, 50, 100])
    # Sets without a marker of the first trace would otherwise be put behind all others.
    figure.update_yaxes(autorange="reversed", ticksuffix="  ", categoryorder="array", categoryarray=names)
    height = 150 + _OVERVIEW_ROW_PX * len(shown)
    num_legend = 3 + num_kept_out
    narrow = {"height": height + LEGEND_ROW_PX * math.ceil(num_legend / 2)}
    return finish_figure(figure, height=height, num_legend=num_legend, narrow=narrow)


def _add_kept_out(figure: Figure, names: Sequence[str], kept_out: Mapping[str, Mapping[str, float]]) -> int:
    """Errors with cells kept out, and the worst with a device, model or the like kept out; how many traces."""
    cells = {name: kept_out.get(name, {}).get("cross_validated_mape", math.nan) for name in names}
    whole = {name: _worst_kept_out(kept_out.get(name, {})) for name in names}
    marks = (("cells kept out", "circle-open", 12, cells), ("one kept out whole", "x-thin-open", 8, whole))
    traces = 0
    for label, symbol, size, errors in marks:
        known = [(name, error) for name, error in errors.items() if math.isfinite(error)]
        if known:
            traces += 1
            figure.add_scatter(
                y=[name for name, _ in known], x=[error for _, error in known], mode="markers", name=label,
                hoverinfo="text", hovertext=[f"{name}, {label}: {format_figure(error)} %" for name, error in known],
                marker={"symbol": symbol, "color": COLOURS[0], "size": size, "line": {"width": 2}},
            )  # fmt: skip
    return traces


def _worst_kept_out(errors: Mapping[str, float]) -> float:
    """The largest error with one device, model or the like kept out; not a number where none was."""
    return max((error for key, error in errors.items() if key.startswith("leave_one_")), default=math.nan)


def _add_trivial(figure: Figure, known: Sequence[tuple[str, float]]) -> None:
    points = [(name, value) for name, value in known if math.isfinite(value)]
    if not points:
        return
    figure.add_scatter(
        y=[name for name, _ in points], x=[value for _, value in points], mode="markers", name="trivial model",
        hoverinfo="text", hovertext=[f"{name}, trivial: {format_figure(value)} %" for name, value in points],
        marker={"symbol": "diamond-open", "color": REFERENCE_COLOUR, "size": 9, "line": {"width": 1.5}},
    )  # fmt: skip
