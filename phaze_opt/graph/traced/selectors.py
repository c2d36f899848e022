"""What a step computes to choose by values alone: products whose results reach the loss as places and masks.

No gradient comes back to their weights, and a recording keeps neither: they cost nothing there, and what they choose
from is priced as all of it (keys of sparse attention).
"""

from math import prod

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layer_sharding import PRODUCTS
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRole


def selecting_weight(flat: FlatGraph, graph: FlatGraph) -> str:
    """Path of the largest weight of such products; empty without any.

    Args:
        flat: as it was traced.
        graph: what of it is priced.
    """
    priced = {graph.parameter(name) for node in graph.nodes for name in node.tensor_ids()}
    found = {name for node in _leading(flat) for name in _weights(node, flat)} - priced
    sizes = {name: prod(size.evaluate({}) for size in flat.tensors[name].shape) for name in sorted(found)}
    largest = max(sizes, key=lambda name: sizes[name], default="")
    return flat.tensors[largest].fqn if largest else ""


def _leading(flat: FlatGraph) -> list[TracedNode]:
    """Nodes that the ends depend on, in whatever way."""
    needed, found = set(flat.ends), []
    for node in reversed(flat.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.tensor_ids())
            found.append(node)
    return found


def _weights(node: TracedNode, flat: FlatGraph) -> set[str]:
    """Parameters of a product."""
    operation = ".".join(node.op.split(".")[:2])
    if operation not in PRODUCTS:
        return set()
    return {flat.parameter(name) for name in node.tensor_ids() if flat.role(name) is TracedRole.PARAMETER}
