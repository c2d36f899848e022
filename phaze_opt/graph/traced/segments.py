"""Cuts of a flat graph into the finest chain of segments: between them few tensors cross.

The order of the nodes is fixed. A border may stand where one tensor crosses, besides tensors that live long: read at
several places far apart, such as an encoder's result that every decoder layer reads. All that crosses is sent on.
"""

from collections.abc import Mapping, Sequence

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.after_loss import LOSSES
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRole

LONG_LIFE = 48
"""Nodes between first and last reader from which on a tensor with several readers lives long."""
MAX_LONG_LIVED = 4
"""Tensors that live long that may cross a border besides the one."""


def cut_segments(graph: FlatGraph) -> list[tuple[TracedNode, ...]]:
    """Runs of nodes in their order, as short as the rule allows."""
    lives = _lives(graph)
    long = {name for name, (_, readers) in lives.items() if _is_long_lived(readers)}
    borders = _borders(lives, long, len(graph.nodes))
    segments, start = [], 0
    for border in [*borders, len(graph.nodes)]:
        segments.append(graph.nodes[start:border])
        start = border
    return [segment for segment in segments if segment]


def _lives(graph: FlatGraph) -> dict[str, tuple[int, list[int]]]:
    """Of each tensor that varies where it is made and where it is read."""
    lives: dict[str, tuple[int, list[int]]] = {}
    for index, node in enumerate(graph.nodes):
        for name in dict.fromkeys(node.tensor_ids()):
            if name in lives:
                lives[name][1].append(index)
        for name in node.outputs:
            if graph.role(name) is TracedRole.ACTIVATION:
                lives[name] = (index, [])
    for name in set(graph.ends) - losses_of(graph):
        if name in lives:
            lives[name][1].append(len(graph.nodes))
    return lives


def losses_of(graph: FlatGraph) -> set[str]:
    """Ends of a graph that are losses: backward starts there, and nothing is given back."""
    return {name for node in graph.nodes if node.op in LOSSES for name in node.outputs} & set(graph.ends)


def _is_long_lived(readers: Sequence[int]) -> bool:
    return len(readers) > 2 and readers[-1] - readers[0] >= LONG_LIFE


def _borders(lives: Mapping[str, tuple[int, list[int]]], long: set[str], num_nodes: int) -> list[int]:
    """Positions before which a border stands."""
    changes = [[0, 0] for _ in range(num_nodes + 2)]
    for name, (made, readers) in lives.items():
        if readers:
            changes[made + 1][name in long] += 1
            changes[readers[-1] + 1][name in long] -= 1
    borders = []
    short_lived = long_lived = 0
    for position in range(num_nodes):
        short_lived += changes[position][0]
        long_lived += changes[position][1]
        if position and short_lived <= 1 and long_lived <= MAX_LONG_LIVED:
            borders.append(position)
    return borders
