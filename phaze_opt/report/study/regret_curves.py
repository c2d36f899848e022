"""Regret curves: median over searches with bands, by condition; and against evaluations, time and all looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.report.document import Alternative, Beside, Choice, FigureBlock, Paragraph, Section, View
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import format_percent, format_target
from phaze_opt.report.style import MUTED_COLOUR, contender_look, finish_figure, plot_text
from phaze_opt.study.judging.scoring import charged_until_s
from phaze_opt.study.result import CellResult
from phaze_opt.study.scores import CellScore

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXPORT = "curves.csv"
FLOOR = 1e-4
"""Regrets at or below it are drawn on the lowest line: a logarithmic axis has no zero."""
LOG_SPAN = 20
"""Longest over shortest curve from which evaluations are on a logarithmic axis."""
BELOW = "\N{LESS-THAN OR EQUAL TO}\N{NO-BREAK SPACE}"
BAND_OPACITY = 0.16
NUM_BANDS = 3
"""Bands shown at first: more of them hide one another."""
FEWEST_FOR_QUARTILES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Regret of one contender's searches after each evaluation, summed up over the searches.

    Attributes:
        contender: its name.
        num_cells: searches.
        median, low, high: shape (num_evaluations,); low and high are quartiles, or the extremes of few searches.
    """

    contender: str
    num_cells: int
    median: Floats
    low: Floats
    high: Floats


def curves_section(inputs: ReportInputs) -> Section:
    """The panel over all conditions and one of each, to choose from."""
    cells = inputs.summary.cells
    if not cells:
        return Section("curves", "Regret curves", (Paragraph("There is nothing to draw yet."),))
    options = []
    if len(inputs.result.conditions) > 1:
        options.append(_option(inputs, "all conditions", "all", cells))
    for place, condition in enumerate(inputs.result.conditions):
        own = [cell for cell in cells if f"{cell.setting}.{cell.workload}" == condition.key]
        options.append(_option(inputs, condition.key, str(place), own))
    return Section("curves", "Regret curves", (Choice("curves", "Condition", tuple(options)),))


def _option(inputs: ReportInputs, label: str, name: str, cells: Sequence[CellScore]) -> Alternative:
    if not cells:
        return Alternative(label, (Paragraph(f"No search of {label} is finished yet."),))
    curves = summarise_curves(cells, inputs.contenders)
    block = FigureBlock(
        name=f"regret-{name}",
        title=f"Regret: {label}",
        alternative=describe_curves(curves, label),
        figure=regret_figure(curves, inputs),
        export=EXPORT,
        views=band_views(curves),
    )
    return Alternative(label, (block,))


def summarise_curves(cells: Iterable[CellScore], contenders: Sequence[str]) -> tuple[Curves, ...]:
    """Median and band of each contender that has searches; a search that ended early keeps its last regret."""
    by_contender: dict[str, list[Floats]] = {}
    for cell in cells:
        if len(cell.curve):
            by_contender.setdefault(cell.contender, []).append(cell.curve)
    found = []
    for name in contenders:
        own = by_contender.get(name, [])
        if not own:
            continue
        length = max(len(curve) for curve in own)
        rows = np.array([np.pad(curve, (0, length - len(curve)), mode="edge") for curve in own])
        edges = (25.0, 75.0) if len(own) >= FEWEST_FOR_QUARTILES else (0.0, 100.0)
        low, high = np.percentile(rows, edges, axis=0)
        found.append(Curves(name, len(own), np.median(rows, axis=0), low, high))
    return tuple(found)


def describe_curves(curves: Sequence[Curves], label: str) -> str:
    """Where each median starts and ends, best first, and what the band is."""
    ordered = sorted(curves, key=lambda item: float(item.median[-1]))
    ends = ", ".join(
        f"{item.contender} {format_percent(float(item.median[-1]))} after {len(item.median):,}" for item in ordered
    )
    band = "quartiles" if all(item.num_cells >= FEWEST_FOR_QUARTILES for item in curves) else "least and greatest"
    return (
        f"Median regret over the searches of {label} by evaluations, on a logarithmic scale; bands: {band}. At the "
        f"end: {ends} evaluations. Regrets of {format_target(FLOOR)} and less lie on the lowest line."
    )


