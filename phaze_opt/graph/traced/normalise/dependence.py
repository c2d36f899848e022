"""What depends on no parameter or input is not computed in training: masks, positions, tables of sines.

Integers and truth values (shifted labels, masks of padding, places of chosen experts) are data: every device can make
them, and nothing of them is priced. A value that depends on a parameter and on constants alone is a view of it (its
transpose, the rows of the positions there are, 1 + it); of several parameters, but for products, a view of the largest
(a normalised weight). A product with a constant (of the sines of relative positions, say) is work, and what is looked
up for every pair of positions is a copy.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import prod

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.vocabulary import HEAVY, PARTS
from phaze_opt.graph.traced.traced_model import TracedDtype, TracedNode, TracedRole

LOOKUPS = {"aten.embedding", "aten.index", "aten.index_select"}
"""Operations that take rows of a table."""
_OF_SHAPE = {f"aten.{name}_like" for name in ("zeros", "ones", "empty", "full", "rand", "randn")} | {
    f"aten.new_{name}" for name in ("zeros", "ones", "empty", "full")
}
"""Operations that take nothing but its shape from a tensor."""


def fold_constants(graph: FlatGraph) -> FlatGraph:
    """The graph without what is constant, data or a view of a parameter."""
    tensors = dict(graph.tensors)
    parameter_of: dict[str, str] = {}
    roles = {name: tensor.role for name, tensor in tensors.items()}
    roles.update((name, TracedRole.CONSTANT) for name, role in roles.items() if role is TracedRole.BUFFER)
    kept: list[TracedNode] = []
    for node in graph.nodes:
        read = list(dict.fromkeys(node.tensor_ids()))
        role = _role(node, read, {name: roles[name] for name in read}, graph)
        if role is TracedRole.PARAMETER:
            named = [parameter_of.get(name, name) for name in read if roles[name] is TracedRole.PARAMETER]
            parameter_of |= dict.fromkeys(node.outputs, _largest(graph, named))
        if role is TracedRole.ACTIVATION:
            kept.append(node)
        for name in node.outputs:
            is_place = role is TracedRole.ACTIVATION and not _is_number(graph, name)
            roles[name] = TracedRole.INPUT if is_place else role
    tensors.update((name, replace(tensor, role=roles[name])) for name, tensor in tensors.items())
    return replace(graph, nodes=tuple(kept), tensors=tensors, parameter_of=parameter_of)


def _role(node: TracedNode, read: Iterable[str], roles: dict[str, TracedRole], graph: FlatGraph) -> TracedRole:
    """What the results of a node are."""
    found = set(roles.values())
    if found <= {TracedRole.CONSTANT} or node.op in _OF_SHAPE:
        return TracedRole.CONSTANT
    if found <= {TracedRole.CONSTANT, TracedRole.INPUT}:
        return TracedRole.ACTIVATION if _has_float_input(read, graph) else TracedRole.INPUT
    if not any(_is_number(graph, name) for name in node.outputs):
        return TracedRole.INPUT
    parameters = [name for name in read if roles[name] is TracedRole.PARAMETER]
    if node.op in LOOKUPS and any(_is_of_pairs(graph, name) for name in read if name not in parameters):
        return TracedRole.ACTIVATION
    is_view = node.op not in HEAVY
    is_one = len(node.outputs) == 1 or node.op in PARTS
    if is_view and is_one and found <= {TracedRole.CONSTANT, TracedRole.PARAMETER}:
        return TracedRole.PARAMETER
    return TracedRole.ACTIVATION


def _is_of_pairs(graph: FlatGraph, name: str) -> bool:
    """Whether places have two axes or more, at the default sizes."""
    return sum(size.evaluate(graph.values) > 1 for size in graph.tensors[name].shape) > 1


def _largest(graph: FlatGraph, names: list[str]) -> str:
    """Of parameters the one with most elements; the first of several."""
    return max(names, key=lambda name: prod(size.evaluate({}) for size in graph.tensors[name].shape))


def _is_number(graph: FlatGraph, name: str) -> bool:
    """Whether a tensor holds numbers that gradients can belong to, rather than places and truth values."""
    dtype = graph.tensors[name].dtype
    return dtype.is_float or dtype is TracedDtype.COMPLEX64


def _has_float_input(read: Iterable[str], graph: FlatGraph) -> bool:
    """Whether floating-point input of the model (an image) goes in, rather than ids and masks made of them."""
    inputs = [graph.tensors[name] for name in read if graph.tensors[name].role is TracedRole.INPUT]
    return any(tensor.dtype.is_float for tensor in inputs)


def plain_products(graph: FlatGraph) -> FlatGraph:
    """The graph in which rows times a matrix of parameters are one operation, however it was written."""

    def is_plain(node: TracedNode) -> bool:
        names = list(node.tensor_ids())
        if node.op != "aten.matmul" or len(names) != 2:  # noqa: PLR2004
            return False
        rows, matrix = names
        is_matrix = graph.role(matrix) is TracedRole.PARAMETER and len(graph.tensors[matrix].shape) == 2  # noqa: PLR2004
        return is_matrix and graph.role(rows) is TracedRole.ACTIVATION

    return replace(graph, nodes=tuple(replace(node, op="aten.mm") if is_plain(node) else node for node in graph.nodes))


def drop_unused(graph: FlatGraph) -> FlatGraph:
    """The graph without nodes that no end depends on."""
    needed = set(graph.ends)
    kept: list[TracedNode] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.tensor_ids())
    return replace(graph, nodes=tuple(reversed(kept)))


def selecting_weight(flat: FlatGraph, graph: FlatGraph) -> str:
    """Path of the largest weight of products that only choose: they reach the loss as places and masks; else empty.

    No gradient comes back to it: nothing of such a product is priced, and what it chooses from is, as all of it.

    Args:
        flat: as it was traced.
        graph: what of it is priced.
    """
    priced = {graph.parameter(name) for node in graph.nodes for name in node.tensor_ids()}
    needed, found = set(flat.ends), set[str]()
    for node in reversed(flat.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.tensor_ids())
            weights = (name for name in node.tensor_ids() if flat.role(name) is TracedRole.PARAMETER)
            found.update(flat.parameter(name) for name in weights if node.op.rpartition(".")[0] in HEAVY)
    choosing = sorted(found - priced)
    return flat.tensors[_largest(flat, choosing)].fqn if choosing else ""
