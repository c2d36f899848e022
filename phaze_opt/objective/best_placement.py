"""From layer times to the best placement, solving schedules only where they can change it.

Placement is monotone in layer times. Tensor degrees enter with lower bounds on their makespans; the degree that the
placement picks is solved exactly and the placement repeated, until it picks one whose schedules are solved. Every other
degree is then no better even at its lower bound, so the answer is the one that solving everything would give.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.compile import CompiledModel, CompiledOption, CompiledPhase
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementResult, PlacementStatus
from phaze_opt.placement.solve import solve_placement
from phaze_opt.placement.verify import verify_placement
from phaze_opt.record.arrays import Floats
from phaze_opt.schedule.problem import Cores, MipRuns, ScheduleProblem, ScheduleResult
from phaze_opt.schedule.solve import ScheduleOptions, bound_compiled, solve_compiled
from phaze_opt.schedule.structure import ScheduleStructure
from phaze_opt.schedule.verify import verify_schedule
from phaze_opt.workload.training import TrainingSpec

_T = TypeVar("_T")

HANG_GUARD_S = 3600.0
"""No schedule comes near it; nodes limit the effort, so that results do not depend on the machine's speed."""


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """Latencies of the operators of one problem on one accelerator, s, and the HBM floor of the whole."""

    one_core_s: Floats
    spread_s: Floats
    floor_s: float


@dataclass(slots=True)
class OptionTimes:
    """Makespans of one tensor degree, shape (num_distinct_layers, 3); bounds until ``schedules`` is filled.

    The one mutable value of the room: `evaluate` refines it while it narrows the choice of the tensor degree.
    """

    lower_s: Floats
    upper_s: Floats
    schedules: tuple[tuple[ScheduleResult, ...], ...] = ()

    @property
    def is_solved(self) -> bool:
        """Whether every schedule has been solved, rather than bounded."""
        return bool(self.schedules)

    @property
    def known_s(self) -> Floats:
        """Makespans that are attained where the schedules are solved, and lower bounds elsewhere."""
        return self.upper_s if self.is_solved else self.lower_s


def schedule_options(gap: float, nodes: int) -> ScheduleOptions:
    """How far the schedules of an evaluation are solved: alike in every command."""
    return ScheduleOptions(mip_gap=gap, mip_nodes=nodes, time_limit_s=HANG_GUARD_S)


def phase_costs(phase: CompiledPhase, estimates: Estimates, accelerator: Accelerator) -> PhaseCosts:
    """Pick one problem's latencies out of the estimates of all operators (row 0)."""
    traffic = float(estimates.traffic_bytes[0, phase.columns].sum())
    return PhaseCosts(
        one_core_s=estimates.one_core_s[0, phase.columns],
        spread_s=estimates.spread_s[0, phase.columns],
        floor_s=traffic / accelerator.hbm_bandwidth_bytes_per_s,
    )


def schedule_problem(
    phase: CompiledPhase, costs: PhaseCosts, accelerator: Accelerator, *, scenario: Scenario
) -> ScheduleProblem:
    """The scheduling problem of one phase as a value, for replay and drawing."""
    return ScheduleProblem(
        core_types=phase.core_types,
        one_core_s=tuple(costs.one_core_s.tolist()),
        spread_s=tuple(costs.spread_s.tolist()),
        edges=phase.edges,
        cores=Cores.of(accelerator),
        exclusivity=scenario.exclusivity,
        floor_s=costs.floor_s,
    )


