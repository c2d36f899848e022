"""Proof trees: valid for every design, exact where they reach the optimum, and verifiable from outside.

`confirm_tree` is written from docs/certificate.md alone and shares no code with the search.
"""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from drawn_blocks import blocks_of, optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import random_problem

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.dual_pool import DualPool, PoolAddition
from phaze_opt.schedule.dual_program import best_dual
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.schedule.proof_search import grow_tree
from phaze_opt.schedule.proof_tree import Branching
from phaze_opt.schedule.structure import compile_structure

ENOUGH = 4000


def wide_blocks_of(problem):
    return [(k, block) for k, block in enumerate(blocks_of(problem)) if len(block) > 1]


def bound_of(tree, block):
    return tree.bounds(*(np.array([row]) for row in (block.one_core, block.spread, block.cores)))[0]


def closure(pairs, count):
    """All (i, j) with a path from i to j."""
    reach = {i: {b for a, b in pairs if a == i} for i in range(count)}
    for _ in range(count):
        reach = {i: later.union(*(reach[j] for j in later)) for i, later in reach.items()}
    return {(i, j) for i, later in reach.items() for j in later}


def confirm_vector(block, vector, known, exclusivity):
    """Flows over true arcs that balance, and prices that follow from them."""
    masks, count = block.masks, len(block)
    through = []
    for flow in vector.flows:
        into, out = list(flow.source), list(flow.sink)
        for (a, b), value in zip(vector.arcs, flow.flow, strict=True):
            assert value == 0.0 or (a, b) in known
            into[b] += value
            out[a] += value
        assert min(*flow.source, *flow.sink, *flow.flow, 0.0) >= 0.0
        assert into == pytest.approx(out, abs=1e-13)
        through.append(into)
    values = [sum(flow.source) for flow in vector.flows]
    mu = vector.core_multipliers
    assert min(mu) >= 0.0
    assert sum(mu) + sum(values) <= 1.0 + 1e-13
    through, values = through or [[0.0] * count] * 3, values or [0.0] * 3
    for i in range(count):
        if exclusivity is Exclusivity.CHIP:
            expected = (sum(mu) + values[0], through[0][i])
        else:
            types = [k for k in range(2) if masks[i] >> k & 1]
            expected = (
                through[0][i] + sum(mu[k] + values[1 + k] for k in types),
                through[0][i] + sum(through[1 + k][i] for k in types),
            )
        assert (vector.spread_price[i], vector.one_core_price[i]) == pytest.approx(expected, abs=1e-13)


def confirm_tree(block, tree):
    """Its bound on a design, after every rule of docs/certificate.md has been confirmed; nodes all used."""
    edges = [tuple(edge) for edge in block.block.edges]
    nodes = list(tree.nodes)
    masks, count = block.block.masks, len(block)
    cores = block.cores

    def visit(modes, orders):
        node = nodes.pop(0)
        known = closure([*edges, *orders], count)
        if node.branching is Branching.LEAF:
            if node.vector is None:
                assert any((i, i) in known for i in range(count))
                return float("inf")
            assert not any((i, i) in known for i in range(count))
            confirm_vector(block.block, node.vector, known, block.exclusivity)
            total = 0.0
            for i in range(count):
                shared = sum(node.vector.core_multipliers[k] / cores[k] for k in range(2) if masks[i] >> k & 1)
                term = {
                    True: block.spread[i] * node.vector.spread_price[i],
                    False: block.one_core[i] * (node.vector.one_core_price[i] + shared),
                }
                total += term[modes[i]] if i in modes else min(term.values())
            return total
        if node.branching is Branching.MODE:
            (i,) = node.operators
            assert i not in modes
            return min(visit({**modes, i: True}, orders), visit({**modes, i: False}, orders))
        if node.branching is Branching.ORDER:
            i, j = node.operators
            assert modes.get(i) or modes.get(j)
            assert block.exclusivity is Exclusivity.CHIP or masks[i] & masks[j]
            return min(visit(modes, [*orders, (i, j)]), visit(modes, [*orders, (j, i)]))
        assert len(node.operators) == node.num_cores + 1
        assert all(masks[i] & node.core_bit for i in node.operators)
        holds = cores[node.core_bit - 1] <= node.num_cores
        least = min([visit(modes, [*orders, pair]) for pair in permutations(node.operators, 2)])
        return least if holds else 0.0

    bound = visit({}, [])
    assert not nodes
    return bound


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
@pytest.mark.parametrize("seed", range(12))
def test_a_tree_reaches_the_optimum_and_is_confirmed(seed, exclusivity):
    """Five operators, one to three cores: the bound is the optimum of brute force."""
    for _, block in wide_blocks_of(random_problem(seed, num_operators=5, exclusivity=exclusivity)):
        best = optimum(block)
        tree = grow_tree(block, target_s=best, max_nodes=ENOUGH)
        assert confirm_tree(block, tree) == pytest.approx(best, rel=1e-8)
        assert bound_of(tree, block) == pytest.approx(best, rel=1e-8)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.integers(0, 10_000), st.sampled_from(Exclusivity), st.floats(0.5, 2.0))
