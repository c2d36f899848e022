"""Figures of a search, from its finished trials alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.reference_machines import is_expert
from phaze_opt.report.chip import AXES, describe_cores, describe_memories
from phaze_opt.report.design import CAUSES
from phaze_opt.report.style import (
    BEST_COLOUR,
    COLOURS,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    RIM,
    SCALE,
    Frame,
    Mark,
    Place,
    add_marks,
    apply_style,
    set_names,
    style_bars,
)
from phaze_opt.report.text import format_number, format_time
from phaze_opt.search.result import Trial

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

VALUE_LABELS = {
    "throughput": "throughput, samples/s",
    "throughput_per_tdp": "throughput per TDP, samples/s/W",
    "throughput_per_usd": "throughput per USD of the total cost of ownership, samples/USD",
    "throughput_per_joule": "throughput per joule, samples/J",
}
PARETO_GOAL = "pareto"
BEST = "best"
"""Label of the best design."""
CLOSER_SHARE = 0.3
"""Of the largest area: designs that lie closer than that have a figure of their own."""
FEWEST_CLOSER = 3
LOG_SPAN = 30.0
"""Largest value over the lower quartile from which an axis becomes logarithmic: a few poor trials do not make it so."""
MAX_HOVERED = 5000
"""Trials beyond which points carry no hover text, so that pages stay light."""


def history_figure(trials: Sequence[Trial[Evaluation]], *, goal: str) -> Figure:
    """Every trial and the best so far, by trial number; infeasible trials as ticks on the axis."""
    import plotly.graph_objects as go

    feasible = [record for record in trials if record.values]
    numbers = [record.number for record in feasible]
    values = [record.values[0] for record in feasible]
    figure = go.Figure()
    figure.add_scatter(
        x=numbers, y=values, mode="markers", name="trial", text=_hovers(feasible), hoverinfo="text",
        marker={"color": COLOURS[0], "size": 7, "opacity": 0.65},
    )  # fmt: skip
    steps = [*numbers, trials[-1].number] if feasible else []
    best = list(accumulate(values, max))
    figure.add_scatter(
        x=steps, y=[*best, *best[-1:]], mode="lines", name="best so far", hoverinfo="skip",
        line={"color": BEST_COLOUR, "width": 2.5, "shape": "hv"},
    )  # fmt: skip
    _add_infeasible(figure, trials, level=min(values) / 1.6 if _is_logarithmic(values) else 0.0)
    last = trials[-1].number if trials else 0
    figure.update_xaxes(title="trial", range=[-0.02 * last - 0.5, 1.02 * last + 0.5])
    figure.update_yaxes(title=VALUE_LABELS.get(goal, VALUE_LABELS["throughput"]), **_axis(values))
    return apply_style(figure, "Search history")


def _add_infeasible(figure: Figure, trials: Sequence[Trial[Evaluation]], *, level: float) -> None:
    infeasible = [record for record in trials if not record.values]
    if not infeasible:
        return
    reasons = [f"trial {record.number}: {record.evaluation.status.value.replace('_', ' ')}" for record in infeasible]
    figure.add_scatter(
        x=[record.number for record in infeasible], y=[level] * len(infeasible), mode="markers",
        name="infeasible", text=reasons, hoverinfo="text",
        marker={"symbol": "line-ns-open", "color": MUTED_COLOUR, "size": 9},
    )  # fmt: skip


def area_throughput_figure(trials: Sequence[Trial[Evaluation]], *, references: Mapping[str, Evaluation]) -> Figure:
    """Throughput over area, coloured by TDP, with the front of the two as steps; references are diamonds."""
    import plotly.graph_objects as go

    feasible = [record for record in trials if record.values and not record.is_repeat]
    designs = [record.evaluation for record in feasible]
    rates = [design.throughput_samples_per_s for design in designs]
    figure = go.Figure()
    steps = area_front(designs)
    figure.add_scatter(
        x=[design.area_mm2 for design in steps], y=[design.throughput_samples_per_s for design in steps], mode="lines",
        name="front", hoverinfo="skip", showlegend=False,
        line={"color": BEST_COLOUR, "width": 2, "shape": "hv"},
    )  # fmt: skip
    figure.add_scatter(
        x=[design.area_mm2 for design in designs], y=rates, mode="markers", name="trial",
        text=_hovers(feasible), hoverinfo="text", showlegend=False,
        marker={"color": [design.tdp_w for design in designs], "colorscale": SCALE, "size": 9, "opacity": 0.8,
                "line": dict(RIM), "colorbar": {"title": "TDP, W", "thickness": 14}},
    )  # fmt: skip
    is_shown = {name: other.is_feasible and other.known("area_mm2") is not None for name, other in references.items()}
    shown = {name: other for name, other in references.items() if is_shown[name]}
    every = [*rates, *(other.throughput_samples_per_s for other in shown.values())]
    marks = [_mark(name, other, symbol="diamond", size=12, colour=REFERENCE_COLOUR) for name, other in shown.items()]
    if designs:
        marks.append(_best_mark(designs))
    figure.update_xaxes(title="area, mm<sup>2</sup>")
    figure.update_yaxes(title=VALUE_LABELS["throughput"], **_axis(every))
    apply_style(figure, "The front: throughput over area")
    places = _places(designs)
    frame = Frame.around([*places, *((mark.x, mark.y) for mark in marks)], is_log=_is_logarithmic(every))
    add_marks(figure, marks, crowd=places, frame=frame)
    return figure


def closer_figure(figure: Figure, trials: Sequence[Trial[Evaluation]]) -> Figure | None:
    """The same over the designs alone, where machines leave them a corner; None where they do not."""
    from plotly.graph_objects import Figure

    designs = [record.evaluation for record in trials if record.values and not record.is_repeat]
    areas = [design.area_mm2 for design in designs]
    rates = [design.throughput_samples_per_s for design in designs]
    best = max(rates)
    if len(areas) < FEWEST_CLOSER or max(areas) - min(areas) > CLOSER_SHARE * max(areas):
        return None
    closer = Figure(figure)
    least = min(rate for rate in rates if rate >= best / 2)
    spans = ((min(areas), max(areas)), (least, best))
    across, up = ((low - _room(low, high), high + 2 * _room(low, high)) for low, high in spans)
    for update in (closer.update_xaxes, closer.update_yaxes):
        update(type="linear", dtick=None, tickformat=",.6~g")
    closer.update_yaxes(rangemode=None)
    closer.update_layout(title={"text": "The same, closer: the designs alone"})
    seen = [place for place in _places(designs) if place[1] >= least]
    set_names(closer, [_best_mark(designs)], crowd=seen, frame=Frame(across, up))
    return closer


def _room(low: float, high: float) -> float:
    return 0.08 * (high - low) or 0.01 * high


def _places(designs: Sequence[Evaluation]) -> list[Place]:
    return [(design.area_mm2, design.throughput_samples_per_s) for design in designs]


def _best_mark(designs: Sequence[Evaluation]) -> Mark:
    best = min(designs, key=lambda design: (-design.throughput_samples_per_s, design.area_mm2, design.tdp_w))
    return _mark(BEST, best, symbol="circle-open", size=19, colour=BEST_COLOUR)


def _mark(name: str, design: Evaluation, *, symbol: str, size: int, colour: str) -> Mark:
    hover = f"{name}<br>{describe_design(design)}"
    return Mark(name, design.area_mm2, design.throughput_samples_per_s, symbol, size, colour, hover)


def area_front(designs: Sequence[Evaluation]) -> list[Evaluation]:
    """Designs that no other one equals in area and throughput or beats, the smallest first."""
    found: list[Evaluation] = []
    for design in sorted(designs, key=lambda each: (each.area_mm2, -each.throughput_samples_per_s)):
        if not found or design.throughput_samples_per_s > found[-1].throughput_samples_per_s:
            found.append(design)
    return found


def pareto_figure(trials: Sequence[Trial[Evaluation]], *, front: Sequence[Trial[Evaluation]]) -> Figure:
    """Throughput over TDP, coloured by area; the designs of the front are ringed."""
    import plotly.graph_objects as go

    feasible = [record for record in trials if record.values and not record.is_repeat]
    designs = [record.evaluation for record in feasible]
    figure = go.Figure()
    figure.add_scatter(
        x=[design.tdp_w for design in designs], y=[design.throughput_samples_per_s for design in designs],
        mode="markers", name="trial", text=_hovers(feasible), hoverinfo="text",
        marker={"color": [design.area_mm2 for design in designs], "colorscale": SCALE, "size": 8, "line": dict(RIM),
                "colorbar": {"title": "area, mm<sup>2</sup>", "thickness": 14}},
    )  # fmt: skip
    figure.add_scatter(
        x=[record.evaluation.tdp_w for record in front],
        y=[record.evaluation.throughput_samples_per_s for record in front],
        mode="markers", name="Pareto front", hoverinfo="skip",
        marker={"symbol": "circle-open", "size": 15, "color": BEST_COLOUR, "line": {"width": 2}},
    )  # fmt: skip
    figure.update_xaxes(title="TDP, W", rangemode="tozero")
    figure.update_yaxes(
        title=VALUE_LABELS["throughput"], **_axis([design.throughput_samples_per_s for design in designs])
    )
    return apply_style(figure, "Pareto front: throughput up, TDP and area down")


def parallel_coordinates_figure(trials: Sequence[Trial[Evaluation]]) -> Figure:
    """One line per feasible trial through its parameters (powers of two evenly spaced), coloured by throughput."""
    import plotly.graph_objects as go

    feasible = sorted((record for record in trials if record.values), key=lambda record: record.values[0])
    rates = [record.evaluation.throughput_samples_per_s for record in feasible]
    stated = [(label, [value(trial.point) for trial in feasible]) for label, value in AXES]
    dimensions = [
        *(_log_dimension(label, values) for label, values in stated if all(values)),
        {"label": "area, mm2", "values": [record.evaluation.area_mm2 for record in feasible], "tickformat": ".0f"},
        {"label": "samples/s", "values": rates, "tickformat": ".3~s"},
    ]
    line = {"color": rates, "colorscale": SCALE, "showscale": False}
    figure = go.Figure(
        go.Parcoords(line=line, dimensions=dimensions, labelangle=0, unselected={"line": {"opacity": 0.1}})
    )
    apply_style(figure, "Parameters of every feasible trial")
    figure.update_layout(margin={"l": 60, "r": 60, "t": 110, "b": 40})
    return figure


def _log_dimension(label: str, values: Sequence[float]) -> dict[str, Any]:
    levels = sorted(set(values))
    return {
        "label": label,
        "values": [math.log2(value) for value in values],
        "tickvals": [math.log2(level) for level in levels],
        "ticktext": [f"{level:g}" for level in levels],
    }


_OF_DESIGNS = 3
"""The first causes, which only designed chips have."""


def breakdown_figure(evaluations: Mapping[str, Evaluation], *, needs_schedules: bool = True) -> Figure:
    """Where an iteration's time goes, a bar per design; machines that exist have no schedules."""
    import plotly.graph_objects as go

    drawn = [(name, each) for name, each in evaluations.items() if each.schedules or not needs_schedules]
    shown = {name: design for name, design in drawn if design.is_feasible}
    figure = go.Figure()
    for number, cause in enumerate(CAUSES):
        label, seconds = cause.label, [getattr(design.breakdown, cause.name) for design in shown.values()]
        # Nothing has both the first three and matmuls, attention and vector work; other repeats are hatched.
        marker: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)]}
        if number >= len(COLOURS) + _OF_DESIGNS:
            marker["pattern"] = {"shape": "/"}
        if any(seconds):
            figure.add_bar(
                y=list(shown), x=seconds, name=label, orientation="h", marker=marker,
                hovertext=[f"{label}: {format_time(value)}" for value in seconds], hoverinfo="text",
            )  # fmt: skip
    return style_bars(figure, "Where an iteration's time goes", count=len(shown), axis="seconds an iteration")


