"""From layer times to the best placement, solving schedules only where they can change it.

Placement is monotone in layer times. Tensor degrees enter with lower bounds on their makespans; the degree that the
placement picks is solved exactly and the placement repeated, until it picks one whose schedules are solved. Every other
degree is then no better even at its lower bound, so the answer is the one that solving everything would give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.compile import CompiledModel, CompiledOption
from phaze_opt.objective.layer_times import OptionTimes, bound_option, solve_option
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementResult, PlacementStatus
from phaze_opt.placement.solve import solve_placement
from phaze_opt.workload.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class PlacedModel:
    """The placement of one model on one accelerator and what it was computed from.

    Attributes:
        placement: the best one; infeasible if nothing fits.
        option: the sharded model of the chosen degree (the first one if infeasible).
        times: its schedules.
        bound_s: lower bound on the batch time that open schedule gaps leave, s.
        num_ilp_solves, num_placements: effort.
    """

    placement: PlacementResult
    option: CompiledOption
    times: OptionTimes
    bound_s: float
    num_ilp_solves: int
    num_placements: int


def place_model(
    compiled: CompiledModel, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> PlacedModel:
    """The best placement over all tensor degrees, with exact schedules for the degree it uses."""
    times = [bound_option(option, estimates, accelerator, scenario=scenario) for option in compiled.options]
    num_ilp_solves = 0
    num_placements = 0
    bound_s = 0.0
    while True:
        costs = tuple(
            layer_costs(option, entry.upper_s if entry.is_solved else entry.lower_s, training=compiled.training)
            for option, entry in zip(compiled.options, times, strict=True)
        )
        placement = solve_placement(placement_problem(costs, compiled.training, accelerator, scenario=scenario))
        bound_s = bound_s or placement.batch_time_s
        num_placements += 1
        chosen = next((i for i, cost in enumerate(costs) if cost.tensor_parallel == placement.tensor_parallel), 0)
        if placement.status is PlacementStatus.INFEASIBLE or times[chosen].is_solved:
            break
        num_ilp_solves += solve_option(
            compiled.options[chosen], times[chosen], estimates, accelerator, scenario=scenario
        )
    return PlacedModel(
        placement=placement,
        option=compiled.options[chosen],
        times=times[chosen],
        bound_s=max(bound_s, _bound_of_gaps(placement, compiled, times, accelerator, scenario=scenario)),
        num_ilp_solves=num_ilp_solves,
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
    costs = tuple(
        layer_costs(option, entry.lower_s, training=compiled.training)
        for option, entry in zip(compiled.options, times, strict=True)
    )
    return solve_placement(placement_problem(costs, compiled.training, accelerator, scenario=scenario)).batch_time_s


def placement_problem(
    costs: tuple[LayerCosts, ...], training: TrainingSpec, accelerator: Accelerator, *, scenario: Scenario
) -> PlacementProblem:
    """The placement problem of one scenario and accelerator."""
    return PlacementProblem(
        options=costs,
        cluster=scenario.cluster,
        memory_bytes=float(accelerator.hbm_bytes),
        global_batch=training.global_batch,
        micro_batch=training.micro_batch,
        recompute=scenario.recompute,
    )


def layer_costs(option: CompiledOption, makespan_s: NDArray[np.float64], *, training: TrainingSpec) -> LayerCosts:
    """Placement's view of a sharded model.

    Args:
        option: the sharded model.
        makespan_s: forward, backward and update makespans of its distinct layers, shape (num_distinct_layers, 3), s.
        training: for the bytes a parameter takes.
    """
    collective_s = np.array([[phase.collective_s for phase in layer] for layer in option.phases])
    seconds = makespan_s + collective_s
    layers = option.graph.layers
    chain = np.array(option.graph.chain, dtype=np.int64)
    parameters = np.array([layer.num_parameters for layer in layers], dtype=np.float64)
    tied = float(layers[chain[-1]].num_tied_parameters) if len(chain) > 1 else 0.0
    # The update is one pass over a layer's parameters, so a share of them takes that share of its time.
    tied_share = tied / parameters[chain[-1]] if tied else 0.0
    optimizer = training.optimizer
    return LayerCosts(
        tensor_parallel=option.graph.tensor_parallel,
        forward_s=seconds[chain, 0],
        backward_s=seconds[chain, 1],
        update_s=seconds[chain, 2],
        state_bytes=(parameters * optimizer.bytes_per_parameter)[chain],
        gradient_bytes=(parameters * optimizer.gradient_bytes)[chain],
        stash_bytes=np.array([layer.stash_bytes for layer in layers])[chain],
        input_bytes=np.array([layer.input_bytes for layer in layers])[chain],
        working_set_bytes=np.array([layer.working_set_bytes for layer in layers])[chain],
        output_bytes=np.array([layer.output_bytes for layer in layers])[chain],
        tied_state_bytes=tied * optimizer.bytes_per_parameter,
        tied_gradient_bytes=tied * optimizer.gradient_bytes,
        tied_update_s=float(seconds[chain[-1], 2] * tied_share),
    )
