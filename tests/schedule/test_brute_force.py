"""Solver and bounds against brute force, by Hypothesis."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan, relabelled, serial_sum

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Cores, Exactness, Exclusivity, ScheduleProblem, ScheduleStatus
from phaze_opt.schedule.solve import ScheduleOptions, bound_compiled, solve_schedule
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.schedule.verify import verify_schedule

TYPES = (CoreType.TC, CoreType.VC, CoreType.TC_AND_VC, CoreType.NONE, CoreType.NETWORK)


@st.composite
def problems(draw, max_operators=6):
    count = draw(st.integers(1, max_operators))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=7)) if pairs else []
    one_core = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    spread = draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    problem = ScheduleProblem(
        core_types=tuple(draw(st.lists(st.sampled_from(TYPES), min_size=count, max_size=count))),
        one_core_s=tuple(float(value) for value in one_core),
        spread_s=tuple(float(value) for value in spread),
        edges=tuple(edges),
        cores=Cores(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        exclusivity=draw(st.sampled_from(Exclusivity)),
    )
    return relabelled(problem, draw(st.permutations(range(count))))


def quick_bounds(problem):
    return bound_compiled(
        compile_structure(problem.core_types, problem.edges),
        np.array(problem.one_core_s),
        np.array(problem.spread_s),
        cores=problem.cores,
        exclusivity=problem.exclusivity,
        floor_s=problem.floor_s,
    )


@settings(max_examples=70, deadline=None, derandomize=True)
@given(problems())
def test_solver_equals_brute_force(problem):
    result = solve_schedule(problem)
    verify_schedule(problem, result)
    assert result.status is ScheduleStatus.OPTIMAL
    assert result.makespan_s == pytest.approx(brute_force_makespan(problem), rel=1e-7)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(problems(max_operators=5))
def test_quick_bounds_enclose_brute_force(problem):
    optimum = brute_force_makespan(problem)
    bounds = quick_bounds(problem)
    assert bounds.lower_s <= optimum * (1 + 1e-9)
    assert bounds.upper_s >= optimum * (1 - 1e-9)
    assert bounds.upper_s <= serial_sum(problem) * (1 + 1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems(max_operators=5))
def test_bound_only_results_replay_and_enclose(problem):
    result = solve_schedule(problem, options=ScheduleOptions(exactness=Exactness.BOUND))
    verify_schedule(problem, result)
    optimum = brute_force_makespan(problem)
    assert result.lower_bound_s <= optimum * (1 + 1e-9) <= result.makespan_s * (1 + 2e-9)
    assert result.num_ilp_solves == 0


def test_type_rule_lets_spread_operators_of_both_types_overlap():
    """Independent TC and VC operators with L = 10, I = 4: 4 under type, 8 under chip."""
    problem = ScheduleProblem((CoreType.TC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4))
    assert solve_schedule(replace(problem, exclusivity=Exclusivity.TYPE)).makespan_s == 4.0
    assert solve_schedule(problem).makespan_s == 8.0


def test_spread_mixed_operator_occupies_both_types():
    problem = ScheduleProblem(
        (CoreType.TC_AND_VC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4), Exclusivity.TYPE
    )
    assert solve_schedule(problem).makespan_s == 8.0


def test_accepted_gap_stops_early_and_is_stated():
    problem = ScheduleProblem((CoreType.TC,) * 5, (9.0, 8.0, 7.0, 6.0, 5.0), (9.0,) * 5, (), Cores(2, 1))
    exact = solve_schedule(problem)
    loose = solve_schedule(problem, options=ScheduleOptions(accept_gap=0.5))
    assert exact.makespan_s == 18.0
    assert loose.gap <= 0.5
    assert loose.status in (ScheduleStatus.FEASIBLE, ScheduleStatus.OPTIMAL)


def test_empty_and_contracted_problems():
    empty = ScheduleProblem((), (), (), (), Cores(1, 1))
    assert solve_schedule(empty).makespan_s == 0.0
    views = ScheduleProblem(
        (CoreType.NONE, CoreType.TC, CoreType.NONE), (5.0, 2.0, 5.0), (5.0, 3.0, 5.0), ((0, 1), (1, 2)), Cores(1, 1)
    )
    result = solve_schedule(views)
    verify_schedule(views, result)
    assert (result.makespan_s, result.start_s) == (2.0, (0.0, 0.0, 2.0))
