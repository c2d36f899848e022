"""The schedules behind an evaluation, rebuilt for drawing; an `Evaluation` itself keeps only their makespans."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from phaze_opt.cost.price_step import price_loads
from phaze_opt.cost.step_traffic import plan_network
from phaze_opt.errors import InputError
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import Operator, Phase
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.best_placement import OptionTimes, PlacedModel, phase_costs, schedule_problem
from phaze_opt.objective.compile import PHASES, CompiledOption
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.plan_evaluation import plan_placement
from phaze_opt.objective.scenario import PLANNED, Scenario
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
    free = scenario.without_budgets()
    if free.layer_fusion and free.plans is not None and evaluation.placement.plan is not None:
        # Alone another plan might be the best.
        free = replace(free, plans=free.plans.of_degrees(evaluation.placement.plan))
    chip = evaluation.accelerator
    objective = Objective(free, constants=constants).at_links(chip.link_bytes_per_s)
    if free.plans is not None:
        return _detail_plan(objective, chip)
    placed, estimates = objective.place(chip, evaluation.micro_batch)
    operators = objective.compiled(0, evaluation.micro_batch).operators
    phases = _phases(operators, placed.option, placed.times, estimates, chip, scenario=objective.scenario)
    forward_s, backward_s = _stage_times(placed)
    return DesignDetail(phases=phases, placement=placed.placement, forward_s=forward_s, backward_s=backward_s)


def _detail_plan(objective: Objective, chip: Accelerator) -> DesignDetail:
    """The same of the fastest full plan, which is found again.

    Raises:
        InputError: no plan fits.
    """
    planned, scheduled = objective.planned(0), objective.plan(chip)
    if scheduled is None:
        message = "no plan fits the memory, so there is nothing to draw"
        raise InputError(message)
    prices, ranked = planned.prices, scheduled.ranked
    step = scheduled.step
    network = plan_network(prices.network, ranked.plan)
    loads = price_loads(step, scheduled.layer_times, network)
    return DesignDetail(
        phases=_phases(
            planned.compiled.operators,
            scheduled.option,
            scheduled.times,
            objective.estimate(chip, PLANNED),
            chip,
            scenario=objective.scenario,
        ),
        placement=plan_placement(step, ranked, layers=scheduled.layer_times, network=prices.network),
        forward_s=tuple((loads.busy_s - loads.backward_s)[0].tolist()),
        backward_s=tuple(loads.backward_s[0].tolist()),
    )


def _phases(
    operators: Sequence[Operator],
    option: CompiledOption,
    times: OptionTimes,
    estimates: Estimates,
    chip: Accelerator,
    *,
    scenario: Scenario,
) -> tuple[PhaseDetail, ...]:
    """Every layer and phase with more than one operator; forward again, which has forward's schedule, is left out."""
    return tuple(
        PhaseDetail(
            name=f"{phase.layer}_{phase.phase.value}",
            problem=schedule_problem(phase, phase_costs(phase, estimates, chip), chip, scenario=scenario),
            result=times.schedules[row][column],
            labels=tuple(operators[int(index)].name for index in phase.columns),
        )
        for row, layer in enumerate(option.phases)
        for column, phase in enumerate(layer[: len(PHASES)])
        if int(phase.is_core.sum()) > 1
    )


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
