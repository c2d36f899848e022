"""Vectors and trees that the checker accepts bound every schedule: random ones against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan, random_problem

from phaze_opt.certify.certificate import BOUND_SLACK, FlowEntry, NodeKind, TreeEntry, TreeNode, VectorEntry
from phaze_opt.certify.check.prices import PricedTree, Prices, block_shape, closure, price_tree, price_vector
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.problem import Exclusivity

SEEDS = st.integers(0, 2**32 - 1)
RULES = st.sampled_from(list(Exclusivity))


def shape_of(problem):
    count = len(problem.core_types)
    precedes = closure(count, problem.edges)
    arcs = tuple((int(i), int(j)) for i, j in np.argwhere(precedes))
    return block_shape(problem.core_types, precedes, arcs, problem.exclusivity)


def random_vector(rng, shape, precedes=None):
    """Weights on random chains of true precedence and on cores, which sum to 1."""
    relation = shape.precedes if precedes is None else precedes
    arcs = tuple((int(i), int(j)) for i, j in np.argwhere(relation))
    num_flows = 1 if shape.exclusivity is Exclusivity.CHIP else 3
    weights = rng.dirichlet(np.full(2 + 3 * num_flows, 0.4))
    flows = []
    for number in range(num_flows):
        source, sink, flow = np.zeros(shape.num_operators), np.zeros(shape.num_operators), np.zeros(len(arcs))
        for weight in weights[2 + 3 * number : 5 + 3 * number]:
            path = random_path(rng, relation)
            source[path[0]] += weight
            sink[path[-1]] += weight
            for step in zip(path, path[1:], strict=False):
                flow[arcs.index(step)] += weight
        flows.append(FlowEntry(tuple(source), tuple(sink), tuple(flow)))
    return VectorEntry(core_multipliers=tuple(weights[:2]), flows=tuple(flows), arcs=arcs)


def random_path(rng, relation):
    """A chain of operators, each before the next."""
    path = [int(rng.integers(len(relation)))]
    while len(after := np.flatnonzero(relation[path[-1]])) and rng.random() < 0.8:
        path.append(int(rng.choice(after)))
    return path


def lower_of(priced, problem):
    """Operators of type NONE, which blocks do not hold, take no time."""
    on_core = np.array([kind is not CoreType.NONE for kind in problem.core_types])
    rows = [np.array([values]) * on_core for values in (problem.spread_s, problem.one_core_s)]
    return float(priced.lower_s(*rows, np.array([problem.cores], dtype=float))[0])


@given(seed=SEEDS, exclusivity=RULES)
@settings(max_examples=60, deadline=None)
def test_an_accepted_vector_bounds_every_schedule(seed, exclusivity):
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, num_operators=int(rng.integers(2, 6)), exclusivity=exclusivity)
    shape = shape_of(problem)
    optimum = brute_force_makespan(problem)
    for _ in range(20):
        priced = price_vector(random_vector(rng, shape), shape)
        assert isinstance(priced, Prices), priced
        assert lower_of(priced, problem) <= optimum * (1 + 1e-9)


def random_nodes(rng, shape, problem, state, depth):
    """A random branching that is allowed where it stands, or a leaf."""
    precedes, spread, single = state
    if precedes.diagonal().any():
        return [TreeNode(NodeKind.LEAF)]
    options = ["mode"] if not (spread | single).all() else []
    pairs = [
        (i, j)
        for i in range(shape.num_operators)
        for j in range(i + 1, shape.num_operators)
        if (spread[i] or spread[j]) and (shape.exclusivity is Exclusivity.CHIP or (shape.uses[i] & shape.uses[j]).any())
    ]
    options += ["order"] if pairs else []
    users = np.flatnonzero(shape.uses[:, 0])
    options += ["cores"] if len(users) > problem.cores.tc else []
    if depth == 0 or not options:
        return [TreeNode(NodeKind.LEAF, vector=random_vector(rng, shape, precedes))]
    chosen = str(rng.choice(options))
    if chosen == "mode":
        i = int(rng.choice(np.flatnonzero(~(spread | single))))
        node, mark = TreeNode(NodeKind.MODE, operators=(i,)), np.eye(shape.num_operators, dtype=bool)[i]
        states = [(precedes, spread | mark, single), (precedes, spread, single | mark)]
    elif chosen == "order":
        i, j = pairs[int(rng.integers(len(pairs)))]
        node = TreeNode(NodeKind.ORDER, operators=(i, j))
        states = [(with_order(precedes, a, b), spread, single) for a, b in ((i, j), (j, i))]
    else:
        picked = tuple(sorted(int(i) for i in rng.choice(users, problem.cores.tc + 1, replace=False)))
        node = TreeNode(NodeKind.CORES, operators=picked, core_type=CoreType.TC, num_cores=problem.cores.tc)
        states = [(with_order(precedes, a, b), spread, single) for a in picked for b in picked if a != b]
    return [node, *(below for child in states for below in random_nodes(rng, shape, problem, child, depth - 1))]


def with_order(precedes, before, after):
    edges = [*map(tuple, np.argwhere(precedes)), (before, after)]
    return closure(len(precedes), edges)


@given(seed=SEEDS, exclusivity=RULES)
@settings(max_examples=60, deadline=None)
def test_an_accepted_tree_bounds_every_schedule(seed, exclusivity):
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, num_operators=int(rng.integers(3, 6)), exclusivity=exclusivity)
    shape = shape_of(problem)
    optimum = brute_force_makespan(problem)
    none = np.zeros(shape.num_operators, dtype=bool)
    for _ in range(5):
        nodes = random_nodes(rng, shape, problem, (shape.precedes, none, none), depth=3)
        priced = price_tree(TreeEntry(tuple(nodes)), shape)
        assert isinstance(priced, PricedTree), priced
        assert lower_of(priced, problem) <= optimum * (1 + 1e-9)


def two_operators(exclusivity):
    shape = block_shape([CoreType.TC, CoreType.VC], np.zeros((2, 2), dtype=bool), (), exclusivity)
    return shape, VectorEntry(core_multipliers=(1.0, 0.0), flows=())


def test_independent_operators_of_two_types_by_hand():
    """L = 10, I = 4 each, one core of either: 8 under chip, where spread ones exclude each other, 4 under type."""
    latencies = (np.array([[4.0, 4.0]]), np.array([[10.0, 10.0]]), np.array([[1.0, 1.0]]))
    for exclusivity, expected in ((Exclusivity.CHIP, 4.0), (Exclusivity.TYPE, 4.0)):
        shape, vector = two_operators(exclusivity)
        priced = price_vector(vector, shape)
        assert priced.lower_s(*latencies) == pytest.approx(expected)
    shape, vector = two_operators(Exclusivity.CHIP)
    half = VectorEntry(core_multipliers=(0.5, 0.5), flows=())
    assert price_vector(half, shape).lower_s(*latencies) == pytest.approx(8.0)


def test_the_least_case_is_the_bound_of_a_tree():
    shape, vector = two_operators(Exclusivity.CHIP)
    nodes = (
        TreeNode(NodeKind.MODE, (0,)),
        TreeNode(NodeKind.LEAF, vector=vector),
        TreeNode(NodeKind.LEAF, vector=vector),
    )
    priced = price_tree(TreeEntry(nodes), shape)
    spread, single, cores = np.array([[4.0, 4.0]]), np.array([[3.0, 10.0]]), np.array([[1.0, 1.0]])
    of_cases = [float(case.lower_s(spread, single, cores)[0]) for case in priced.cases]
    assert of_cases == [4.0, 3.0]
    assert float(priced.lower_s(spread, single, cores)[0]) == 3.0


def test_small_imbalances_do_not_add_up_to_a_bound():
    """Many operators each of which passes on a little more than it receives: every one is within rounding."""
    count = 400
    precedes = np.triu(np.ones((count, count), dtype=bool), 1)
    arcs = tuple((i, i + 1) for i in range(count - 1))
    shape = block_shape([CoreType.TC] * count, precedes, arcs, Exclusivity.CHIP)
    more = 0.9 * BOUND_SLACK
    flow = tuple(1.0 + more * (i + 1) for i in range(count - 1))
    grown = FlowEntry((1.0, *[0.0] * (count - 1)), (*[0.0] * (count - 1), 1.0 + more * count), flow)
    assert "sum to 1.00000036, above 1" in price_vector(VectorEntry((0.0, 0.0), (grown,)), shape)
    exact = FlowEntry(grown.source, (*[0.0] * (count - 1), 1.0), (1.0,) * (count - 1))
    assert not isinstance(price_vector(VectorEntry((0.0, 0.0), (exact,)), shape), str)
