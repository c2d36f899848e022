"""Schedules drawn, as text and as a picture: a row a lane of cores, spread operators full height."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt.graph.operator import CoreType
from phaze_opt.report.picture import COLOURS, Boxes, Layer, Picture, PlotAxis, Rule
from phaze_opt.schedule.problem import ScheduleProblem, ScheduleResult

if TYPE_CHECKING:
    from rich.text import Text

_TYPES = {CoreType.TC: ("TC",), CoreType.VC: ("VC",), CoreType.TC_AND_VC: ("TC", "VC")}
_NAMES = {CoreType.TC: "tensor cores", CoreType.VC: "vector cores", CoreType.TC_AND_VC: "both"}
_COLOUR_OF = {CoreType.TC: COLOURS[0], CoreType.VC: COLOURS[1], CoreType.TC_AND_VC: COLOURS[2]}
_RICH_COLOUR = {CoreType.TC: "blue", CoreType.VC: "yellow", CoreType.TC_AND_VC: "green"}
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


def gantt_picture(
    problem: ScheduleProblem, result: ScheduleResult, *, labels: Sequence[str], title: str, unit: str = "s"
) -> Picture:
    """Tensor-core lanes above vector-core lanes; a spread operator spans all lanes of its kind, hatched.

    Args:
        problem: the problem.
        result: its schedule.
        labels: name of each operator.
        title: of the picture.
        unit: unit of time shown on the axis.
    """
    bars = gantt_bars(problem, result, labels=labels)
    lanes = {kind: max((bar.lane + 1 for bar in bars if bar.kind == kind), default=0) for kind in ("TC", "VC")}
    base = {"VC": 0.0, "TC": lanes["VC"] + 0.6}
    layers: list[Layer] = []
    for is_spread in (False, True):
        for core_type, name in _NAMES.items():
            own = [bar for bar in bars if bar.core_type is core_type and bar.is_spread is is_spread]
            if own:
                heights = [0.9 * (lanes[bar.kind] if is_spread else 1) for bar in own]
                lows = [base[bar.kind] + (0.05 * lanes[bar.kind] if is_spread else bar.lane + 0.05) for bar in own]
                layers.append(
                    Boxes(
                        [bar.begin for bar in own], lows, [bar.end - bar.begin for bar in own], heights,
                        f"{name}, spread over all" if is_spread else name, _COLOUR_OF[core_type], is_spread,
                        [_hover(bar, problem) for bar in own], [bar.label for bar in own],
                    )
                )  # fmt: skip
    layers.append(Rule(x=result.lower_bound_s, words="lower bound"))
    ticks = tuple((base[kind] + lanes[kind] / 2, f"{kind} lanes") for kind in ("VC", "TC") if lanes[kind])
    return Picture(
        title,
        tuple(layers),
        PlotAxis(f"time ({unit})", span=(0.0, result.makespan_s * 1.02 or 1.0)),
        PlotAxis(ticks=ticks, span=(0.0, base["TC"] + lanes["TC"] or 1.0)),
        height_px=max(280, min(900, 100 + 26 * sum(lanes.values()))),
    )


def _hover(bar: GanttBar, problem: ScheduleProblem) -> str:
    cores = problem.cores.tc if bar.kind == "TC" else problem.cores.vc
    where = f"all {cores} {bar.kind}" if bar.is_spread else f"one {bar.kind}"
    return f"{bar.label}\n{where}\n{bar.begin:.6g} to {bar.end:.6g}"
