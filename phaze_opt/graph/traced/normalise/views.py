"""Views are taken where they are read: what crosses a border between layers is the tensor behind them, once."""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph, renamed
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode

_VIEW = "aten.view"


def sink_views(graph: FlatGraph) -> FlatGraph:
    """The graph in which every reader of a view takes one of its own, straight from the tensor behind it."""
    tensors = dict(graph.tensors)
    behind: dict[str, str] = {}
    nodes: list[TracedNode] = []
    for node in graph.nodes:
        if node.op in SHAPES:
            source = next(node.tensor_ids())
            behind[node.outputs[0]] = behind.get(source, source)
            continue
        names: dict[str, str] = {}
        for name in dict.fromkeys(node.tensor_ids()):
            if name in behind:
                names[name] = f"{name}~{len(nodes)}"
                tensors[names[name]] = replace(tensors[name], id=names[name])
                nodes.append(TracedNode(_VIEW, (TensorRef(behind[name]),), (names[name],), (), node.module))
        nodes.append(renamed(node, names))
    ends = tuple(behind.get(name, name) for name in graph.ends)
    return replace(graph, nodes=tuple(nodes), tensors=tensors, ends=ends)
