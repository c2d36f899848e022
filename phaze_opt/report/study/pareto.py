"""The Pareto front of a condition with several objectives: throughput up, TDP and area down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phaze_opt.objective.goals import Goal
from phaze_opt.report.chip import describe_chip, describe_point
from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Paragraph, Section, TableBlock
from phaze_opt.report.study.inputs import FoundDesign, ReportInputs, all_of, front_of
from phaze_opt.report.style import BEST_COLOUR, RIM, SCALE, contender_look, finish_figure, plot_text
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import format_number
from phaze_opt.study.config import Condition

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

EXPORT = "pareto.csv"
MAX_ROWS = 40
MAX_POINTS = 4000
"""Designs off the front beyond which a figure shows only an even sample of them."""


def pareto_section(inputs: ReportInputs) -> Section | None:
    """The front of each condition with several objectives; None where there is none."""
    conditions = [condition for condition in inputs.result.conditions if condition.goal is Goal.PARETO]
    if not conditions:
        return None
    options = tuple(
        Alternative(condition.key, _blocks(inputs, condition, place)) for place, condition in enumerate(conditions)
    )
    return Section("pareto", "Pareto fronts", (Choice("pareto", "Condition", options),))


def _blocks(inputs: ReportInputs, condition: Condition, place: int) -> tuple[Block, ...]:
    front = front_of(inputs, condition)
    if not front:
        return (Paragraph(f"Nothing feasible was found in {condition.key}."),)
    return (
        FigureBlock(
            name=f"pareto-{place}",
            title=f"Throughput, TDP and area: {condition.key}",
            alternative=describe_front(front, condition.key),
            figure=pareto_figure(all_of(inputs, condition), front, inputs),
            export=EXPORT,
        ),
        TableBlock(front_table(inputs, front, condition.key), EXPORT),
    )


def describe_front(front: Sequence[FoundDesign], where: str) -> str:
    """The ends of the front."""
    fastest, coolest = front[0], min(front, key=lambda item: item.values[1])
    return (
        f"The front of {where} has {len(front)} designs, from {_values(fastest)} to {_values(coolest)}. "
        "Colour is area; a design of the front is ringed and carries the marker of the contender that found it."
    )


def _values(item: FoundDesign) -> str:
    rate, tdp_w, area_mm2 = item.values
    return f"{format_number(rate)} samples/s at {format_number(tdp_w)} W and {format_number(area_mm2)} mm2"


def pareto_figure(found: Sequence[FoundDesign], front: Sequence[FoundDesign], inputs: ReportInputs) -> Figure:
    """Throughput over TDP, coloured by area."""
    import plotly.graph_objects as go

    every = 1 + len(found) // MAX_POINTS
    areas = [item.values[2] for item in found]
    scale = {"cmin": min(areas), "cmax": max(areas), "colorscale": SCALE}
    figure = go.Figure()
    figure.add_scatter(
        x=[item.values[1] for item in found[::every]], y=[item.values[0] for item in found[::every]], mode="markers",
        name="evaluated", hoverinfo="skip", showlegend=False,
        marker={**scale, "color": areas[::every], "size": 5, "opacity": 0.45, "line": dict(RIM),
                "colorbar": {"title": "area, mm<sup>2</sup>", "thickness": 12}},
    )  # fmt: skip
    names = [name for name in inputs.contenders if any(item.contender == name for item in front)]
    for name in names:
        own = [item for item in front if item.contender == name]
        figure.add_scatter(
            x=[item.values[1] for item in own], y=[item.values[0] for item in own], mode="markers",
            name=plot_text(name), hoverinfo="text", hovertext=[_hover(item) for item in own],
            marker={**scale, "color": [item.values[2] for item in own], "size": 12,
                    "symbol": contender_look(inputs.contenders.index(name)).marker,
                    "line": {"color": BEST_COLOUR, "width": 2}},
        )  # fmt: skip
    figure.update_xaxes(title="TDP, W", rangemode="tozero")
    figure.update_yaxes(title="throughput, samples/s", rangemode="tozero", tickformat="~s")
    return finish_figure(figure, height=470, num_legend=len(names))


def _hover(item: FoundDesign) -> str:
    source = plot_text(f"{item.cell_key} trial {item.number}")
    return f"{source}<br>{describe_chip(item.point)}<br>micro-batch {item.point.micro_batch}<br>{_values(item)}"


def front_table(inputs: ReportInputs, front: Sequence[FoundDesign], where: str) -> TableContent:
    """The designs of the front with the trials that found them."""
    fields: Fields[FoundDesign] = (
        words("source", lambda item: inputs.describe_run(item.cell_key, item.number)),
        number("samples/s", lambda item: format_number(item.values[0])),
        number("TDP, W", lambda item: format_number(item.values[1])),
        number("area, mm2", lambda item: format_number(item.values[2])),
        words("design", lambda item: describe_point(item.point)),
    )
    shown = front[:: 1 + (len(front) - 1) // MAX_ROWS]
    note = "" if len(shown) == len(front) else f"{len(shown)} of {len(front)} designs; all of them are in {EXPORT}."
    return table_of(f"Pareto front: {where}", fields, shown, note)