def bound_option(
    option: CompiledOption, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> OptionTimes:
    """Quick bounds on every makespan of one tensor degree."""
    bounds = _on_schedules(bound_compiled, option, estimates, accelerator, scenario)
    return OptionTimes(
        lower_s=np.array([[each.lower_s for each in layer] for layer in bounds]),
        upper_s=np.array([[each.upper_s for each in layer] for layer in bounds]),
    )


def _on_schedules(  # noqa: PLR0917
    solver: Callable[..., _T],
    option: CompiledOption,
    estimates: Estimates,
    accelerator: Accelerator,
    scenario: Scenario,
    **options: ScheduleOptions,
) -> tuple[tuple[_T, ...], ...]:
    """What a solver of compiled schedules says of every problem of a tensor degree; of those alike, once.

    Forward that runs again is often forward.
    """
    found: dict[tuple[ScheduleStructure, bytes], _T] = {}
    answers = []
    for layer in option.phases:
        keys = [(phase.structure, phase.columns.tobytes()) for phase in layer]
        for key, phase in zip(keys, layer, strict=True):
            if key not in found:
                found[key] = _on_schedule(solver, phase, estimates, accelerator, scenario, **options)
        answers.append(tuple(found[key] for key in keys))
    return tuple(answers)


def _on_schedule(  # noqa: PLR0917
    solver: Callable[..., _T],
    phase: CompiledPhase,
    estimates: Estimates,
    accelerator: Accelerator,
    scenario: Scenario,
    **options: ScheduleOptions,
) -> _T:
    """What a solver of compiled schedules says of one problem."""
    costs = phase_costs(phase, estimates, accelerator)
    return solver(
        phase.structure,
        costs.one_core_s,
        costs.spread_s,
        cores=Cores.of(accelerator),
        exclusivity=scenario.exclusivity,
        floor_s=costs.floor_s,
        **options,
    )


def solve_option(
    option: CompiledOption, times: OptionTimes, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> MipRuns:
    """Solve every schedule of one tensor degree, tightening ``times`` in place; returns the MIPs solved."""
    limits = schedule_options(scenario.schedule_gap, scenario.schedule_nodes)
    solved = _on_schedules(solve_compiled, option, estimates, accelerator, scenario, options=limits)
    found_s = np.array([[result.lower_bound_s for result in layer] for layer in solved])
    times.lower_s = np.maximum(times.lower_s, found_s)
    times.upper_s = np.array([[result.makespan_s for result in layer] for layer in solved])
    times.schedules = solved
    return frozenset().union(*(result.mips for layer in solved for result in layer))


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """The placement of one model on one accelerator and what it was computed from.

    Attributes:
        placement: the best one; infeasible if nothing fits.
        option: the sharded model of the chosen degree (the first one if infeasible).
        times: its schedules.
        bound_s: lower bound on the batch time that open schedule gaps leave, s.
        mips, num_placements: effort.
    """

    placement: PlacementResult
    option: CompiledOption
    times: OptionTimes
    bound_s: float
    mips: MipRuns
    num_placements: int


def place_model(
    compiled: CompiledModel, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> PlacedModel:
    """The best placement over all tensor degrees, with exact schedules for the degree it uses."""
    times = [bound_option(option, estimates, accelerator, scenario=scenario) for option in compiled.options]
    mips: MipRuns = frozenset()
    num_placements = 0
    bound_s = 0.0
    while True:
        known = [entry.known_s for entry in times]
        placement = solve_placement(placement_problem(compiled, known, accelerator.hbm_bytes, scenario=scenario))
        bound_s = bound_s or placement.batch_time_s
        num_placements += 1
        degrees = [option.graph.tensor_parallel for option in compiled.options]
        chosen = degrees.index(placement.tensor_parallel) if placement.tensor_parallel in degrees else 0
        if placement.status is PlacementStatus.INFEASIBLE or times[chosen].is_solved:
            break
        mips |= solve_option(compiled.options[chosen], times[chosen], estimates, accelerator, scenario=scenario)
    return PlacedModel(
        placement=placement,
        option=compiled.options[chosen],
        times=times[chosen],
        bound_s=max(bound_s, _bound_of_gaps(placement, compiled, times, accelerator, scenario=scenario)),
        mips=mips,
        num_placements=num_placements,
    )


def _bound_of_gaps(
    placement: PlacementResult,
    compiled: CompiledModel,
    times: list[OptionTimes],
    accelerator: Accelerator,
    *,
    scenario: Scenario,
) -> float:
    """Batch time at the final lower bounds; equal to the placement's when the solved schedules have no gap."""
    gaps = [float((entry.upper_s - entry.lower_s).max()) for entry in times if entry.is_solved]
    if placement.status is PlacementStatus.INFEASIBLE or max(gaps, default=0.0) <= 0.0:
        return placement.batch_time_s
    lower = [entry.lower_s for entry in times]
    return solve_placement(placement_problem(compiled, lower, accelerator.hbm_bytes, scenario=scenario)).batch_time_s


def placement_problem(
    compiled: CompiledModel, makespan_s: Iterable[Floats], memory_bytes: float, *, scenario: Scenario
) -> PlacementProblem:
    """The placement problem of a model on one chip.

    Args:
        compiled: the model at every tensor degree.
        makespan_s: of each degree, shape (num_distinct_layers, 3), s.
        memory_bytes: of a device.
        scenario: cluster and recomputation.
    """
    training = compiled.training
    options = zip(compiled.options, makespan_s, strict=True)
    return PlacementProblem(
        options=tuple(layer_costs(option, seconds, training=training) for option, seconds in options),
        cluster=scenario.cluster,
        memory_bytes=float(memory_bytes),
        global_batch=training.global_batch,
        micro_batch=training.micro_batch,
        recompute=scenario.recompute,
    )


def layer_costs(option: CompiledOption, makespan_s: Floats, *, training: TrainingSpec) -> LayerCosts:
    """Placement's view of a sharded model.

    Args:
        option: the sharded model.
        makespan_s: forward, backward and update makespans of its distinct layers, shape (num_distinct_layers, 3), s.
        training: for the bytes a parameter takes.
    """
    chain = np.array(option.graph.chain, dtype=np.int64)
    layers = option.graph.layers
    seconds = (makespan_s + option.collective_s)[chain]
    parameters = np.array([layer.num_parameters for layer in layers], dtype=np.float64)
    compressed = np.array([layer.compressed_weights for layer in layers])

    def sizes(name: str) -> Floats:
        return np.array([getattr(layer, name) for layer in layers])[chain]

    tied = float(layers[chain[-1]].num_tied_parameters) if len(chain) > 1 else 0.0
    # The update is one pass over a layer's parameters, so a share of them takes that share of its time.
    tied_share = tied / parameters[chain[-1]] if tied else 0.0
    optimizer = training.optimizer
    return LayerCosts(
        tensor_parallel=option.graph.tensor_parallel,
        forward_s=seconds[:, 0],
        backward_s=seconds[:, 1],
        update_s=seconds[:, 2],
        state_bytes=(parameters * optimizer.bytes_per_parameter + compressed * optimizer.weight_bytes)[chain],
        gradient_bytes=(parameters * optimizer.gradient_bytes)[chain],
        stash_bytes=sizes("stash_bytes"),
        input_bytes=sizes("input_bytes"),
        working_set_bytes=sizes("working_set_bytes"),
        output_bytes=sizes("output_bytes"),
        tied_state_bytes=tied * optimizer.bytes_per_parameter,
        tied_gradient_bytes=tied * optimizer.gradient_bytes,
        tied_update_s=float(seconds[-1, 2] * tied_share),
    )


def verify_placed(
    placed: PlacedModel, compiled: CompiledModel, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> None:
    """Replay every schedule of a feasible placement and recompute the placement from the makespans; under 1 ms.

    Raises:
        VerificationError: a check disagrees; a bug in a solver.
    """
    verify_option(placed.option, placed.times, estimates, accelerator, scenario=scenario)
    alone = replace(compiled, options=(placed.option,))
    problem = placement_problem(alone, [placed.times.upper_s], accelerator.hbm_bytes, scenario=scenario)
    verify_placement(problem, placed.placement)


def verify_option(
    option: CompiledOption, times: OptionTimes, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> None:
    """Replay every schedule of solved layers.

    Raises:
        VerificationError: one is not what it says; a bug in a solver.
    """
    for row, layer in enumerate(option.phases):
        for column, phase in enumerate(layer):
            costs = phase_costs(phase, estimates, accelerator)
            schedule = schedule_problem(phase, costs, accelerator, scenario=scenario)
            verify_schedule(schedule, times.schedules[row][column])
