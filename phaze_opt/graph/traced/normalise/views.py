"""Views are taken where they are read: what crosses a border between layers is the tensor behind them, once."""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph, renamed
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode

_VIEW = "aten.view"


def sink_views(graph: FlatGraph) -> FlatGraph:
    """The graph in which every reader of a view takes one of its own, straight from the tensor behind it."""
    tensors = dict(graph.tensors)
    chains: dict[str, tuple[TracedNode, ...]] = {}
    views: dict[str, tuple[TracedNode, ...]] = {}
    nodes: list[TracedNode] = []
    for node in graph.nodes:
        if node.op in SHAPES:
            chains[node.outputs[0]] = (*chains.get(next(node.tensor_ids()), ()), node)
            continue
        names: dict[str, str] = {}
        for name in dict.fromkeys(node.tensor_ids()):
            if name in chains:
                names[name] = own = f"{name}~{len(nodes)}"
                tensors[own] = replace(tensors[name], id=own)
                views[own] = chains[name]
                source = next(chains[name][0].tensor_ids())
                nodes.append(TracedNode(_VIEW, (TensorRef(source),), (own,), (), node.module))
        nodes.append(renamed(node, names))
    ends = tuple(next(chains[name][0].tensor_ids()) if name in chains else name for name in graph.ends)
    return replace(graph, nodes=tuple(nodes), tensors=tensors, ends=ends, views=views)
