"""What a certificate needs of dual vectors: flows that balance, prices that follow from them, named entries."""

import pickle

import numpy as np
import pytest
from drawn_blocks import blocks_of
from kits.schedulers import random_problem

from phaze_opt.schedule.dual_pool import DualPool, PoolAddition
from phaze_opt.schedule.dual_program import DualProgram
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.proof_search import grow_tree
from phaze_opt.schedule.proof_tree import ONE_CORE, SPREAD
from phaze_opt.schedule.structure import compile_structure

EXACT = 1e-14


def expected_prices(block, vector, exclusivity):
    """u and w of docs/certificate.md, written out apart from the package; checks balance on the way."""
    count = len(block)
    through = []
    for flow in vector.flows:
        assert min(flow.source.min(), flow.sink.min(), *flow.flow, 0.0) >= 0.0
        into, out = flow.source.copy(), flow.sink.copy()
        for (before, after), value in zip(vector.arcs, flow.flow, strict=True):
            into[after] += value
            out[before] += value
        assert into == pytest.approx(out, abs=EXACT)
        through.append(into)
    mu = vector.core_multipliers
    values = [flow.source.sum() for flow in vector.flows]
    assert mu.sum() + sum(values) <= 1.0 + EXACT
    if exclusivity is Exclusivity.CHIP:
        return np.full(count, mu.sum() + sum(values)), sum(through, np.zeros(count))
    through = through or [np.zeros(count)] * 3
    values = values or [0.0] * 3
    spread, one_core = through[0].copy(), through[0].copy()
    for i in range(count):
        for k in range(2):
            if block.masks[i] >> k & 1:
                spread[i] += mu[k] + values[1 + k]
                one_core[i] += through[1 + k][i]
    return spread, one_core


def pool_of(problem, seeds):
    """A pool grown on several designs of one topology, and those designs."""
    pool = DualPool(compile_structure(problem.core_types, problem.edges), problem.exclusivity)
    designs, added = [], []
    for seed in seeds:
        numbers = random_problem(seed, num_operators=len(problem.core_types))
        cores = Cores(1 + 3 * (seed % 4), 1 + 5 * (seed % 3))
        designs.append((np.array(numbers.one_core_s), np.array(numbers.spread_s), cores))
        added.extend(pool.add(*designs[-1]))
    return pool, added, [np.array(column) for column in zip(*designs, strict=True)]


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
@pytest.mark.parametrize("seed", range(10))
def test_vectors_can_be_verified_from_their_flows(seed, exclusivity):
    problem = random_problem(seed, num_operators=10, exclusivity=exclusivity)
    pool, _, _ = pool_of(problem, range(6))
    for k in pool.wide_blocks:
        block = pool.structure.blocks[k]
        for vector in pool.entries(k):
            spread, one_core = expected_prices(block, vector, exclusivity)
            assert vector.spread_price == pytest.approx(spread, abs=EXACT)
            assert vector.one_core_price == pytest.approx(one_core, abs=EXACT)


def test_additions_are_named():
    problem = random_problem(4, num_operators=10, exclusivity=Exclusivity.TYPE)
    pool, added, _ = pool_of(problem, range(8))
    expected = [PoolAddition(k, entry) for k in pool.wide_blocks for entry in range(2, len(pool.entries(k)))]
    assert sorted(added, key=lambda item: (item.block, item.entry)) == expected
    assert len(expected) > 3


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_choices_attain_the_bound_whatever_the_batch(exclusivity):
    """The chosen entries give the bound by the formula; no other gives more; bits do not depend on the batch."""
    problem = random_problem(6, num_operators=12, exclusivity=exclusivity)
    pool, _, designs = pool_of(problem, range(12))
    bounds, choices = pool.bounds_and_choices(*designs)
    assert choices.dtype == np.int32
    assert len(set(choices.ravel().tolist())) > 2
    for row in range(len(bounds)):
        part = slice(row, row + 1)
        alone = pool.bounds_and_choices(*(values[part] for values in designs))
        assert alone[0][0] == bounds[row]
        assert (alone[1][0] == choices[row]).all()
        total = sum(
            min(designs[0][row, block.operators[0]], designs[1][row, block.operators[0]])
            for block in pool.structure.blocks
            if len(block) == 1
        )
        for column, k in enumerate(pool.wide_blocks):
            block = pool.block_problem(k, *(values[row] for values in designs))
            values = [dual_bound(block, vector) for vector in pool.entries(k)]
            assert values[choices[row, column]] == pytest.approx(max(values), rel=1e-12)
            total += max(values)
        assert bounds[row] == pytest.approx(total, rel=1e-12)


def test_the_first_of_equal_entries_is_chosen():
    pool, _, designs = pool_of(random_problem(6, num_operators=12), range(4))
    bounds, choices = pool.bounds_and_choices(*designs)
    for k in pool.wide_blocks:
        for vector in pool.entries(k):
            pool.add_vector(k, vector)
    again = pool.bounds_and_choices(*designs)
    assert (again[0] == bounds).all()
    assert (again[1] == choices).all()


def test_pools_travel_between_processes():
    pool, _, designs = pool_of(random_problem(6, num_operators=12), range(4))
    block = pool.block_problem(pool.wide_blocks[0], designs[0][0], designs[1][0], Cores(1, 2))
    pool.add_tree(pool.wide_blocks[0], grow_tree(block, target_s=1e9, max_nodes=30))
    other = pickle.loads(pickle.dumps(pool))
    assert len(other) == len(pool)
    for ours, theirs in zip(pool.bounds_and_choices(*designs), other.bounds_and_choices(*designs), strict=True):
        assert (ours == theirs).all()


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
@pytest.mark.parametrize("seed", range(6))
def test_settled_modes_only_raise_the_program(seed, exclusivity):
    """With modes settled the vector's settled terms sum to at least the free optimum."""
    problem = random_problem(seed, num_operators=8, exclusivity=exclusivity)
    rng = np.random.default_rng(seed)
    for numbers in blocks_of(problem):
        block = numbers.block
        if len(block) < 2:
            continue
        program = DualProgram(block, exclusivity)
        modes = rng.choice([ONE_CORE, SPREAD], size=len(block))
        vector = program.solve(numbers, modes.tolist())
        cores = sum(vector.core_multipliers[k] / problem.cores[k] * (np.array(block.masks) >> k & 1) for k in range(2))
        spread = numbers.spread * vector.spread_price
        one_core = numbers.one_core * (vector.one_core_price + cores)
        terms = np.where(modes == SPREAD, spread, one_core)
        assert terms.sum() >= dual_bound(numbers, program.solve(numbers)) * (1 - 1e-9)
