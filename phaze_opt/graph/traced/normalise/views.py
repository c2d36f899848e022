"""Views are taken where they are read: what crosses a border between layers is the tensor behind them, once.

What is looked up of a table alone crosses none: the layer that reads it first looks it up, and to others, on whatever
device, it is a parameter that they do not hold.
"""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph, renamed
from phaze_opt.graph.traced.normalise.dependence import LOOKUPS
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedRole

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


def lend_lookups(graph: FlatGraph) -> FlatGraph:
    """The graph in which all views but the first of what is looked up of a table alone are read as parameters."""
    tables = {
        node.outputs[0]: names[0]
        for node in graph.nodes
        if node.op in LOOKUPS and len(names := _parameters(graph, node)) == 1 and not graph.varying(node)
    }
    tensors, parameter_of = dict(graph.tensors), dict(graph.parameter_of)
    seen: set[str] = set()
    lent: list[TracedNode] = []
    for node in graph.nodes:
        source = next(node.tensor_ids(), "")
        if node.op != _VIEW or source not in tables:
            continue
        name = node.outputs[0]
        if source in seen:
            tensors[name] = replace(tensors[name], role=TracedRole.PARAMETER)
            parameter_of[name] = tables[source]
            lent.append(node)
        seen.add(source)
    gone = {id(node) for node in lent}
    nodes = tuple(node for node in graph.nodes if id(node) not in gone)
    all_lent = graph.lent | {node.outputs[0] for node in lent}
    return replace(graph, nodes=nodes, tensors=tensors, parameter_of=parameter_of, lent=all_lent)


def _parameters(graph: FlatGraph, node: TracedNode) -> list[str]:
    return [name for name in node.tensor_ids() if graph.role(name) is TracedRole.PARAMETER]
