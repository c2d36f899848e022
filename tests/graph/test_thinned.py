"""Edges of a graph of some of its operators, against paths that are enumerated."""

import networkx as nx
import numpy as np
import pytest

from phaze_opt.graph.operator import edges_among


@pytest.mark.parametrize("seed", range(40))
def test_an_edge_is_a_path_through_what_is_hidden(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 10))
    edges = [(a, b) for a in range(count) for b in range(a + 1, count) if rng.random() < 0.35]
    shown = {index for index in range(count) if rng.random() < 0.5}
    found = edges_among(shown, edges, count=count)
    expected = set()
    for source in shown:
        for target in shown:
            hidden = nx.DiGraph(edges).subgraph({*range(count)} - shown | {source, target})
            if source < target and source in hidden and target in hidden and nx.has_path(hidden, source, target):
                expected.add((source, target))
    assert sorted(found) == sorted(expected)
    assert len(set(found)) == len(found)


def test_a_graph_shown_whole_is_itself() -> None:
    edges = ((0, 1), (0, 2), (1, 3), (2, 3))
    assert set(edges_among(range(4), edges, count=4)) == set(edges)