def regret_figure(curves: Sequence[Curves], inputs: ReportInputs) -> Figure:
    """Steps of the median with its band, a line of its own colour and dash for each contender."""
    import plotly.graph_objects as go

    figure = go.Figure()
    order = inputs.contenders
    for item in curves:
        for trace in _traces(item, order.index(item.contender)):
            figure.add_trace(trace)
    for trace, is_shown in zip(figure.data, band_views(curves)[0].shown, strict=True):
        trace.visible = is_shown
    for target in inputs.result.config.judgement.targets:
        figure.add_hline(y=target, line={"color": MUTED_COLOUR, "width": 1, "dash": "dot"}, layer="below")
    lengths = [len(item.median) for item in curves]
    is_log = max(lengths) / min(lengths) > LOG_SPAN
    figure.update_xaxes(title="evaluations", type="log" if is_log else "linear", rangemode="tozero")
    bottom = _bottom(curves)
    levels = [level for level in (1.0, 0.1, 0.01, 0.001, FLOOR) if level >= bottom]
    texts = [f"{BELOW if level == FLOOR else ''}{format_target(level)}" for level in levels]
    figure.update_yaxes(
        title="regret", type="log", range=[np.log10(bottom) - 0.1, 0.08], tickvals=levels, ticktext=texts
    )
    return finish_figure(figure, height=460, num_legend=len(curves))


def _traces(item: Curves, index: int) -> list[Any]:
    """Band (one outline there and back), then the median on top; points where nothing changes are left out."""
    import plotly.graph_objects as go

    look = contender_look(index)
    name = plot_text(item.contender)
    steps = _changes(item)
    x = steps + 1
    low, median, high = (np.maximum(values[steps], FLOOR) for values in (item.low, item.median, item.high))
    group = f"contender-{index}"
    upper = go.Scatter(
        x=x, y=high, mode="lines", line={"width": 0, "shape": "hv"}, legendgroup=group, showlegend=False,
        hoverinfo="skip",
    )  # fmt: skip
    lower = go.Scatter(
        x=x, y=low, mode="lines", line={"width": 0, "shape": "hv"}, legendgroup=group, showlegend=False,
        hoverinfo="skip", fill="tonexty", fillcolor=_faint(look.colour), name=f"{name}: band",
    )  # fmt: skip
    hover = [
        f"{name}<br>{at} evaluations<br>median {format_percent(float(item.median[step]))}, "
        f"{format_percent(float(item.low[step]))} to {format_percent(float(item.high[step]))}"
        for at, step in zip(x, steps, strict=True)
    ]
    marks = go.Scatter(
        x=x, y=median, mode="lines+markers", name=name, legendgroup=group, hovertext=hover, hoverinfo="text",
        line={"color": look.colour, "dash": look.dash, "width": 2.5, "shape": "hv"},
        marker={"symbol": look.marker, "size": 8, "maxdisplayed": 8},
    )  # fmt: skip
    return [upper, lower, marks]


def _bottom(curves: Sequence[Curves]) -> float:
    """The power of ten below every band, not under the floor."""
    least = min(float(item.low.min()) for item in curves)
    return next(level for level in (0.1, 0.01, 0.001, FLOOR) if level <= least or level == FLOOR)


def band_views(curves: Sequence[Curves]) -> tuple[View, ...]:
    """With the bands of the best few, of all, of none; one view only where all are few."""
    everyone = tuple(range(len(curves)))
    best = tuple(sorted(everyone, key=lambda place: float(curves[place].median[-1]))[:NUM_BANDS])
    few = () if len(curves) <= NUM_BANDS else ((f"bands of the best {NUM_BANDS}", best),)
    views: tuple[tuple[str, tuple[int, ...]], ...] = (*few, ("all bands", everyone), ("no bands", ()))
    return tuple(
        View(label, tuple(shown for place in everyone for shown in (place in places, place in places, True)))
        for label, places in views
    )


def _changes(item: Curves) -> Ints:
    """Indices of the first and last evaluation and of those where median or band move."""
    rows = np.array([item.low, item.median, item.high])
    is_new = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.unique(np.concatenate([[0], 1 + np.flatnonzero(is_new), [rows.shape[1] - 1]])).astype(np.int64)


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {BAND_OPACITY})"


@dataclass(frozen=True, slots=True, eq=False)
class EffortCurve:
    """Median regret of one contender's searches over what they had spent.

    Attributes:
        contender: its name.
        spent: what was spent, rising, shape (num_points,).
        median: regret then, shape (num_points,); 1 where a search had not evaluated anything.
    """

    contender: str
    spent: Floats
    median: Floats


