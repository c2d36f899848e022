"""Schedules drawn: text for a terminal, plotly for a page. One row per lane of cores, spread operators full height."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.style import COLOURS, MUTED_COLOUR, apply_style
from phaze_opt.schedule.problem import ScheduleProblem, ScheduleResult

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from rich.text import Text

_TYPES = {CoreType.TC: ("TC",), CoreType.VC: ("VC",), CoreType.TC_AND_VC: ("TC", "VC")}
_NAMES = {CoreType.TC: "tensor cores", CoreType.VC: "vector cores", CoreType.TC_AND_VC: "both"}
_COLOUR_OF = {CoreType.TC: COLOURS[0], CoreType.VC: COLOURS[1], CoreType.TC_AND_VC: COLOURS[2]}
_RICH_COLOUR = {CoreType.TC: "blue", CoreType.VC: "yellow", CoreType.TC_AND_VC: "green"}
_HATCH = {"fgcolor": "white", "size": 6, "solidity": 0.15, "fillmode": "overlay"}
"""White lines over the colour of a bar; without ``overlay`` the lines would replace the colour."""
_EPSILON = 1e-9
_NAME = 6
"""Letters before a lane."""


@dataclass(frozen=True, slots=True)
class GanttBar:
    """One operator in one lane of one core type; times in the problem's unit."""

    operator: int
    label: str
    core_type: CoreType
    kind: str
    lane: int
    begin: float
    end: float
    is_spread: bool


def gantt_bars(problem: ScheduleProblem, result: ScheduleResult, *, labels: Sequence[str]) -> tuple[GanttBar, ...]:
    """Bars of all operators that take cores, by kind of core, each in the first lane that is free.

    Args:
        problem: the problem.
        result: its schedule.
        labels: name of each operator.
    """
    bars: list[GanttBar] = []
    for kind in ("TC", "VC"):
        users = [i for i, core_type in enumerate(problem.core_types) if kind in _TYPES.get(core_type, ())]
        free_at: list[float] = []
        for operator in sorted(users, key=lambda i: (result.start_s[i], i)):
            begin = result.start_s[operator]
            is_spread = result.is_spread[operator]
            end = begin + (problem.spread_s if is_spread else problem.one_core_s)[operator]
            slack = _EPSILON * max(result.makespan_s, end)
            lane = next((k for k, free in enumerate(free_at) if free <= begin + slack), len(free_at))
            if lane == len(free_at):
                free_at.append(0.0)
            free_at[lane] = end
            bars.append(
                GanttBar(operator, labels[operator], problem.core_types[operator], kind, lane, begin, end, is_spread)
            )
    return tuple(bars)


def text_gantt(
    problem: ScheduleProblem, result: ScheduleResult, *, labels: Sequence[str], width: int = 72, max_lanes: int = 12
) -> Text:
    """Lines that are lanes: ``#`` spread over all cores, ``=`` on one core; labels where they fit.

    Args:
        problem: the problem.
        result: its schedule.
        labels: name of each operator.
        width: characters for the time axis.
        max_lanes: lanes shown of each core type.
    """
    from rich.text import Text

    chart = Text(no_wrap=True)
    bars = gantt_bars(problem, result, labels=labels)
    for kind in ("TC", "VC"):
        lanes = sorted({bar.lane for bar in bars if bar.kind == kind})
        for lane in lanes[:max_lanes]:
            row = [bar for bar in bars if bar.kind == kind and (bar.is_spread or bar.lane == lane)]
            text = _text_lane(row, lane, makespan=result.makespan_s, width=width)
            chart += Text(f"{kind} {lane + 1}".ljust(_NAME)) + text + "\n"
        if len(lanes) > max_lanes:
            chart.append(f"{'':{_NAME}}... {len(lanes) - max_lanes} more busy {kind} lanes\n", style="dim")
    return chart.append(f"{'':{_NAME}}{'0'.ljust(width - 12)}{result.makespan_s:>12.6g}", style="dim")


