"""Limits that do not depend on the clock: MIPs only above a gap, and with a number of nodes."""

from functools import cache

import pytest
from kits.schedulers import random_problem

from phaze_opt.schedule import block_solve
from phaze_opt.schedule.problem import ScheduleOptions, ScheduleStatus
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.verify import verify_schedule

SEEDS = range(40)
WITHOUT_SEARCH = {"multi_starts": 0, "tree_nodes": 0, "beam_width": 0}


@cache
def hard_problems():
    """Random problems that bounds and list schedules alone leave open."""
    drawn = [random_problem(seed, num_operators=14) for seed in SEEDS]
    loose = ScheduleOptions(mip_gap=1.0, **WITHOUT_SEARCH)
    return tuple(problem for problem in drawn if solve_schedule(problem, options=loose).gap > 1e-6)


@cache
def exact_s(problem):
    return solve_schedule(problem).makespan_s


def test_no_mip_below_the_gap():
    found = 0
    for problem in hard_problems():
        loose = solve_schedule(problem, options=ScheduleOptions(mip_gap=1.0, **WITHOUT_SEARCH))
        assert loose.num_ilp_solves == 0
        assert loose.status is ScheduleStatus.FEASIBLE
        verify_schedule(problem, loose)
        found += 1
    assert found >= 3


def test_gap_is_reached_or_better():
    for problem in hard_problems()[:3]:
        result = solve_schedule(problem, options=ScheduleOptions(mip_gap=0.02, **WITHOUT_SEARCH))
        exact = solve_schedule(problem, options=ScheduleOptions(**WITHOUT_SEARCH))
        assert exact.status is ScheduleStatus.OPTIMAL
        assert result.gap <= 0.02 + 1e-9
        assert result.lower_bound_s <= exact.makespan_s * (1 + 1e-9)
        assert result.makespan_s >= exact.makespan_s * (1 - 1e-9)


@pytest.mark.parametrize("nodes", [1, 5])
def test_node_limits_keep_bounds_valid_and_repeat(nodes):
    for problem in hard_problems()[:2]:
        options = ScheduleOptions(mip_nodes=nodes, time_limit_s=3600.0, **WITHOUT_SEARCH)
        first = solve_schedule(problem, options=options)
        block_solve._close.cache_clear()
        assert solve_schedule(problem, options=options) == first
        verify_schedule(problem, first)
        exact = exact_s(problem)
        assert first.lower_bound_s <= exact * (1 + 1e-9)
        assert exact <= first.makespan_s * (1 + 1e-9)
