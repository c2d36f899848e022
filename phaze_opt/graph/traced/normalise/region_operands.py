"""What collapsed regions take in besides: the weights of norms, and the other factor of gates.

A normalisation takes the weight and the bias that models apply to its result. A gated activation is the product of an
activation and another tensor, where nothing else reads the activation.
"""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.regions import ACTIVATION, GATE, NORM
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedRole

_CURVED = (words.CURVES - words.POWERS) | {ACTIVATION}
_APPLIED = ("aten.mul", "aten.add")


def absorb_norm_weights(graph: FlatGraph) -> FlatGraph:
    """The graph with ``norm(x) * w + b`` as one operation, where nothing else reads what lies between."""
    consumers = graph.consumers()
    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op != NORM:
            continue
        whole, last = node, node
        while (following := _weighted(graph, consumers, last)) is not None:
            weight = next(name for name in following.tensor_ids() if graph.role(name) is TracedRole.PARAMETER)
            whole = replace(whole, inputs=(*whole.inputs, TensorRef(weight)), outputs=following.outputs)
            gone.add(id(last))
            last = following
        made[id(last)] = whole
    nodes = tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone)
    return replace(graph, nodes=nodes)


def _weighted(graph: FlatGraph, consumers: dict[str, list[TracedNode]], node: TracedNode) -> TracedNode | None:
    """What alone reads a node's result and applies a parameter to it."""
    name = node.outputs[0]
    users = consumers.get(name, [])
    if len(users) != 1 or users[0].op not in _APPLIED or name in graph.ends:
        return None
    others = [other for other in users[0].tensor_ids() if other != name]
    return users[0] if len(others) == 1 and graph.role(others[0]) is TracedRole.PARAMETER else None


def join_gates(graph: FlatGraph) -> FlatGraph:
    """The graph with ``act(gate) * up`` as one operation of gate and up."""
    producers, consumers = graph.producers(), graph.consumers()
    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        parts = graph.varying(node)
        if node.op != "aten.mul" or len(parts) != 2 or parts[0] == parts[1]:
            continue
        for active, other in (parts, parts[::-1]):
            source = producers.get(active)
            if source is not None and source.op in _CURVED and len(consumers[active]) == 1:
                gate = next(name for name in source.tensor_ids())
                if graph.tensors[gate].shape == graph.tensors[other].shape:
                    inputs = (TensorRef(gate), TensorRef(other))
                    made[id(node)] = TracedNode(GATE, inputs, node.outputs, (), node.module)
                    gone.add(id(source))
                    break
    return replace(graph, nodes=tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone))
