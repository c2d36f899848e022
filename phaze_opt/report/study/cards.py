"""Architecture cards: the best design of each condition, how it stands to references, what it runs, drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from phaze_opt.objective.design_detail import DesignDetail, PhaseDetail, detail_design
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.record.result_fields import fields_of, headlines_of
from phaze_opt.report.chip import describe_point, silicon_words
from phaze_opt.report.design import (
    describe_degrees,
    design_table,
    figure_text,
    limits_sentence,
    members_table,
    placement_table,
    time_table,
)
from phaze_opt.report.document import Alternative, Block, Choice, FigureBlock, Paragraph, Section, TableBlock
from phaze_opt.report.gantt import gantt_figure
from phaze_opt.report.pipeline import pipeline_figure
from phaze_opt.report.study.inputs import FoundDesign, ReportInputs, best_of
from phaze_opt.report.study.wording import format_percent
from phaze_opt.report.style import finish_figure
from phaze_opt.report.table import Column, Fields, TableContent, number, numbers, pairs_table, table_of, words
from phaze_opt.report.text import GOAL_UNITS, WATTS_PER_KILOWATT, format_number, format_ratio, format_time
from phaze_opt.study.config import Condition

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


EXPORT = "winners.csv"


def cards_section(inputs: ReportInputs, drawings: Mapping[str, Drawings]) -> Section:
    """The winner of each condition in one table, then a card of each to choose from.

    Args:
        inputs: of the report.
        drawings: schedules and pipelines of the winners by key of the condition; those not drawn are absent.
    """
    winners = {condition.key: best_of(inputs, condition) for condition in inputs.result.conditions}
    options = tuple(
        Alternative(
            condition.key,
            _card(inputs, condition, winners[condition.key], drawings.get(condition.key, Drawings()), place),
        )
        for place, condition in enumerate(inputs.result.conditions)
    )
    blocks: list[Block] = [TableBlock(winners_table(inputs, winners), EXPORT)]
    if options:
        blocks.append(Choice("cards", "Condition", options))
    return Section("designs", "Best designs", tuple(blocks))


def winners_table(inputs: ReportInputs, winners: Mapping[str, FoundDesign | None]) -> TableContent:
    """One row per condition: the design, its objective, its regret and its source."""
    has_rivals = len(inputs.contenders) > 1
    columns: tuple[Column, ...] = (Column("condition"), *numbers("best value", "regret"), Column("against"))
    columns += (Column("design"), Column("source"), *((Column("also found by"),) if has_rivals else ()))
    rows = []
    for condition in inputs.result.conditions:
        best = winners[condition.key]
        if best is None:
            word = "nothing feasible" if inputs.cells_of(condition) else "not searched yet"
            rows.append((condition.key, word, *("-" for _ in columns[2:])))
            continue
        truth = inputs.summary.truths.get(condition.key)
        rows.append(
            (
                condition.key,
                describe_value(condition.goal, best.values[0]),
                "-" if truth is None else format_percent(max(0.0, 1.0 - best.values[0] / truth.value)),
                "-" if truth is None else truth.kind.value,
                describe_point(best.point),
                inputs.describe_run(best.cell_key, best.number),
                *((", ".join(best.also_found_by) or "nobody else",) if has_rivals else ()),
            )
        )
    note = "With several objectives, the fastest design of the front."
    shown = note if inputs.is_multi_objective else ""
    return TableContent("Best design of each condition", columns, tuple(rows), shown)


def describe_value(goal: Goal, value: float) -> str:
    """The first objective with its unit."""
    if goal is Goal.THROUGHPUT_PER_TDP:
        return f"{format_number(WATTS_PER_KILOWATT * value)} samples/s per kW"
    return f"{format_number(value)} {GOAL_UNITS.get(goal, GOAL_UNITS[Goal.THROUGHPUT])}"


def _card(
    inputs: ReportInputs, condition: Condition, best: FoundDesign | None, drawn: Drawings, place: int
) -> tuple[Block, ...]:
    if best is None:
        word = "Nothing feasible was found in" if inputs.cells_of(condition) else "No search is finished of"
        return (Paragraph(f"{word} {condition.key}."),)
    source = f"Found by {best.contender}: {inputs.describe_run(best.cell_key, best.number)}."
    evaluation = inputs.evaluations.get(condition.key, {}).get(best.point)
    if evaluation is None:
        return (Paragraph(f"{describe_point(best.point)}. {source} Its evaluation is not kept."),)
    references = inputs.result.references.get(condition.key, {})
    blocks: list[Block] = [Paragraph(f"{source} {limits_sentence(evaluation)}"), TableBlock(design_table(evaluation))]
    blocks.append(TableBlock(metrics_table(evaluation)))
    if references:
        blocks.append(TableBlock(references_table(evaluation, references)))
    if evaluation.members:
        blocks.append(TableBlock(members_table(evaluation)))
    elif evaluation.placement is not None:
        blocks += [TableBlock(placement_table(evaluation.placement)), TableBlock(time_table(evaluation))]
    if drawn.note:
        blocks.append(Paragraph(drawn.note, is_warning=True))
    blocks += [_figure(item, f"{place}-{number}") for number, item in enumerate(drawn.designs)]
    return tuple(blocks)


def metrics_table(evaluation: Evaluation) -> TableContent:
    """What the design does: every declared figure that is known of it."""
    first = headlines_of(Evaluation)
    others = (each for each in fields_of(Evaluation) if each not in first)
    rows = tuple(
        (each.label, figure_text(evaluation, each)) for each in (*first, *others) if each.name in evaluation.figures
    )
    return pairs_table(
        "Metrics", rows, note=f"All figures are modelled, area and TDP {silicon_words(evaluation.accelerator)}."
    )


def references_table(evaluation: Evaluation, references: Mapping[str, Evaluation]) -> TableContent:
    """The design and the references, a row each, with the design's ratio to every one."""

    def ratio(field: str) -> Callable[[tuple[str, Evaluation]], str]:
        own = float(getattr(evaluation, field))
        return _if_feasible(lambda other: "" if other is evaluation else format_ratio(own / getattr(other, field)))

    fields: Fields[tuple[str, Evaluation]] = (
        words("machine", lambda item: item[0]),
        number("samples/s", _if_feasible(lambda e: format_number(e.throughput_samples_per_s), "infeasible")),
        number("design is faster by", ratio(THROUGHPUT)),
        number("samples/s per kW", _if_feasible(lambda e: format_number(WATTS_PER_KILOWATT * e.throughput_per_tdp))),
        number("design does better by", ratio("throughput_per_tdp")),
        words("t x p x d, mb", _if_feasible(_degrees)),
        number("area, mm2", lambda item: format_number(item[1].area_mm2)),
        number("TDP, W", lambda item: format_number(item[1].tdp_w)),
    )
    failed = [
        f"{name} is infeasible: {other.reason.split(';')[0]}"
        for name, other in references.items()
        if not other.is_feasible
    ]
    note = "; ".join(["t x p x d: tensor, pipeline and data parallel degrees; mb: samples a micro-batch", *failed])
    rows = (("this design", evaluation), *references.items())
    return table_of("Against references", fields, rows, note, emphasis=lambda item: item[1] is evaluation)


