"""Upper bounds on the throughput of design points, without solving a schedule or an exact placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.hardware.area import area_mm2
from phaze_opt.hardware.power import tdp_w
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.layer_times import bound_option
from phaze_opt.objective.placing import layer_costs, placement_problem
from phaze_opt.objective.several_models import combine_rates
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.placement.solve import solve_placement
from phaze_opt.space.point import DesignPoint


@dataclass(frozen=True, slots=True)
class ThroughputBound:
    """What one point reaches at most; ``reason`` says why it is certainly infeasible, if it is."""

    throughput_samples_per_s: float
    tdp_w: float
    area_mm2: float
    reason: str = ""


def bound_points(objective: Objective, points: Sequence[DesignPoint]) -> tuple[ThroughputBound, ...]:
    """An upper bound on the throughput of every point."""
    return tuple(_bound_point(objective, point) for point in points)


def _bound_point(objective: Objective, point: DesignPoint) -> ThroughputBound:
    scenario = objective.scenario
    accelerator = objective.accelerator(point)
    area, power = area_mm2(accelerator), tdp_w(accelerator, scenario.cluster.network, objective.constants)
    if scenario.max_area_mm2 is not None and area > scenario.max_area_mm2:
        return ThroughputBound(0.0, power, area, "over the area budget")
    if scenario.max_tdp_w is not None and power > scenario.max_tdp_w:
        return ThroughputBound(0.0, power, area, "over the TDP budget")
    rates, ideals = [], []
    for index in range(len(scenario.models)):
        compiled = objective.compiled(index, point.micro_batch)
        estimates = objective.estimate(accelerator, point.micro_batch, index=index)
        costs = tuple(
            layer_costs(
                option,
                bound_option(option, estimates, accelerator, scenario=scenario).lower_s,
                training=compiled.training,
            )
            for option in compiled.options
        )
        placement = solve_placement(placement_problem(costs, compiled.training, accelerator, scenario=scenario))
        if placement.status is PlacementStatus.INFEASIBLE:
            return ThroughputBound(0.0, power, area, "no placement fits the memory")
        rates.append(scenario.global_batch / placement.batch_time_s)
        ideals.append(1.0 / compiled.flops_per_sample)
    return ThroughputBound(combine_rates(rates, ideals, common=scenario.common), power, area)
