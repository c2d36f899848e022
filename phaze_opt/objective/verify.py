"""Every evaluation is checked before it leaves: schedules by replay, the placement by independent recomputation."""

from __future__ import annotations

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.layer_times import phase_costs, schedule_problem
from phaze_opt.objective.placing import PlacedModel, layer_costs, placement_problem
from phaze_opt.objective.scenario import Scenario
from phaze_opt.placement.verify import verify_placement
from phaze_opt.schedule.verify import verify_schedule


def verify_placed(
    placed: PlacedModel,
    compiled: CompiledModel,
    estimates: Estimates,
    accelerator: Accelerator,
    *,
    scenario: Scenario,
) -> None:
    """Replay every schedule of a feasible placement and recompute the placement from the makespans; under 1 ms.

    Raises:
        VerificationError: a check disagrees; a bug in a solver.
    """
    for row, layer in enumerate(placed.option.phases):
        for column, phase in enumerate(layer):
            costs = phase_costs(phase, estimates, accelerator)
            problem = schedule_problem(phase, costs, accelerator, scenario=scenario)
            verify_schedule(problem, placed.times.schedules[row][column])
    costs_of_layers = layer_costs(placed.option, placed.times.upper_s, training=compiled.training)
    verify_placement(
        placement_problem((costs_of_layers,), compiled.training, accelerator, scenario=scenario), placed.placement
    )