def _if_feasible(text: Callable[[Evaluation], str], otherwise: str = "-") -> Callable[[tuple[str, Evaluation]], str]:
    return lambda item: text(item[1]) if item[1].is_feasible else otherwise


def _degrees(item: Evaluation) -> str:
    return "-" if item.placement is None else f"{describe_degrees(item.placement)}, {item.micro_batch}"


def _figure(drawn: DrawnDesign, name: str) -> FigureBlock:
    figure: Figure = drawn.figure
    height = int(figure.layout.height or 400)
    barmode, uniform = figure.layout.barmode, figure.layout.uniformtext
    finish_figure(figure, height=height, num_legend=3)
    figure.update_layout(barmode=barmode, uniformtext=uniform)
    return FigureBlock(f"drawing-{name}", drawn.title, drawn.alternative, figure)


TOLERANCE = 1e-9
"""Relative; the batch time of a design solved again equals that which is kept."""


@dataclass(frozen=True, slots=True, eq=False)
class DrawnDesign:
    """A drawing of a design with its title and what it shows in words."""

    title: str
    alternative: str
    figure: Figure


@dataclass(frozen=True, slots=True, eq=False)
class Drawings:
    """Drawings of the best design of a condition, and why there are none; ``note`` may be empty."""

    designs: tuple[DrawnDesign, ...] = ()
    note: str = ""


