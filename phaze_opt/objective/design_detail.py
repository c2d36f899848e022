"""The schedules behind an evaluation, rebuilt for drawing; an `Evaluation` itself keeps only their makespans."""

from dataclasses import dataclass, replace

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import Phase
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.best_placement import PlacedModel, phase_costs, schedule_problem
from phaze_opt.objective.compile import PHASES
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.schedule.problem import ScheduleProblem, ScheduleResult


@dataclass(frozen=True, slots=True)
class PhaseDetail:
    """One scheduled layer phase: ``name`` such as ``block_forward``, its problem, schedule and operator names."""

    name: str
    problem: ScheduleProblem
    result: ScheduleResult
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DesignDetail:
    """Schedules and stage times of one evaluated design.

    Attributes:
        phases: every distinct layer and phase of the chosen tensor degree that has more than one operator.
        placement: where the layers run.
        forward_s: forward time of each stage and micro-batch with its collectives, without boundary transfers, s.
        backward_s: backward time of each stage, recomputation included, s.
    """

    phases: tuple[PhaseDetail, ...]
    placement: PlacementResult
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]


def detail_design(evaluation: Evaluation, *, scenario: Scenario, constants: Constants | None = None) -> DesignDetail:
    """Rebuild the schedules of an evaluation of one model.

    Raises:
        InputError: the evaluation is infeasible, or of several models.
    """
    if evaluation.placement is None or len(scenario.models) != 1:
        message = f"only a feasible evaluation of one model has schedules to draw; this one is of {evaluation.model}"
        raise InputError(message)
    free = replace(scenario, max_area_mm2=None, max_tdp_w=None)
    objective = Objective(free, constants=constants)
    placed, estimates = objective.place(evaluation.accelerator, evaluation.micro_batch)
    operators = objective.compiled(0, evaluation.micro_batch).operators
    phases = tuple(
        PhaseDetail(
            name=f"{phase.layer}_{phase.phase.value}",
            problem=schedule_problem(
                phase, phase_costs(phase, estimates, evaluation.accelerator), evaluation.accelerator, scenario=free
            ),
            result=placed.times.schedules[row][column],
            labels=tuple(operators[int(index)].name for index in phase.columns),
        )
        for row, layer in enumerate(placed.option.phases)
        for column, phase in enumerate(layer)
        if int(phase.is_core.sum()) > 1
    )
    forward_s, backward_s = _stage_times(placed)
    return DesignDetail(phases=phases, placement=placed.placement, forward_s=forward_s, backward_s=backward_s)


def _stage_times(placed: PlacedModel) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Forward and backward time of each stage, first stage first, s."""
    option = placed.option
    forward, backward = PHASES.index(Phase.FORWARD), PHASES.index(Phase.BACKWARD)

    def seconds(layer: int, phase: int) -> float:
        return float(placed.times.upper_s[layer, phase]) + option.phases[layer][phase].collective_s

    forwards, backwards = [], []
    for stage in placed.placement.stages:
        layers = option.graph.chain[stage.first : stage.last + 1]
        ahead = sum(seconds(layer, forward) for layer in layers)
        forwards.append(ahead)
        again = ahead if stage.is_recomputed else 0.0
        backwards.append(again + sum(seconds(layer, backward) for layer in layers))
    return tuple(forwards), tuple(backwards)
