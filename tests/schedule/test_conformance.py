"""What an exact scheduler must satisfy: replay, brute force, closed forms, bounds, a time limit."""

import time
from dataclasses import replace

import numpy as np
import pytest
from kits.fewer_cases import every
from kits.schedulers import brute_force_makespan, random_problem, relabelled, serial_sum

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.solve import ScheduleOptions, solve_schedule
from phaze_opt.schedule.verify import verify_schedule

TOLERANCE = 1e-6


def solve(problem: ScheduleProblem, *, time_limit_s: float = 30.0) -> ScheduleResult:
    return solve_schedule(problem, options=ScheduleOptions(time_limit_s=time_limit_s))


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
class TestExactScheduler:
    @pytest.mark.parametrize("seed", range(8))
    def test_replay_confirms_and_bounds_hold(self, exclusivity: Exclusivity, seed: int) -> None:
        """Replay confirms; lower bound <= makespan <= serial sum."""
        problem = random_problem(seed, num_operators=8, exclusivity=exclusivity)
        result = solve(problem)
        verify_schedule(problem, result)
        assert result.lower_bound_s <= result.makespan_s * (1 + TOLERANCE)
        assert result.makespan_s <= serial_sum(problem) * (1 + TOLERANCE)

    @pytest.mark.parametrize("seed", every(2, range(100, 112)))
    def test_equals_brute_force(self, exclusivity: Exclusivity, seed: int) -> None:
        """Six operators: the optimum."""
        problem = random_problem(seed, num_operators=6, exclusivity=exclusivity)
        result = solve(problem)
        assert result.status is ScheduleStatus.OPTIMAL
        assert result.makespan_s == pytest.approx(brute_force_makespan(problem), rel=TOLERANCE)

    @pytest.mark.parametrize("seed", range(200, 204))
    def test_relabelling_changes_nothing(self, exclusivity: Exclusivity, seed: int) -> None:
        """The makespan does not depend on how operators are numbered."""
        problem = random_problem(seed, num_operators=8, exclusivity=exclusivity)
        order = np.random.default_rng(seed).permutation(8).tolist()
        first = solve(problem)
        second = solve(relabelled(problem, order))
        assert second.makespan_s == pytest.approx(first.makespan_s, rel=TOLERANCE)

    def test_exact_on_chains(self, exclusivity: Exclusivity) -> None:
        """A chain takes the sum of the shorter latencies."""
        problem = replace(
            random_problem(7, num_operators=20, exclusivity=exclusivity), edges=tuple((i, i + 1) for i in range(19))
        )
        result = solve(problem)
        assert result.status is ScheduleStatus.OPTIMAL
        assert result.makespan_s == pytest.approx(serial_sum(problem), rel=TOLERANCE)

    @pytest.mark.parametrize(("num_cores", "count"), [(2, 6), (3, 4), (8, 5)])
    def test_exact_on_independent_sets(self, exclusivity: Exclusivity, num_cores: int, count: int) -> None:
        """Equal operators: the best of k one after another spread, the rest in full rows."""
        problem = ScheduleProblem(
            core_types=(CoreType.TC,) * count,
            one_core_s=(10.0,) * count,
            spread_s=(4.0,) * count,
            edges=(),
            cores=Cores(num_cores, 1),
            exclusivity=exclusivity,
        )
        expected = min(4.0 * k + 10.0 * -(-(count - k) // num_cores) for k in range(count + 1))
        result = solve(problem)
        assert result.makespan_s == pytest.approx(expected, rel=TOLERANCE)

    def test_floor_applies_to_the_whole_problem(self, exclusivity: Exclusivity) -> None:
        """The floor is taken once, not for every block."""
        problem = random_problem(3, num_operators=6, exclusivity=exclusivity)
        free = solve(problem).makespan_s
        for floor in (0.5 * free, 2.0 * free):
            result = solve(replace(problem, floor_s=floor))
            assert result.makespan_s == pytest.approx(max(free, floor), rel=TOLERANCE)

    def test_time_limit_returns_incumbent_and_gap(self, exclusivity: Exclusivity) -> None:
        """A problem that is too large for its time still gets a schedule and an honest bound."""
        problem = replace(random_problem(11, num_operators=40, exclusivity=exclusivity), cores=Cores(2, 2))
        began = time.monotonic()
        result = solve(problem, time_limit_s=0.3)
        assert time.monotonic() - began < 10.0
        verify_schedule(problem, result)
        if result.status is not ScheduleStatus.OPTIMAL:
            assert result.status is ScheduleStatus.TIME_LIMIT
            assert 0.0 < result.gap < 1.0
