"""Times of every layer phase: quick bounds for all tensor degrees, exact schedules where they can decide."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.compile import CompiledOption, CompiledPhase
from phaze_opt.objective.scenario import Scenario
from phaze_opt.schedule.problem import Cores, ScheduleProblem, ScheduleResult
from phaze_opt.schedule.solve import ScheduleOptions, bound_compiled, solve_compiled

HANG_GUARD_S = 3600.0
"""No schedule comes near it; nodes limit the effort, so that results do not depend on the machine's speed."""


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """Latencies of the operators of one problem on one accelerator, s, and the HBM floor of the whole."""

    one_core_s: NDArray[np.float64]
    spread_s: NDArray[np.float64]
    floor_s: float


@dataclass(slots=True)
class OptionTimes:
    """Makespans of one tensor degree, shape (num_distinct_layers, 3); bounds until ``schedules`` is filled.

    The one mutable value of the room: `evaluate` refines it while it narrows the choice of the tensor degree.
    """

    lower_s: NDArray[np.float64]
    upper_s: NDArray[np.float64]
    schedules: tuple[tuple[ScheduleResult, ...], ...] = ()

    @property
    def is_solved(self) -> bool:
        """Whether every schedule has been solved, rather than bounded."""
        return bool(self.schedules)


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
    shape = (len(option.phases), 3)
    times = OptionTimes(lower_s=np.zeros(shape), upper_s=np.zeros(shape))
    for row, layer in enumerate(option.phases):
        for column, phase in enumerate(layer):
            costs = phase_costs(phase, estimates, accelerator)
            bounds = bound_compiled(
                phase.structure,
                costs.one_core_s,
                costs.spread_s,
                cores=Cores.of(accelerator),
                exclusivity=scenario.exclusivity,
                floor_s=costs.floor_s,
            )
            times.lower_s[row, column] = bounds.lower_s
            times.upper_s[row, column] = bounds.upper_s
    return times


def solve_option(
    option: CompiledOption, times: OptionTimes, estimates: Estimates, accelerator: Accelerator, *, scenario: Scenario
) -> int:
    """Solve every schedule of one tensor degree, tightening ``times`` in place; returns the MIPs solved."""
    limits = ScheduleOptions(
        mip_gap=scenario.schedule_gap, mip_nodes=scenario.schedule_nodes, time_limit_s=HANG_GUARD_S
    )
    solved: list[tuple[ScheduleResult, ...]] = []
    for row, layer in enumerate(option.phases):
        results = []
        for column, phase in enumerate(layer):
            costs = phase_costs(phase, estimates, accelerator)
            result = solve_compiled(
                phase.structure,
                costs.one_core_s,
                costs.spread_s,
                cores=Cores.of(accelerator),
                exclusivity=scenario.exclusivity,
                floor_s=costs.floor_s,
                options=limits,
            )
            times.lower_s[row, column] = max(times.lower_s[row, column], result.lower_bound_s)
            times.upper_s[row, column] = result.makespan_s
            results.append(result)
        solved.append(tuple(results))
    times.schedules = tuple(solved)
    return sum(result.num_ilp_solves for layer in solved for result in layer)
