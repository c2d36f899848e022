"""Layers of a flat graph: its finest chain of segments, and a run of its nodes with what crosses the borders.

The order of the nodes is fixed. A border may stand where one tensor crosses, besides tensors that live long: read at
several places far apart, such as an encoder's result that every decoder layer reads. All that crosses is sent on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRole


@dataclass(frozen=True, slots=True)
class TracedLayer:
    """A run of nodes.

    Attributes:
        nodes: in topological order.
        inputs: ids of tensors of earlier layers that it reads, in the order of their first use.
        outputs: ids of tensors that later layers read and that it gives, or reads itself and passes on.
        relayed: ids of tensors that pass through it unread.
        data: ids of the model's inputs that it reads.
        parameters: ids of the parameters that it reads and holds, in the order of their first use.
        passing: ids of inputs that it passes on, as a neighbour does, such as an encoder's result; the last layer that
            reads them has them too.
    """

    nodes: tuple[TracedNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    relayed: tuple[str, ...]
    data: tuple[str, ...]
    parameters: tuple[str, ...]
    passing: tuple[str, ...] = ()

    @property
    def handed_on(self) -> frozenset[str]:
        """Inputs that it reads and passes on."""
        return frozenset(self.inputs) & frozenset(self.outputs)


def layer_of(
    graph: FlatGraph, nodes: Sequence[TracedNode], needed_later: frozenset[str], made_before: set[str]
) -> TracedLayer:
    """The layer of a run of nodes.

    Args:
        graph: that they are of.
        nodes: the run.
        needed_later: ids of tensors that are read behind it.
        made_before: ids of tensors that were made before it.
    """
    read = list(dict.fromkeys(name for node in nodes for name in node.tensor_ids()))
    made = [name for node in nodes for name in node.outputs]
    inputs = [name for name in read if name in made_before]
    outputs = [name for name in (*made, *inputs) if name in needed_later]
    relayed = sorted((needed_later & made_before) - set(inputs))
    held = [name for name in read if graph.role(name) is TracedRole.PARAMETER and name not in graph.lent]
    parameters = [graph.parameter(name) for name in held]
    return TracedLayer(
        nodes=tuple(nodes),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        relayed=tuple(relayed),
        data=tuple(name for name in read if graph.role(name) is TracedRole.INPUT),
        parameters=tuple(dict.fromkeys(parameters)),
    )


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
