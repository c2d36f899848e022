"""Solving one point exactly: its evaluation, and the placement and schedules that attain it."""

from dataclasses import dataclass, replace

from phaze_opt.certify.certificate import (
    Solution,
    SolvedFusion,
    SolvedGroup,
    SolvedModel,
    SolvedPart,
    SolvedPlan,
    SolvedRun,
    SolvedSchedule,
    SolvedStage,
)
from phaze_opt.cost.compiled_step import blocks_of, forward_again
from phaze_opt.graph.operator import Phase
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.best_placement import OptionTimes, PlacedModel, place_model
from phaze_opt.objective.compile import PHASES, CompiledOption
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.layer_fusion import LayerTable
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scheduled_plan import FusedPlan
from phaze_opt.objective.several_models import combine_evaluations
from phaze_opt.schedule.layer_fusion import no_groups
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import SearchSpace

MORE_EFFORT = ((1e-4, 2000), (0.0, 20000))
"""Gap and nodes of schedules solved again because what they left open kept a proof from closing."""
NUM_EFFORTS = 1 + len(MORE_EFFORT)


@dataclass(frozen=True, slots=True)
class SolvedPoint:
    """A feasible point that was solved, or the evaluation of an infeasible one with no solution."""

    evaluation: Evaluation
    solution: Solution | None


def with_effort(scenario: Scenario, effort: int) -> Scenario:
    """The scenario with schedules solved as thoroughly as an effort of 0 .. `NUM_EFFORTS` - 1 says; 0 is its own."""
    if effort == 0:
        return scenario
    gap, nodes = MORE_EFFORT[effort - 1]
    most = 0 if scenario.schedule_nodes == 0 else max(scenario.schedule_nodes, nodes)
    return replace(scenario, schedule_gap=min(scenario.schedule_gap, gap), schedule_nodes=most)


def solve_point(
    objective: Objective, space: SearchSpace | Grid, index: int, *, effort: int = 0, is_brief: bool = False
) -> SolvedPoint:
    """Evaluate a point as `Objective.evaluate` does, and keep how it attains its throughput.

    Args:
        objective: evaluates.
        space: of the point.
        index: of the point.
        effort: of its schedules.
        is_brief: of full plans leave out of the evaluation what proofs do not ask for (`evaluate_plan`).
    """
    point = space.point(index)
    chip = objective.accelerator(point)
    objective = objective.at_links(chip.link_bytes_per_s)
    scenario = with_effort(objective.scenario, effort)
    evaluations: list[Evaluation] = []
    models: list[SolvedModel | None] = []
    for model in range(len(scenario.models)):
        if scenario.plans is not None:
            evaluation, solved = _solve_plans(objective, point, model, scenario, is_brief=is_brief)
            evaluations.append(evaluation)
            models.append(solved)
            continue
        compiled = objective.compiled(model, point.micro_batch)
        estimates = objective.estimate(chip, point.micro_batch, index=model)
        placed = place_model(compiled, estimates, chip, scenario=scenario)
        evaluations.append(objective.evaluate_placed(chip, point.micro_batch, placed, estimates, index=model))
        models.append(_solved_model(placed))
    evaluation = evaluations[0] if len(evaluations) == 1 else combine_evaluations(evaluations, scenario=scenario)
    if not evaluation.is_feasible:
        return SolvedPoint(evaluation, None)
    evaluation = objective.with_money(evaluation)
    return SolvedPoint(evaluation, Solution(index, tuple(solved for solved in models if solved is not None)))


def _solve_plans(
    objective: Objective, point: DesignPoint, model: int, scenario: Scenario, *, is_brief: bool
) -> tuple[Evaluation, SolvedModel | None]:
    """One model under full plans: its evaluation, and the plan and schedules that attain it."""
    chip = objective.accelerator(point)
    found = objective.evaluate_planned(chip, index=model, scenario=scenario, is_brief=is_brief)
    if found.scheduled is None:
        return found.evaluation, None
    ranked = found.scheduled.ranked
    schedules, fusion = _solved_schedules(found.scheduled.option, found.scheduled.times), None
    if found.fused is not None:
        ranked = found.fused.ranked
        schedules, fusion = _schedules_alone(found.fused), solved_fusion(found.fused)
    plan = ranked.plan
    return found.evaluation, SolvedModel(
        tensor_parallel=plan.tensor,
        data_parallel=plan.data,
        stages=(),
        schedules=schedules,
        plan=SolvedPlan(plan, blocks_of(scenario.models[model], plan), plan.recomputes),
        fusion=fusion,
    )


def _schedules_alone(found: FusedPlan) -> tuple[SolvedSchedule, ...]:
    """Every layer alone, and forward again where the software keeps something of it."""
    step, schedules = found.step, list[SolvedSchedule]()
    for row, layer in enumerate(step.layers):
        problems = [*zip(PHASES, layer.graph.phases, strict=True)]
        if step.stack.kept_operators:
            problems.append((Phase.FORWARD, forward_again(layer, step)))
        for column, (phase, graph) in enumerate(problems):
            made = found.clock.schedule(graph)
            is_again = column >= len(PHASES)
            schedules.append(SolvedSchedule(row, phase, made.start_s, made.is_spread, is_again=is_again))
    return tuple(schedules)


def solved_fusion(found: FusedPlan) -> SolvedFusion | None:
    """Groups of every chunk that has any, and how their layers run; None where every layer runs alone."""
    table = LayerTable(found.step, found.clock)
    runs: list[SolvedRun] = []
    parts: dict[object, SolvedPart] = {}
    for run in found.fused.runs:
        chain, phase = run.chain, PHASES[run.chain.phase]
        if chain.groups == no_groups(chain.problem):
            continue
        groups = []
        for group in chain.groups:
            cells = chain.cells(group)
            choice, reserved = cells[0].choice, table.reserved_bytes(cells[0].slices)
            size = len(cells), choice.num_parts
            groups.append(SolvedGroup(*size, choice.holds_weights, chain.is_written, reserved))
            for cell in cells if max(size) > 1 else ():
                for way in cell.ways:
                    made = table.schedule(cell, way)
                    schedule = SolvedSchedule(cell.kind, phase, made.start_s, made.is_spread)
                    on_chip = way.has_input, way.spares_output, way.has_weights
                    key = (cell.kind, phase, choice.num_parts, on_chip, reserved)
                    parts[key] = SolvedPart(choice.num_parts, *on_chip, reserved, schedule)
        runs.append(SolvedRun(run.chunk, phase, tuple(groups)))
    return SolvedFusion(tuple(runs), tuple(parts.values())) if runs else None


def _solved_model(placed: PlacedModel) -> SolvedModel:
    """Placement and schedules of one model."""
    placement = placed.placement
    return SolvedModel(
        tensor_parallel=placement.tensor_parallel,
        data_parallel=placement.data_parallel,
        stages=tuple(SolvedStage(stage.first, stage.last, stage.is_recomputed) for stage in placement.stages),
        schedules=_solved_schedules(placed.option, placed.times),
    )


def _solved_schedules(option: CompiledOption, times: OptionTimes) -> tuple[SolvedSchedule, ...]:
    """Every schedule of an option."""
    return tuple(
        SolvedSchedule(
            row, option.phases[row][column].phase, result.start_s, result.is_spread, is_again=column >= len(PHASES)
        )
        for row, layer in enumerate(times.schedules)
        for column, result in enumerate(layer)
    )
