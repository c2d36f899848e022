"""Solving one point exactly: its evaluation, and the placement and schedules that attain it."""

from dataclasses import dataclass, replace

from phaze_opt.certify.certificate import Solution, SolvedModel, SolvedSchedule, SolvedStage
from phaze_opt.objective.best_placement import PlacedModel, place_model
from phaze_opt.objective.compile import PHASES
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.several_models import combine_evaluations
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


def solve_point(objective: Objective, space: SearchSpace, index: int, *, effort: int = 0) -> SolvedPoint:
    """Evaluate a point as `Objective.evaluate` does, and keep how it attains its throughput."""
    point, scenario = space.point(index), with_effort(objective.scenario, effort)
    chip = objective.accelerator(point)
    evaluations, models = [], []
    for model in range(len(scenario.models)):
        compiled = objective.compiled(model, point.micro_batch)
        estimates = objective.estimate(chip, point.micro_batch, index=model)
        placed = place_model(compiled, estimates, chip, scenario=scenario)
        evaluations.append(objective.evaluate_placed(chip, point.micro_batch, placed, estimates, index=model))
        models.append(placed)
    evaluation = evaluations[0] if len(evaluations) == 1 else combine_evaluations(evaluations, scenario=scenario)
    if not evaluation.is_feasible:
        return SolvedPoint(evaluation, None)
    return SolvedPoint(evaluation, Solution(index, tuple(_solved_model(placed) for placed in models)))


def _solved_model(placed: PlacedModel) -> SolvedModel:
    """Placement and schedules of one model."""
    placement = placed.placement
    return SolvedModel(
        tensor_parallel=placement.tensor_parallel,
        data_parallel=placement.data_parallel,
        stages=tuple(SolvedStage(stage.first, stage.last, stage.is_recomputed) for stage in placement.stages),
        schedules=tuple(
            SolvedSchedule(row, PHASES[column], result.start_s, result.is_spread)
            for row, layer in enumerate(placed.times.schedules)
            for column, result in enumerate(layer)
        ),
    )
