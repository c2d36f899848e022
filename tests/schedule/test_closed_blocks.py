"""Blocks that were closed before are looked up: the same to the last bit, and never what a clock cut short."""

from dataclasses import replace

import pytest
from kits.schedulers import random_problem

from phaze_opt.objective.evaluation import Effort
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.schedule import block_solve
from phaze_opt.schedule.problem import ScheduleOptions, count_mips
from phaze_opt.schedule.solve import solve_schedule

NODES = ScheduleOptions(mip_nodes=5, multi_starts=0, tree_nodes=0, beam_width=0, time_limit_s=3600.0)


@pytest.fixture
def solvers(monkeypatch):
    """Every block that is solved from here on."""
    block_solve._close.cache_clear()
    begun = []

    class Noting(block_solve.BlockSolver):
        def __init__(self, problem, *args, **kwargs):
            begun.append(problem)
            super().__init__(problem, *args, **kwargs)

    monkeypatch.setattr(block_solve, "BlockSolver", Noting)
    yield begun
    block_solve._close.cache_clear()


@pytest.fixture(scope="module")
def problem():
    """One that MIPs are tried on."""
    drawn = (random_problem(seed, num_operators=14) for seed in range(40))
    return next(each for each in drawn if solve_schedule(each, options=NODES).num_ilp_solves)


def test_a_block_is_closed_once_and_its_schedule_is_the_same(problem, solvers):
    first, second = (solve_schedule(problem, options=NODES) for _ in range(2))
    assert second == first
    assert first.num_ilp_solves > 0
    assert len(solvers) == len(set(solvers)) > 0


def test_a_block_that_several_evaluations_meet_counts_once(problem):
    """In sums of efforts; each alone counts what it takes, whatever was solved before in the process."""
    other = replace(problem, one_core_s=tuple(each * (1 + 1e-15) for each in problem.one_core_s))
    one, again, two = (Effort.of(solve_schedule(each, options=NODES).mips, 5) for each in (problem, problem, other))
    assert one == again
    assert one.num_ilp_solves == count_mips(one.mips) > 0
    assert Effort.together([one, again]) == replace(one, num_placements=10)
    both = Effort.together([one, two, Effort(3, 1)])
    assert (both.num_ilp_solves, both.num_placements) == (one.num_ilp_solves + two.num_ilp_solves + 3, 11)
    assert from_plain(Effort, to_plain(Effort, both)) == both
    assert "mips" not in to_plain(Effort, Effort(3, 1))


def test_what_differs_in_a_digit_or_an_option_is_another_block(problem, solvers):
    solve_schedule(problem, options=NODES)
    num_first = len(solvers)
    latencies = tuple(each * (1 + 1e-15) for each in problem.one_core_s)
    assert latencies != problem.one_core_s
    solve_schedule(replace(problem, one_core_s=latencies), options=NODES)
    assert len(solvers) == 2 * num_first
    solve_schedule(problem, options=replace(NODES, mip_nodes=6))
    assert len(solvers) == 3 * num_first


def test_what_the_clock_ended_is_solved_again(problem, solvers, monkeypatch):
    whole = solve_schedule(problem, options=NODES)
    block_solve._close.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(block_solve.BlockSolver, "_remaining_s", lambda _: 0.0)
        cut = solve_schedule(problem, options=NODES)
    assert cut.gap > whole.gap
    assert solve_schedule(problem, options=NODES) == whole


def test_without_a_limit_of_nodes_every_block_is_solved(problem, solvers):
    free = replace(NODES, mip_nodes=0, mip_gap=0.5)
    for _ in range(2):
        solve_schedule(problem, options=free)
    assert len(solvers) == 2 * len(set(solvers)) > 0
