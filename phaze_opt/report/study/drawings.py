"""The schedule and the pipeline of the best designs, solved again from what is kept: equal inputs, equal results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from phaze_opt.objective.design_detail import DesignDetail, PhaseDetail, detail_design
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.report.gantt import gantt_figure
from phaze_opt.report.pipeline import pipeline_figure
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.winners import best_of
from phaze_opt.report.study.wording import format_percent
from phaze_opt.report.text import format_time
from phaze_opt.study.plan import Condition

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

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
