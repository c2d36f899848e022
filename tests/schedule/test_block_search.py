"""Searches of blocks: they prove the optimum of brute force and no more, and bound every other design."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import blocks_of, optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import random_problem

from phaze_opt.schedule.beam_search import SearchedBlock, search_block
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.schedule.structure import compile_structure

HAIR = 1e-9


def wide_blocks_of(problem):
    return [(k, block) for k, block in enumerate(blocks_of(problem)) if len(block) > 1]


def bound_of(searched, block):
    return searched.bounds(*(np.array([row]) for row in (block.one_core, block.spread, block.cores)))[0]


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
@pytest.mark.parametrize("seed", range(12))
def test_a_search_proves_the_optimum_and_no_more(seed, exclusivity):
    for _, block in wide_blocks_of(random_problem(seed, num_operators=6, exclusivity=exclusivity)):
        best = optimum(block)
        searched = search_block(block, target_s=best * (1.0 - HAIR))
        assert searched is not None
        assert bound_of(searched, block) == pytest.approx(best, rel=2 * HAIR)
        assert search_block(block, target_s=best * (1.0 + HAIR)) is None


def test_operators_without_length_are_not_searched():
    (_, block), *_ = wide_blocks_of(random_problem(0, num_operators=6))
    still = replace(block, one_core=(0.0, *block.one_core[1:]))
    assert search_block(still, target_s=1e-6) is None


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(Exclusivity), st.floats(0.1, 0.999))
def test_a_search_of_one_design_bounds_every_other(seed, other, exclusivity, reach):
    """Made for one set of latencies and cores it holds for another on the same graph, but for more cores."""
    maker = random_problem(seed, num_operators=5, exclusivity=exclusivity)
    numbers = random_problem(other, num_operators=5)
    target = replace(numbers, core_types=maker.core_types, edges=maker.edges, exclusivity=exclusivity)
    for (_, made), (_, block) in zip(wide_blocks_of(maker), wide_blocks_of(target), strict=True):
        searched = search_block(made, target_s=reach * optimum(made))
        assert searched is not None
        bound = bound_of(searched, block)
        assert bound <= optimum(block) * (1.0 + HAIR)
        assert (bound > 0.0) == (block.cores.tc <= made.cores.tc and block.cores.vc <= made.cores.vc)
        slower = replace(made, one_core=tuple(2.0 * each for each in made.one_core), spread=(1e3,) * len(made))
        assert bound_of(searched, slower) == pytest.approx(2.0 * searched.makespan, rel=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(Exclusivity))
def test_pools_use_searches_beside_vectors(seed, exclusivity):
    """The pool's bound of a block is the best of its entries by their own formulas, and the choice names it."""
    problem = random_problem(seed, num_operators=6, exclusivity=exclusivity)
    pool = DualPool(compile_structure(problem.core_types, problem.edges), exclusivity)
    latencies = np.array(problem.one_core_s), np.array(problem.spread_s)
    for number in pool.wide_blocks:
        block = pool.block_problem(number, *latencies, problem.cores)
        searched = search_block(block, target_s=optimum(block) * (1.0 - HAIR))
        if searched is not None:
            pool.add_search(number, searched)
    pool.add(*latencies, problem.cores)
    stretches = np.linspace(0.7, 1.3, 5)[:, None]
    rows = [stretches * latencies[0], stretches[::-1] * latencies[1]]
    cores = np.array([problem.cores] * 4 + [(problem.cores.tc + 1, problem.cores.vc)])
    bounds, choices = pool.bounds_and_choices(*rows, cores)
    expected = np.zeros(5)
    for block in pool.structure.blocks:
        if len(block) == 1:
            expected += np.minimum(*(row[:, block.operators[0]] for row in rows))
    for column, number in enumerate(pool.wide_blocks):
        for row in range(5):
            block = pool.block_problem(number, rows[0][row], rows[1][row], problem.cores)
            block = replace(block, cores=type(problem.cores)(*cores[row].tolist()))
            found = [_bound_by(entry, block) for entry in pool.entries(number)]
            assert choices[row, column] == int(np.argmax(np.array(found) > max(found) * (1.0 - 1e-12)))
            expected[row] += max(found)
    assert bounds == pytest.approx(expected, rel=1e-12)
    assert pool.bounds_by(choices, *rows, cores, floor_s=np.zeros(5)) == pytest.approx(bounds, rel=1e-12)


def _bound_by(entry, block):
    return bound_of(entry, block) if isinstance(entry, SearchedBlock) else dual_bound(block, entry)
