"""Layers of a flat graph: runs of its nodes, with what crosses their borders."""

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.graph.traced.flat_graph import FlatGraph
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
