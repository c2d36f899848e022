"""Layers of a flat graph: runs of its nodes, with what crosses their borders."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phaze_opt.graph.traced.flat_graph import FlatGraph
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
        is_apart: whether it stands beside others, so that nothing passes through it unread.
    """

    nodes: tuple[TracedNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    relayed: tuple[str, ...]
    data: tuple[str, ...]
    parameters: tuple[str, ...]
    passing: tuple[str, ...] = ()
    is_apart: bool = False

    @property
    def most_beside(self) -> int:
        """Most operations that stand beside one another, at one distance from what enters."""
        depth: dict[str, int] = {}
        beside = Counter[int]()
        for node in self.nodes:
            own = 1 + max((depth.get(name, 0) for name in node.tensor_ids()), default=0)
            depth.update(dict.fromkeys(node.outputs, own))
            beside[own] += 1
        return max(beside.values(), default=0)

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