def search_figures(
    trials: Sequence[Trial[Evaluation]],
    *,
    goal: str,
    references: Mapping[str, Evaluation],
    front: Sequence[Trial[Evaluation]] = (),
    best: Evaluation | None = None,
) -> dict[str, Figure]:
    """The figures of a search by file name; those that would be empty are left out."""
    if not trials:
        return {}
    # Hand placements are in a table: one on a small machine would take the scale of every figure for itself.
    machines = {name: other for name, other in references.items() if not is_expert(name)}
    figures: dict[str, Figure] = {}
    is_any = any(record.values for record in trials)
    if is_any and goal == PARETO_GOAL:
        figures["pareto"] = pareto_figure(trials, front=front)
    if is_any:
        figures["area_throughput"] = area_throughput_figure(trials, references=machines)
        closer = closer_figure(figures["area_throughput"], trials)
        figures |= {} if closer is None else {"front": closer}
    if best is not None and best.schedules:
        figures["breakdown"] = breakdown_figure({"best design": best, **machines}, needs_schedules=False)
    figures["history"] = history_figure(trials, goal=goal)
    if is_any:
        figures["parallel_coordinates"] = parallel_coordinates_figure(trials)
    return figures


def describe_design(design: Evaluation) -> str:
    """Lines for a hover box."""
    return (
        f"{describe_cores(design.accelerator)}<br>{describe_memories(design.accelerator)}<br>"
        f"micro-batch {design.micro_batch}<br>{format_number(design.throughput_samples_per_s)} samples/s, "
        f"{format_number(design.area_mm2)} mm2, {format_number(design.tdp_w)} W"
    )


def _hovers(records: Sequence[Trial[Evaluation]]) -> list[str] | None:
    if len(records) > MAX_HOVERED:
        return None
    return [f"trial {record.number}<br>{describe_design(record.evaluation)}" for record in records]


def _is_logarithmic(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / sorted(values)[len(values) // 4] > LOG_SPAN


def _axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis where values span much (labelled at the decades), else one from zero."""
    if not _is_logarithmic(values):
        return {"rangemode": "tozero", "tickformat": "~s"}
    return {"type": "log", "dtick": 1, "tickformat": "~s"}
