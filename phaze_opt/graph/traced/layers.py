"""Layers of a flat graph: its finest chain of segments, and a run of its nodes with what crosses the borders.

The order of the nodes is fixed. A border may stand where one tensor crosses, besides tensors that live long: read at
several places far apart, such as an encoder's result that every decoder layer reads. All that crosses is sent on.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.vocabulary import HEAVY
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRole

_NUMBER = re.compile(r"(?<=\.)\d+(?::\d+)?(?=\.|$)")
"""A place in a list of modules; of a folded run of several modules a unit, with the place in it."""


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


def count_blocks(graph: FlatGraph) -> int:
    """Numbered modules with products, such as the blocks of a list; of a stage that is a list of blocks, its blocks."""
    products = [(path, node) for node in graph.nodes if node.op in HEAVY and (path := _numbered(node.module))]
    stages = {path[0] for path, _ in products} - _repeated(graph, products)
    inner = Counter(path[1] for path, _ in products if len(path) > 1 and path[0] in stages)
    lists = _in_a_row(graph) - {_list_of(item) for item, count in inner.items() if count == 1}
    blocks = {item for item in inner if _list_of(item) in lists}
    return len(blocks | {path[0] for path, _ in products} - {_numbered(item)[0] for item in blocks})


def _repeated(graph: FlatGraph, products: Sequence[tuple[tuple[str, ...], TracedNode]]) -> set[str]:
    """Numbered modules of lists in which two in a row have the same products: these are blocks, and no stages."""
    forms: dict[str, list[object]] = {}
    for path, node in products:
        forms.setdefault(path[0], []).append((node.op, graph.tensors[node.outputs[0]].shape))
    alike = {_list_of(one) for one, other in pairwise(forms) if forms[one] == forms[other] and _are_beside(one, other)}
    return {item for item in forms if _list_of(item) in alike}


def _in_a_row(graph: FlatGraph) -> set[str]:
    """Lists within a numbered module of which an item reads what another makes."""
    makers = {name: _numbered(node.module)[1:2] for node in graph.nodes for name in node.outputs}
    joints = {
        (*makers.get(name, ()), *_numbered(node.module)[1:2]) for node in graph.nodes for name in node.tensor_ids()
    }
    pairs = [joint for joint in joints if len(joint) == 2]  # noqa: PLR2004
    return {_list_of(one) for one, other in pairs if one != other and _are_beside(one, other)}


def _are_beside(first: str, second: str) -> bool:
    return _list_of(first) == _list_of(second)


def _list_of(item: str) -> str:
    """The list that a numbered module stands in."""
    return item.rpartition(".")[0]


def _numbered(path: str) -> tuple[str, ...]:
    """A module's path up to each of its numbers."""
    return tuple(path[: found.end()] for found in _NUMBER.finditer(path))
