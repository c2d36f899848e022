"""Dual vectors: valid for every design, exact where they were made, equal to the formula."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import blocks_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan, random_problem

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule import dual_program
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.schedule.dual_program import best_dual
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.mip_models import build_crash_model
from phaze_opt.schedule.mode_search import FREE, node_bound
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.schedule.structure import compile_structure


def relaxed_crash_bound(block):
    import pyomo.environ as pyo

    model = build_crash_model(block)
    pyo.TransformationFactory("core.relax_integer_vars").apply_to(model)
    return HighsSolver(model).solve(time_limit_s=10.0).bound


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
@pytest.mark.parametrize("seed", range(12))
def test_best_dual_equals_the_relaxed_crash_bound(seed, exclusivity):
    """Strong duality, up to core rows that presolve drops (they never bind, but may carry weight)."""
    for block in blocks_of(random_problem(seed, num_operators=8, exclusivity=exclusivity)):
        if len(block) > 1:
            assert dual_bound(block, best_dual(block)) == pytest.approx(relaxed_crash_bound(block), rel=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_flow_bound_equals_the_best_path_dual(seed):
    """The numba flow solves the dual without core multipliers: same as the linear program with cores to spare."""
    problem = random_problem(seed, num_operators=8)
    rich = ScheduleProblem(problem.core_types, problem.one_core_s, problem.spread_s, problem.edges, Cores(99, 99))
    for block in blocks_of(rich):
        scratch = tuple(np.zeros(len(block)) for _ in range(4))
        flow = node_bound(block.arrays, np.full(len(block), FREE, np.int8), 3, np.zeros(2), scratch)
        expected = dual_bound(block, best_dual(block)) if len(block) > 1 else min(block.one_core[0], block.spread[0])
        assert flow == pytest.approx(expected, rel=1e-7)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(Exclusivity))
def test_a_vector_of_one_design_bounds_every_other(seed, other, exclusivity):
    """Vectors made for one set of latencies and cores are valid for another on the same graph (LB(c))."""
    maker = random_problem(seed, num_operators=5, exclusivity=exclusivity)
    numbers = random_problem(other, num_operators=5, exclusivity=exclusivity)
    target = replace(numbers, core_types=maker.core_types, edges=maker.edges)
    pool = DualPool(compile_structure(maker.core_types, maker.edges), exclusivity)
    for problem in (maker, numbers):
        pool.add(np.array(problem.one_core_s), np.array(problem.spread_s), problem.cores)
    bound, _ = pool.bounds_and_choices(*(np.array([row]) for row in (target.one_core_s, target.spread_s, target.cores)))
    assert bound[0] <= brute_force_makespan(target) * (1 + 1e-7)


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_what_a_solver_lets_pass_breaks_no_bound(monkeypatch, exclusivity):
    """Flow conservation missed by a solver's tolerance: with cores to spare no bound exceeds the longest path.

    Two chains of two side by side; each operator is given more flow than enters it.
    """
    cores = (CoreType.TC, CoreType.VC, CoreType.TC, CoreType.VC)
    problem = ScheduleProblem(cores, (1.0,) * 4, (1e6,) * 4, ((0, 1), (2, 3)), Cores(99, 99), exclusivity)
    (block,) = blocks_of(problem)
    solve = dual_program.solve_rows

    def solve_loosely(rows, *arguments):
        duals = solve(rows, *arguments)
        duals[rows.arc_rows(0)] *= 1.0 + 1e-7
        return duals

    assert dual_bound(block, best_dual(block)) == pytest.approx(2.0, rel=1e-12)
    monkeypatch.setattr(dual_program, "solve_rows", solve_loosely)
    assert dual_bound(block, best_dual(block)) <= 2.0 * (1.0 + 1e-12)


def test_pool_equals_the_formula_and_takes_the_floor():
    problem = random_problem(5, num_operators=9)
    structure = compile_structure(problem.core_types, problem.edges)
    pool = DualPool(structure, Exclusivity.CHIP)
    one_core, spread = np.array(problem.one_core_s), np.array(problem.spread_s)
    pool.add(one_core, spread, problem.cores)
    before = len(pool)
    pool.add(one_core, spread, problem.cores)
    assert len(pool) == before, "a vector that raises no bound is not kept"
    expected = sum(dual_bound(block, best_dual(block)) for block in blocks_of(problem))
    stacked = tuple(np.array([row, row]) for row in (one_core, spread, problem.cores))
    floors = np.array([0.0, 2 * expected])
    bounds, _ = pool.bounds_and_choices(*stacked, floor_s=floors)
    assert bounds == pytest.approx([expected, 2 * expected], rel=1e-7)


def test_independent_types_bound_four_under_type_and_eight_under_chip():
    """Evidence of semantics 4: L = 10, I = 4 on a tensor and a vector operator."""
    for exclusivity, expected in ((Exclusivity.TYPE, 4.0), (Exclusivity.CHIP, 8.0)):
        problem = ScheduleProblem((CoreType.TC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4), exclusivity)
        (block,) = blocks_of(problem)
        assert dual_bound(block, best_dual(block)) == pytest.approx(expected)
