"""A gated activation: the product of an activation and another tensor, where nothing else reads the activation."""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.regions import ACTIVATION, GATE
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode

_CURVED = (words.CURVES - words.POWERS) | {ACTIVATION}


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
