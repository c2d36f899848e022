"""The bound by feasible sets: sets enumerated one by one, and the brute-force optimum above it."""

import itertools

import numpy as np
import pytest
from drawn_blocks import blocks_of, problems
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan, random_problem

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.mip_models import build_crash_model
from phaze_opt.schedule.problem import Cores, ScheduleProblem
from phaze_opt.schedule.set_bound import SetBound, heaviest_set


def feasible_sets(block):
    """Every set of (operator, mode) that may run at once, straight from the rules."""
    count = len(block)
    for modes in itertools.product((None, 0, 1), repeat=count):
        running = [i for i in range(count) if modes[i] is not None]
        if any(block.block.after[i] >> j & 1 for i in running for j in running):
            continue
        if any(modes[i] == 1 and i not in block.spreadable for i in running):
            continue
        if any(modes[i] == 1 and i != j and block.excludes(i, j) for i in running for j in running):
            continue
        used = [sum(modes[i] == 0 and block.block.masks[i] & bit > 0 for i in running) for bit in (1, 2)]
        if used[0] <= block.cores.tc and used[1] <= block.cores.vc:
            yield [(i, modes[i]) for i in running]


def heaviest(block, values):
    length = (block.one_core, block.spread)
    return max(sum(values[i] / length[mode][i] for i, mode in items if values[i]) for items in feasible_sets(block))


@settings(max_examples=50, deadline=None, derandomize=True)
@given(problems(max_operators=5))
def test_bound_does_not_exceed_the_optimum(problem):
    bound = sum(SetBound(block).prices().bound() for block in blocks_of(problem))
    assert bound <= brute_force_makespan(problem) * (1 + 1e-12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(problems(), st.integers(0, 5))
def test_no_feasible_set_earns_more_than_one(problem, first):
    for block in blocks_of(problem):
        objective = (np.arange(len(block)) >= first).astype(float)
        for prices in (SetBound(block).prices(), SetBound(block).prices(objective, max_rounds=2)):
            assert (prices.value_s >= 0).all()
            assert heaviest(block, prices.value_s) <= 1 + 1e-9


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems(), st.randoms(use_true_random=False))
def test_search_finds_the_heaviest_set(problem, random):
    for block in blocks_of(problem):
        values = np.array([random.choice((0.0, 1.0, 3.0, random.random())) for _ in range(len(block))])
        values[np.array(block.shortest) == 0] = 0.0
        latencies = [np.where(np.array(block.shortest) > 0, each, 1.0) for each in (block.one_core, block.spread)]
        after = np.array([[bits >> j & 1 for j in range(len(block))] for bits in block.block.after], dtype=bool)
        conflicts = after | after.T | np.eye(len(block), dtype=bool)
        chosen, spread = (np.zeros(len(block), dtype=bool) for _ in range(2))
        arguments = (values, tuple(latencies), np.array(block.block.masks), conflicts, np.array(block.cores))
        weight = heaviest_set(*arguments, block.is_chip, 10_000, chosen, spread)
        assert weight == pytest.approx(heaviest(block, values), rel=1e-12, abs=1e-12)
        assert weight == pytest.approx((values / latencies[0])[chosen].sum() + (values / latencies[1])[spread].sum())
        # a search cut short may only say more
        assert heaviest_set(*arguments, block.is_chip, 1, chosen, spread) >= weight * (1 - 1e-12)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(problems())
def test_bound_is_no_weaker_than_the_relaxed_crash_bound(problem):
    """Paths and work rows are weights of feasible sets too."""
    import pyomo.environ as pyo

    for block in blocks_of(problem):
        if len(block) > 1 and block.is_chip:
            model = build_crash_model(block)
            pyo.TransformationFactory("core.relax_integer_vars").apply_to(model)
            crash = HighsSolver(model).solve(time_limit_s=10.0).bound
            assert SetBound(block).prices().bound() >= crash * (1 - 2e-4) - 1e-9


def test_sets_see_what_paths_and_work_alone_do_not():
    """Three operators on two tensor cores, then three on one vector core, all of length 1.

    The work of either type is at most 3 and the longest path 2, but no operator of one layer runs beside the other's.
    """
    edges = tuple((i, j) for i in range(3) for j in range(3, 6))
    problem = ScheduleProblem((CoreType.TC,) * 3 + (CoreType.VC,) * 3, (1.0,) * 6, (1.0,) * 6, edges, Cores(2, 1))
    bound = sum(SetBound(block).prices().bound() for block in blocks_of(problem))
    assert bound == pytest.approx(1.5 + 3.0, rel=1e-4)


def test_a_deadline_leaves_a_valid_bound():
    problem = random_problem(3, num_operators=20)
    for block in blocks_of(problem):
        assert SetBound(block, deadline=0.0).prices().bound() == 0.0