def _text_lane(bars: Sequence[GanttBar], lane: int, *, makespan: float, width: int) -> Text:
    """One row of the chart; a spread operator has its label in its first lane only."""
    from rich.text import Text

    cells = [(" ", "")] * width
    for bar in bars:
        first = min(width - 1, int(bar.begin / makespan * width)) if makespan > 0 else 0
        last = min(width, max(first + 1, round(bar.end / makespan * width))) if makespan > 0 else 1
        fill = "#" if bar.is_spread else "="
        label = f"[{bar.label}" if bar.lane == lane and last - first > 2 else ""
        body = label.ljust(last - first, fill)[: last - first]
        for offset, character in enumerate(body):
            cells[first + offset] = (character, _RICH_COLOUR[bar.core_type])
    text = Text()
    for character, style in cells:
        text.append(character, style=style)
    return text


def gantt_figure(
    problem: ScheduleProblem, result: ScheduleResult, *, labels: Sequence[str], title: str, unit: str = "s"
) -> Figure:
    """Plotly Gantt: tensor-core lanes above vector-core lanes; a spread operator spans all lanes of its kind.

    Args:
        problem: the problem.
        result: its schedule.
        labels: name of each operator.
        title: title of the figure.
        unit: unit of time shown on the axis.
    """
    import plotly.graph_objects as go

    bars = gantt_bars(problem, result, labels=labels)
    lanes = {kind: max((bar.lane + 1 for bar in bars if bar.kind == kind), default=0) for kind in ("TC", "VC")}
    base = {"VC": 0.0, "TC": lanes["VC"] + 0.6}
    figure = go.Figure()
    for bar in bars:
        figure.add_trace(_bar_trace(bar, problem, base=base[bar.kind], lanes=lanes[bar.kind]))
    for trace in _legend_traces(bars):
        figure.add_trace(trace)
    apply_style(figure, title)
    ticks = [(base[kind] + lanes[kind] / 2, f"{kind} lanes") for kind in ("VC", "TC") if lanes[kind]]
    figure.update_yaxes(tickvals=[at for at, _ in ticks], ticktext=[name for _, name in ticks], showgrid=False)
    figure.update_xaxes(title=f"time ({unit})", range=[0, result.makespan_s * 1.02 or 1.0])
    figure.add_vline(x=result.lower_bound_s, line_dash="dot", line_color=MUTED_COLOUR)
    figure.add_annotation(
        text="lower bound",
        x=result.lower_bound_s,
        y=lanes["VC"] + 0.3 if lanes["TC"] else lanes["VC"] + 0.1,
        showarrow=False,
        xanchor="right",
        yanchor="middle" if lanes["VC"] and lanes["TC"] else "bottom",
        font={"size": 11, "color": MUTED_COLOUR},
    )
    figure.update_layout(
        barmode="overlay",
        height=max(320, min(900, 160 + 26 * sum(lanes.values()))),
        uniformtext={"minsize": 10, "mode": "hide"},
    )
    return figure


def _bar_trace(bar: GanttBar, problem: ScheduleProblem, *, base: float, lanes: int) -> object:
    import plotly.graph_objects as go

    height = lanes if bar.is_spread else 1
    cores = problem.cores.tc if bar.kind == "TC" else problem.cores.vc
    where = f"all {cores} {bar.kind}" if bar.is_spread else f"one {bar.kind}"
    return go.Bar(
        x=[bar.end - bar.begin],
        y=[base + (height / 2 if bar.is_spread else bar.lane + 0.5)],
        base=[bar.begin],
        width=[height * 0.9],
        orientation="h",
        marker={
            "color": _COLOUR_OF[bar.core_type],
            "line": {"color": "white", "width": 1},
            "pattern": {**_HATCH, "shape": "/" if bar.is_spread else ""},
        },
        showlegend=False,
        text=[bar.label],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        hovertemplate=f"{bar.label}<br>{where}<br>%{{base:.6g}} to {bar.end:.6g}<extra></extra>",
    )


def _legend_traces(bars: Sequence[GanttBar]) -> list[object]:
    """Legend entries of their own, so that no hatched bar stands for a core type."""
    import plotly.graph_objects as go

    present = [core_type for core_type in _NAMES if any(bar.core_type is core_type for bar in bars)]
    markers: list[tuple[dict[str, object], str]] = [
        ({"color": _COLOUR_OF[core_type]}, _NAMES[core_type]) for core_type in present
    ]
    if any(bar.is_spread for bar in bars):
        markers.append(({"color": MUTED_COLOUR, "pattern": {**_HATCH, "shape": "/"}}, "spread over all cores"))
    return [go.Bar(x=[None], y=[None], orientation="h", marker=marker, name=name) for marker, name in markers]
