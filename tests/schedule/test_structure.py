"""Contraction, closure, width and blocks, against networkx and brute force."""

from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.errors import InputError
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.precedence import descendants, members, ordinal_blocks, reduction, topological_order, width
from phaze_opt.schedule.structure import compile_structure


@st.composite
def orders(draw):
    count = draw(st.integers(1, 8))
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    names = draw(st.permutations(range(count)))
    return count, [(names[i], names[j]) for i, j in edges]


def digraph(count, edges):
    graph = nx.DiGraph(edges)
    graph.add_nodes_from(range(count))
    return graph


@settings(max_examples=150, deadline=None, derandomize=True)
@given(orders())
def test_closure_and_reduction_match_networkx(order):
    count, edges = order
    graph = digraph(count, edges)
    after = descendants(count, edges)
    assert [set(members(bits)) for bits in after] == [nx.descendants(graph, i) for i in range(count)]
    assert set(reduction(after)) == set(nx.transitive_reduction(graph).edges)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(orders(), st.data())
def test_width_is_the_largest_antichain(order, data):
    count, edges = order
    after = descendants(count, edges)
    subset = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    comparable = {(i, j) for i in range(count) for j in members(after[i])}
    largest = max(
        size
        for size in range(len(subset) + 1)
        for group in combinations(subset, size)
        if not any((i, j) in comparable or (j, i) in comparable for i, j in combinations(group, 2))
    )
    assert width(after, subset) == largest


@settings(max_examples=150, deadline=None, derandomize=True)
@given(orders())
def test_blocks_are_the_incomparability_components_in_order(order):
    count, edges = order
    after = descendants(count, edges)
    blocks = ordinal_blocks(topological_order(count, edges), after)
    incomparable = nx.Graph()
    incomparable.add_nodes_from(range(count))
    incomparable.add_edges_from(
        (i, j) for i, j in combinations(range(count), 2) if not after[i] >> j & 1 and not after[j] >> i & 1
    )
    assert sorted(map(sorted, blocks)) == sorted(map(sorted, nx.connected_components(incomparable)))
    for first, second in combinations(blocks, 2):
        assert all(after[i] >> j & 1 for i in first for j in second)


def test_contraction_keeps_precedence_through_views_and_collectives():
    types = (CoreType.TC, CoreType.NONE, CoreType.NETWORK, CoreType.VC)
    structure = compile_structure(types, ((0, 1), (1, 2), (2, 3)))
    assert [block.operators for block in structure.blocks] == [(0,), (3,)]


def test_cycle_is_named():
    with pytest.raises(InputError, match="cycle") as caught:
        compile_structure((CoreType.TC,) * 4, ((0, 1), (1, 2), (2, 1), (2, 3)))
    assert "1 -> 2 -> 1" in str(caught.value) or "2 -> 1 -> 2" in str(caught.value)
