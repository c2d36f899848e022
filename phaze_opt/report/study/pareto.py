"""The Pareto front of a condition with several objectives: throughput up, TDP and area down."""

from __future__ import annotations

from collections.abc import Sequence

from phaze_opt.objective.goals import Goal
from phaze_opt.report.chip import describe_chip, describe_point
from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Paragraph, Section, TableBlock
from phaze_opt.report.picture import Marks, Picture, PlotAxis, Scale, contender_look
from phaze_opt.report.study.inputs import FoundDesign, ReportInputs, all_of, front_of
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import format_number
from phaze_opt.study.config import Condition

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
            picture=pareto_picture(all_of(inputs, condition), front, inputs, condition.key),
            alternative=describe_front(front, condition.key),
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


def pareto_picture(
    found: Sequence[FoundDesign], front: Sequence[FoundDesign], inputs: ReportInputs, where: str
) -> Picture:
    """Throughput over TDP, coloured by area."""
    shown = found[:: 1 + len(found) // MAX_POINTS]
    areas = [item.values[2] for item in found]
    span = (min(areas), max(areas))
    label = "area, mm\N{SUPERSCRIPT TWO}"
    layers = [
        Marks(
            [item.values[1] for item in shown], [item.values[0] for item in shown], px=5, opacity=0.45,
            scale=Scale([item.values[2] for item in shown], label, span),
        )
    ]  # fmt: skip
    for name in (name for name in inputs.contenders if any(item.contender == name for item in front)):
        own = [item for item in front if item.contender == name]
        layers.append(
            Marks(
                [item.values[1] for item in own], [item.values[0] for item in own], name, px=12,
                symbol=contender_look(inputs.contenders.index(name)).marker, ringed=range(len(own)),
                hovers=[_hover(item) for item in own], scale=Scale([item.values[2] for item in own], "", span),
            )
        )  # fmt: skip
    axes = PlotAxis("TDP, W", is_from_zero=True), PlotAxis("throughput, samples/s", is_from_zero=True)
    return Picture(f"Throughput, TDP and area: {where}", tuple(layers), *axes, height_px=420)


def _hover(item: FoundDesign) -> str:
    source = f"{item.cell_key} trial {item.number}"
    return f"{source}\n{describe_chip(item.point)}\nmicro-batch {item.point.micro_batch}\n{_values(item)}"


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
