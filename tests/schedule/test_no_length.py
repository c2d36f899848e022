"""The convention for operators of no length (docs/files.md): solver and replay agree on it."""

import pytest
from drawn_blocks import problems
from hypothesis import given, settings
from kits.schedulers import brute_force_makespan

from phaze_opt.errors import VerificationError
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import (
    Cores,
    Exclusivity,
    ScheduleOptions,
    ScheduleProblem,
    ScheduleResult,
    ScheduleStatus,
)
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.verify import verify_schedule

TC, VC = CoreType.TC, CoreType.VC
CHAIN = ((0, 1), (1, 2))


def problem_of(types, one_core, spread, exclusivity):
    return ScheduleProblem(types, one_core, spread, CHAIN, Cores(1, 1), exclusivity=exclusivity)


SPREAD_IN_THE_MIDDLE = problem_of((TC, TC, TC, VC), (5.0, 6.0, 5.0, 10.0), (9.0, 0.0, 9.0, 10.0), Exclusivity.CHIP)
ONE_CORE_ON_A_BUSY_CORE = problem_of((VC, TC, VC, TC), (5.0, 0.0, 5.0, 10.0), (9.0, 9.0, 9.0, 10.0), Exclusivity.CHIP)
ONE_CORE_BESIDE_A_SPREAD = problem_of((VC, TC, VC, TC), (5.0, 0.0, 5.0, 20.0), (9.0, 9.0, 9.0, 10.0), Exclusivity.TYPE)


def at_once(*, is_spread):
    """The chain, its middle at 5, beside the last operator; all done at 10."""
    return ScheduleResult(10.0, 10.0, ScheduleStatus.OPTIMAL, (0.0, 5.0, 5.0, 0.0), is_spread)


@pytest.mark.parametrize(
    ("problem", "is_spread", "makespan"),
    [
        pytest.param(SPREAD_IN_THE_MIDDLE, (False, True, False, False), 15.0, id="spread: nothing runs at its instant"),
        pytest.param(ONE_CORE_BESIDE_A_SPREAD, (False, False, False, True), 15.0, id="one core: not beside a spread"),
    ],
)
def test_what_an_operator_of_no_length_may_not_run_beside(problem, is_spread, makespan):
    with pytest.raises(VerificationError, match="spread"):
        verify_schedule(problem, at_once(is_spread=is_spread))
    assert brute_force_makespan(problem) == makespan
    assert solve_schedule(problem).makespan_s == makespan


def test_an_operator_of_no_length_takes_no_core():
    verify_schedule(ONE_CORE_ON_A_BUSY_CORE, at_once(is_spread=(False,) * 4))
    assert brute_force_makespan(ONE_CORE_ON_A_BUSY_CORE) == 10.0
    assert solve_schedule(ONE_CORE_ON_A_BUSY_CORE).makespan_s == 10.0


@settings(max_examples=40)
@given(problems(max_operators=6, max_latency=2))
def test_solver_equals_brute_force_where_many_operators_have_no_length(problem):
    result = solve_schedule(problem)
    verify_schedule(problem, result)
    assert (result.status, result.makespan_s) == (ScheduleStatus.OPTIMAL, brute_force_makespan(problem))


@settings(max_examples=40)
@given(problems(max_operators=6, max_latency=2))
def test_every_stage_alone_equals_brute_force_where_many_operators_have_no_length(problem):
    """Level search without the depth-first one before it, then MIPs without either."""
    optimum = brute_force_makespan(problem)
    for options in (ScheduleOptions(tree_nodes=0, multi_starts=0), ScheduleOptions(tree_nodes=0, beam_width=0)):
        result = solve_schedule(problem, options=options)
        verify_schedule(problem, result)
        assert result.lower_bound_s <= optimum <= result.makespan_s
