"""Views and splits: parts that cover a tensor once are one split of it, and views are taken where they are read.

Of a split nothing is copied, and the gradients of its parts lie side by side. Places of an axis that constants name
are a part as well, of which only the size is known. What crosses a border between layers is the tensor behind a view,
once. What is looked up of a table alone crosses none: the layer that reads it first looks it up, and to others, on
whatever device, it is a parameter that they do not hold.

What depends on no parameter or input is not computed in training: masks, positions, tables of sines.

Integers and truth values (shifted labels, masks of padding, places of chosen experts) are data: every device can make
them, and nothing of them is priced. A value that depends on a parameter and on constants alone is a view of it (its
transpose, the rows of the positions there are, 1 + it); of several parameters, but for products, a view of the largest
(a normalised weight). A product with a constant (of the sines of relative positions, say) is work, and what is looked
up for every pair of positions is a copy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from phaze_opt.graph.traced.flat_graph import FlatGraph, renamed
from phaze_opt.graph.traced.normalise.vocabulary import HEAVY, PARTS, SHAPES
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedDtype, TracedNode, TracedRole

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


SPLIT, PART = "phaze.split", "phaze.part"
_MANY = {"aten.split", "aten.chunk", "aten.unbind", "aten.tensor_split"}
_SLICES = {"aten.slice", "aten.narrow"}
_PARTS = _SLICES | {"aten.select"}
_PICK = "aten.index"


def join_splits(graph: FlatGraph) -> FlatGraph:
    """The graph in which every part is of a split, or is a part alone."""
    consumers = graph.consumers()
    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op in _MANY:
            made[id(node)] = replace(node, op=SPLIT, inputs=node.inputs[:1], attrs=())
        elif node.op in _PARTS | {_PICK} and id(node) not in made and id(node) not in gone:
            source = next(node.tensor_ids())
            parts = [user for user in consumers[source] if _is_part(graph, user, source)]
            if graph.role(source) is TracedRole.ACTIVATION and node in parts and _cover(graph, source, parts):
                outputs = tuple(part.outputs[0] for part in parts)
                made[id(node)] = TracedNode(SPLIT, (TensorRef(source),), outputs, (), node.module)
                gone.update(id(part) for part in parts[1:])
            elif node.op in _PARTS:
                made[id(node)] = replace(node, op=PART, inputs=node.inputs[:1], attrs=())
    return replace(graph, nodes=tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone))


def _is_part(graph: FlatGraph, user: TracedNode, source: str) -> bool:
    """Whether a node takes places of one axis of a tensor: a range of them, or those that a constant names."""
    if next(user.tensor_ids()) != source:
        return False
    return user.op in _SLICES or (user.op == _PICK and _picked_axis(graph, user) is not None)


def _picked_axis(graph: FlatGraph, node: TracedNode) -> int | None:
    """The one axis along which a constant names places."""
    places = node.inputs[1] if len(node.inputs) > 1 else None
    named = [axis for axis, each in enumerate(places) if each is not None] if isinstance(places, tuple) else []
    if len(named) != 1 or not isinstance(places, tuple):
        return None
    (axis,), place = named, places[named[0]]
    is_constant = isinstance(place, TensorRef) and graph.role(place.id) is TracedRole.CONSTANT
    return axis if is_constant else None


def _cover(graph: FlatGraph, source: str, parts: Sequence[TracedNode]) -> bool:
    """Whether parts along one axis, slices each from where another ends, make up the whole."""
    if len(parts) < 2:
        return False
    whole = graph.tensors[source].shape
    axes = {_axis(graph, part, len(whole)) for part in parts}
    if len(axes) != 1 or (axis := axes.pop()) is None:
        return False
    slices = [part for part in parts if part.op != _PICK]
    ranges = sorted(filter(None, (_range(part, whole[axis], graph, axis) for part in slices)))
    picked = [_number(graph.tensors[part.outputs[0]].shape[axis]) for part in parts if part.op == _PICK]
    size, num_picked = _number(whole[axis]), sum(each or 0 for each in picked)
    if len(ranges) < len(slices) or size is None or None in picked:
        return False
    if picked:
        return sum(stop - start for start, stop in ranges) + num_picked == size
    starts, stops = [start for start, _ in ranges], [stop for _, stop in ranges]
    return starts[0] == 0 and starts[1:] == stops[:-1] and stops[-1] == size


def _axis(graph: FlatGraph, part: TracedNode, rank: int) -> int | None:
    if part.op == _PICK:
        return _picked_axis(graph, part)
    axis = part.inputs[1] if len(part.inputs) > 1 else 0
    return axis % rank if isinstance(axis, int) else None


def _range(part: TracedNode, whole: Polynomial, graph: FlatGraph, axis: int) -> tuple[int, int] | None:
    """First and last of a slice along an axis of a size that is a number."""
    start = _number(part.inputs[2]) if len(part.inputs) > 2 else 0
    length = _number(graph.tensors[part.outputs[0]].shape[axis])
    step = part.inputs[4] if part.op == "aten.slice" and len(part.inputs) > 4 else 1
    size = _number(whole)
    if length is None or size is None or step != 1:
        return None
    start = start or 0
    start = start + size if start < 0 else start
    return start, start + length


def _number(value: Argument) -> int | None:
    if isinstance(value, Polynomial):
        return None if value.symbols else value.evaluate({})
    return value if isinstance(value, int) else None


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