def test_a_tree_of_one_design_bounds_every_other(seed, other, exclusivity, reach):
    """Trees made for one set of latencies and cores hold for another on the same graph, whatever their target."""
    maker = random_problem(seed, num_operators=5, exclusivity=exclusivity)
    numbers = random_problem(other, num_operators=5)
    target = replace(numbers, core_types=maker.core_types, edges=maker.edges, exclusivity=exclusivity)
    for (_, made), (_, block) in zip(wide_blocks_of(maker), wide_blocks_of(target), strict=True):
        tree = grow_tree(made, target_s=reach * dual_bound(made, best_dual(made)), max_nodes=60)
        best = optimum(block)
        assert bound_of(tree, block) <= best * (1 + 1e-9)
        assert confirm_tree(block, tree) == pytest.approx(bound_of(tree, block), rel=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.sampled_from(Exclusivity))
def test_pools_use_trees_beside_vectors(seed, exclusivity):
    """The pool's bound is the best of vectors and trees, and the choice names it."""
    problem = random_problem(seed, num_operators=6, exclusivity=exclusivity)
    pool = DualPool(compile_structure(problem.core_types, problem.edges), exclusivity)
    latencies = (np.array(problem.one_core_s), np.array(problem.spread_s))
    pool.add(*latencies, problem.cores)
    trees = {}
    for k, block in wide_blocks_of(problem):
        trees[k] = (block, grow_tree(block, target_s=1.5 * max(block.one_core), max_nodes=40))
        assert pool.add_tree(k, trees[k][1]) == PoolAddition(k, len(pool.entries(k)) - 1)
    # A second design with more cores than a tree with a branching on few cores holds for.
    tables = (np.array([latencies[0]] * 2), np.array([latencies[1]] * 2))
    cores = [problem.cores, Cores(9, 9)]
    bounds, choices = pool.bounds_and_choices(*tables, np.array(cores))
    for row in range(2):
        total = sum(
            min(latencies[0][block.operators[0]], latencies[1][block.operators[0]])
            for block in pool.structure.blocks
            if len(block) == 1
        )
        for column, k in enumerate(pool.wide_blocks):
            block = pool.block_problem(k, *latencies, cores[row])
            values = [dual_bound(block, entry) for entry in pool.entries(k)[:-1]] + [bound_of(trees[k][1], block)]
            assert values[choices[row, column]] == pytest.approx(max(values), rel=1e-12)
            total += max(values)
        assert bounds[row] == pytest.approx(total, rel=1e-12)