Spending = Callable[[CellScore, CellResult], Floats]
"""What a search had spent after each evaluation."""
EFFORTS: Mapping[str, tuple[str, str, Spending]] = MappingProxyType(
    {
        "evaluations": ("Regret by evaluations", "evaluations", lambda score, _: np.arange(1.0, len(score.curve) + 1)),
        "time": ("Regret by charged time", "seconds", lambda _, cell: charged_until_s(cell)),
        "looked-at": (
            "Regret by everything looked at",
            "evaluations and probes",
            lambda score, cell: cell.probes + np.arange(1.0, len(score.curve) + 1),
        ),
    }
)
"""Panels by name: title, axis, and what is spent. Nothing says when a probe was made, so all are counted before the
first evaluation: against the strategy that makes them."""


def opening_panels(inputs: ReportInputs) -> Beside | None:
    """Median regret over all searches against three kinds of effort, side by side; None while there is nothing."""
    scores = [score for score in inputs.summary.cells if len(score.curve)]
    if not scores:
        return None
    cells = {cell.cell.key: cell for cell in inputs.result.cells}
    blocks = []
    for name, (title, axis, spending) in EFFORTS.items():
        curves = effort_curves(scores, cells, inputs.contenders, spending)
        figure = effort_figure(curves, inputs.contenders, axis)
        blocks.append(FigureBlock(f"regret-by-{name}", title, _effort_words(name, curves, axis), figure, EXPORT))
    return Beside(tuple(blocks))


def effort_curves(
    scores: Sequence[CellScore], cells: Mapping[str, CellResult], contenders: Sequence[str], spending: Spending
) -> tuple[EffortCurve, ...]:
    """The median over each contender's searches, at every amount at which one of them moves; the last values stay."""
    found = []
    for name in contenders:
        own = [(spending(each, cells[each.key]), each.curve) for each in scores if each.contender == name]
        if not own:
            continue
        spent = np.unique(np.concatenate([amounts for amounts, _ in own]))
        rows = []
        for amounts, curve in own:
            place = np.searchsorted(amounts, spent, side="right") - 1
            rows.append(np.where(place < 0, 1.0, curve[np.maximum(place, 0)]))
        median = np.median(np.array(rows), axis=0)
        kept = np.unique([0, *(1 + np.flatnonzero(median[1:] != median[:-1])), len(spent) - 1])
        found.append(EffortCurve(name, spent[kept], median[kept]))
    return tuple(found)


def effort_figure(curves: Sequence[EffortCurve], contenders: Sequence[str], axis: str) -> Figure:
    """Steps of the medians, with the look that each contender has elsewhere."""
    import plotly.graph_objects as go

    figure = go.Figure()
    for item in curves:
        look, name = contender_look(contenders.index(item.contender)), plot_text(item.contender)
        median = np.maximum(item.median, FLOOR)
        figure.add_scatter(
            x=item.spent, y=median, mode="lines+markers", name=name, hoverinfo="text",
            hovertext=[f"{name}<br>{at:.4g} {axis}<br>median {format_percent(float(value))}"
                       for at, value in zip(item.spent, item.median, strict=True)],
            line={"color": look.colour, "dash": look.dash, "width": 2.2, "shape": "hv"},
            marker={"symbol": look.marker, "size": 7, "maxdisplayed": 6},
        )  # fmt: skip
    ends = [float(end) for item in curves for end in (item.spent[0], item.spent[-1]) if end > 0.0]
    is_log = max(ends) / min(ends) > LOG_SPAN
    figure.update_xaxes(title=axis, **({"type": "log", "dtick": 1} if is_log else {"rangemode": "tozero"}))
    least = min(max(float(item.median.min()), FLOOR) for item in curves)
    bottom = next(level for level in (0.1, 0.01, 0.001, FLOOR) if level <= least or level == FLOOR)
    levels = [level for level in (1.0, 0.1, 0.01, 0.001, FLOOR) if level >= bottom]
    texts = [f"{BELOW if level == FLOOR else ''}{format_target(level)}" for level in levels]
    figure.update_yaxes(
        title="median regret", type="log", range=[np.log10(bottom) - 0.1, 0.08], tickvals=levels, ticktext=texts
    )
    return finish_figure(figure, height=360, num_legend=len(curves))


def _effort_words(name: str, curves: Sequence[EffortCurve], axis: str) -> str:
    ordered = sorted(curves, key=lambda item: float(item.median[-1]))
    ends = ", ".join(
        f"{item.contender} {format_percent(float(item.median[-1]))} at {item.spent[-1]:,.4g}" for item in ordered
    )
    said = f"Median regret over all searches against {axis}; at the end {ends}."
    return f"{said} All probes are counted before the first evaluation." if name == "looked-at" else said