def draw_winners(inputs: ReportInputs, *, progress: Callable[[str], None] = lambda _: None) -> dict[str, Drawings]:
    """Schedules of a block and the pipeline of the best design of every condition whose evaluation is kept.

    Args:
        inputs: of the report.
        progress: told the condition that is next.

    Returns:
        Drawings by key of the condition.
    """
    drawn: dict[str, Drawings] = {}
    for condition in inputs.result.conditions:
        best = best_of(inputs, condition)
        evaluation = None if best is None else inputs.evaluations.get(condition.key, {}).get(best.point)
        if evaluation is not None and evaluation.is_feasible:
            progress(condition.key)
            drawn[condition.key] = draw_design(evaluation, condition)
    return drawn


def draw_design(evaluation: Evaluation, condition: Condition) -> Drawings:
    """Drawings of one design; of a common design those of each of its models."""
    members = evaluation.members or (evaluation,)
    designs: list[DrawnDesign] = []
    for model, member in zip(condition.scenario.models, members, strict=True):
        placement = member.placement
        if placement is None:
            continue
        scenario = replace(condition.scenario, models=(model,))
        detail = detail_design(member, scenario=scenario, constants=condition.constants)
        again_s = detail.placement.batch_time_s
        if abs(again_s - placement.batch_time_s) > TOLERANCE * placement.batch_time_s:
            note = (
                f"Not drawn: solved again, this design takes {again_s:.6g} s a batch, but {placement.batch_time_s:.6g} "
                "s is kept; the results were made by another version of the package."
            )
            return Drawings(note=note)
        phases = [phase for phase in detail.phases if phase.name.startswith("block_")]
        designs += [_draw_phase(phase, member.model) for phase in phases]
        designs.append(_draw_pipeline(detail, member.model))
    return Drawings(tuple(designs))


def _draw_phase(phase: PhaseDetail, model: str) -> DrawnDesign:
    name = phase.name.replace("_", " ")
    result = phase.result
    num_spread = sum(result.is_spread)
    gap = 0.0 if result.makespan_s <= 0 else max(0.0, 1.0 - result.lower_bound_s / result.makespan_s)
    alternative = (
        f"Schedule of the {name} of {model} on one device: {len(phase.labels)} operators in "
        f"{format_time(result.makespan_s)}, {num_spread} of them spread over all cores; the lower bound is "
        f"{format_time(result.lower_bound_s)}, {'which is met' if gap <= TOLERANCE else f'{format_percent(gap)} less'}."
    )
    figure = gantt_figure(phase.problem, result, labels=phase.labels, title="")
    return DrawnDesign(f"Schedule of {model}: {name}", alternative, figure)


def _draw_pipeline(detail: DesignDetail, model: str) -> DrawnDesign:
    placement = detail.placement
    figure = pipeline_figure(placement, forward_s=detail.forward_s, backward_s=detail.backward_s)
    times = sorted({format_time(stage.time_s): stage.time_s for stage in placement.stages}.items(), key=lambda t: t[1])
    span = " to ".join(dict.fromkeys((times[0][0], times[-1][0])))
    stages = f"stages: {len(placement.stages)}, devices of each: {placement.tensor_parallel}"
    alternative = f"{figure.layout.title.text}; {stages}, time of a stage and micro-batch: {span}."
    return DrawnDesign(f"Pipeline of {model}", alternative, figure)