def test_independent_types_under_type_exclusivity():
    """A known case: L = 10, I = 4 on a tensor and a vector operator has optimum 4, which no tree exceeds."""
    for exclusivity, expected in ((Exclusivity.TYPE, 4.0), (Exclusivity.CHIP, 8.0)):
        problem = ScheduleProblem((CoreType.TC, CoreType.VC), (10.0, 10.0), (4.0, 4.0), (), Cores(4, 4), exclusivity)
        ((_, block),) = wide_blocks_of(problem)
        assert optimum(block) == pytest.approx(expected)
        for target in (expected, 2.0 * expected):
            assert bound_of(grow_tree(block, target_s=target, max_nodes=ENOUGH), block) == pytest.approx(expected)


def test_orders_prove_what_no_vector_can():
    """A vector operator before two tensor operators, all spread: 1 + 2 + 2, of which the relaxation sees less."""
    types = (CoreType.VC, CoreType.TC, CoreType.TC)
    latencies = (50.0, 50.0, 50.0, 1.0), (1.0, 2.0, 2.0, 1.0)
    wide = ScheduleProblem(
        (*types, CoreType.VC), *latencies, ((0, 1), (0, 2)), Cores(30, 30), exclusivity=Exclusivity.TYPE
    )
    (block,) = blocks_of(wide)
    best = optimum(block)
    assert best == pytest.approx(5.0)
    assert dual_bound(block, best_dual(block)) < 4.5
    tree = grow_tree(block, target_s=best, max_nodes=ENOUGH)
    assert confirm_tree(block, tree) == pytest.approx(best)
    assert any(node.branching is Branching.ORDER for node in tree.nodes)


def test_few_cores_are_proved_by_their_crowds():
    """Three equal tensor operators that spreading does not help, on two cores: 2 rounds, where work says 1.5."""
    problem = ScheduleProblem((CoreType.TC,) * 3, (10.0,) * 3, (11.0,) * 3, (), Cores(2, 1), Exclusivity.TYPE)
    ((_, block),) = wide_blocks_of(problem)
    tree = grow_tree(block, target_s=20.0, max_nodes=ENOUGH)
    assert confirm_tree(block, tree) == pytest.approx(20.0)
    assert tree.core_limits[0] == 2
    assert bound_of(tree, replace(block, cores=Cores(3, 1))) == 0.0


def test_an_operator_that_takes_no_time_still_excludes():
    """Spread, the second takes no time, yet cannot stand within the first: 6, where paths and work say 4."""
    types = (CoreType.TC, CoreType.VC, CoreType.TC, CoreType.VC)
    problem = ScheduleProblem(
        types, (10.0, 2.0, 5.0, 2.0), (4.0, 2.0, 0.0, 2.0), ((1, 2), (2, 3)), Cores(2, 2), Exclusivity.TYPE
    )
    ((_, block),) = wide_blocks_of(problem)
    assert optimum(block) == pytest.approx(6.0)
    tree = grow_tree(block, target_s=6.0, max_nodes=ENOUGH)
    assert confirm_tree(block, tree) == pytest.approx(6.0)


def test_limits_are_kept_and_a_tree_is_the_same_each_time():
    """No more nodes than allowed; the same bits again; a target that the relaxation reaches needs one leaf."""
    problem = random_problem(3, num_operators=9, exclusivity=Exclusivity.TYPE)
    for _, block in wide_blocks_of(problem):
        relaxed = dual_bound(block, best_dual(block))
        assert len(grow_tree(block, target_s=relaxed, max_nodes=50).nodes) == 1
        first, second = (grow_tree(block, target_s=2.0 * relaxed, max_nodes=50) for _ in range(2))
        assert len(first.nodes) <= 50
        assert [(node.branching, node.operators) for node in first.nodes] == [
            (node.branching, node.operators) for node in second.nodes
        ]
        assert bound_of(first, block) == bound_of(second, block)
        assert bound_of(first, block) >= relaxed * (1 - 1e-9)
