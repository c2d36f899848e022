"""Regret curves: median over searches with bands, by condition; and against evaluations, time and all looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.report.document import Alternative, Beside, Choice, FigureBlock, Paragraph, Section, View
from phaze_opt.report.picture import Band, Curve, Layer, Picture, PlotAxis, Rule, contender_look, faint
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.wording import format_percent, format_target
from phaze_opt.study.judging.scoring import charged_until_s
from phaze_opt.study.result import CellResult
from phaze_opt.study.scores import CellScore

EXPORT = "curves.csv"
FLOOR = 1e-4
LEVELS = (1.0, 0.1, 0.01, 0.001, FLOOR)
"""Of the axis. Regrets at or below the last are drawn on the lowest line: a logarithmic axis has no zero."""
LOG_SPAN = 20
"""Longest over shortest curve from which evaluations are on a logarithmic axis."""
BELOW = "\N{LESS-THAN OR EQUAL TO}\N{NO-BREAK SPACE}"
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
        picture=regret_picture(curves, inputs, f"Regret: {label}"),
        alternative=describe_curves(curves, label),
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


def regret_picture(curves: Sequence[Curves], inputs: ReportInputs, title: str = "Regret") -> Picture:
    """Steps of the median with its band, a line of its own colour and dash for each contender."""
    shown = band_views(curves)[0].shown
    layers: list[Layer] = []
    for place, item in enumerate(curves):
        layers += _layers(item, inputs.contenders.index(item.contender), is_hidden=not shown[2 * place])
    layers += [Rule(y=target) for target in inputs.result.config.judgement.targets]
    lengths = [len(item.median) for item in curves]
    is_log = max(lengths) / min(lengths) > LOG_SPAN
    x = PlotAxis("evaluations", is_log=is_log, is_from_zero=not is_log)
    return Picture(title, tuple(layers), x, _regret_axis("regret", [float(item.low.min()) for item in curves]))


def _regret_axis(label: str, least: Sequence[float]) -> PlotAxis:
    """A logarithmic axis from one down to the power of ten below everything, not under the floor."""
    bottom = next(level for level in LEVELS[1:] if level <= min(least) or level == FLOOR)
    ticks = tuple(
        (level, f"{BELOW if level == FLOOR else ''}{format_target(level)}") for level in LEVELS if level >= bottom
    )
    return PlotAxis(label, is_log=True, span=(0.8 * bottom, 1.2), ticks=ticks)


def _layers(item: Curves, index: int, *, is_hidden: bool) -> tuple[Band, Curve]:
    """Band, then the median on top; points where nothing changes are left out."""
    look, name = contender_look(index), item.contender
    steps = _changes(item)
    x = (steps + 1).tolist()
    low, median, high = (np.maximum(values[steps], FLOOR).tolist() for values in (item.low, item.median, item.high))
    hovers = [
        f"{name}\n{at} evaluations\nmedian {format_percent(float(item.median[step]))}, "
        f"{format_percent(float(item.low[step]))} to {format_percent(float(item.high[step]))}"
        for at, step in zip(x, steps, strict=True)
    ]
    return (
        Band(x, low, high, faint(look.colour), is_step=True, is_hidden=is_hidden),
        Curve(x, median, name, look.colour, 2.5, look.dash, is_step=True, marker=look.marker, hovers=hovers),
    )


def band_views(curves: Sequence[Curves]) -> tuple[View, ...]:
    """With the bands of the best few, of all, of none; one view only where all are few."""
    everyone = tuple(range(len(curves)))
    best = tuple(sorted(everyone, key=lambda place: float(curves[place].median[-1]))[:NUM_BANDS])
    few = () if len(curves) <= NUM_BANDS else ((f"bands of the best {NUM_BANDS}", best),)
    views: tuple[tuple[str, tuple[int, ...]], ...] = (*few, ("all bands", everyone), ("no bands", ()))
    return tuple(
        View(label, tuple(shown for place in everyone for shown in (place in places, True))) for label, places in views
    )


def _changes(item: Curves) -> Ints:
    """Indices of the first and last evaluation and of those where median or band move."""
    rows = np.array([item.low, item.median, item.high])
    is_new = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return np.unique(np.concatenate([[0], 1 + np.flatnonzero(is_new), [rows.shape[1] - 1]])).astype(np.int64)


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
        picture = effort_picture(curves, inputs.contenders, axis, title)
        blocks.append(FigureBlock(f"regret-by-{name}", picture, _effort_words(name, curves, axis), EXPORT))
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


def effort_picture(curves: Sequence[EffortCurve], contenders: Sequence[str], axis: str, title: str) -> Picture:
    """Steps of the medians, with the look that each contender has elsewhere."""
    layers = []
    for item in curves:
        look, name = contender_look(contenders.index(item.contender)), item.contender
        hovers = [
            f"{name}\n{at:.4g} {axis}\nmedian {format_percent(float(value))}"
            for at, value in zip(item.spent, item.median, strict=True)
        ]
        median = np.maximum(item.median, FLOOR).tolist()
        layers.append(
            Curve(
                item.spent.tolist(), median, name, look.colour, 2.2, look.dash, is_step=True, marker=look.marker,
                hovers=hovers,
            )
        )  # fmt: skip
    ends = [float(end) for item in curves for end in (item.spent[0], item.spent[-1]) if end > 0.0]
    is_log = max(ends) / min(ends) > LOG_SPAN
    y = _regret_axis("median regret", [max(float(item.median.min()), FLOOR) for item in curves])
    return Picture(title, tuple(layers), PlotAxis(axis, is_log=is_log, is_from_zero=not is_log), y, height_px=300)


def _effort_words(name: str, curves: Sequence[EffortCurve], axis: str) -> str:
    ordered = sorted(curves, key=lambda item: float(item.median[-1]))
    ends = ", ".join(
        f"{item.contender} {format_percent(float(item.median[-1]))} at {item.spent[-1]:,.4g}" for item in ordered
    )
    said = f"Median regret over all searches against {axis}; at the end {ends}."
    return f"{said} All probes are counted before the first evaluation." if name == "looked-at" else said
