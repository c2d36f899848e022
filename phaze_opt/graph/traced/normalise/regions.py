"""Regions of elementwise work with one tensor in and one out, found by dominators and named by what they contain.

Frameworks keep a layer norm whole, models write an RMS norm as eight operations and a GELU as eight others. What they
share is their form: everything between one tensor and one other is elementwise, moves elements or reduces rows. A
region becomes one operation: a norm if it divides by the root of a reduction, a rotation of positions if it joins parts
multiplied by constant tensors, a gate if it multiplies parts of one tensor, an activation if it has a curve, a product
if it multiplies what varies by what varies; what is left is linear, and its backward needs nothing.

A norm then takes in the weight and the bias that models apply to its result, and a gated activation is the product of
an activation and another tensor, where nothing else reads the activation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import TensorRef, TracedDtype, TracedNode, TracedRole

NORM, ROTARY, GATE = "phaze.norm", "phaze.rotary", "phaze.gate"
ACTIVATION, RECTIFIER, SCALE = "phaze.activation", "phaze.rectifier", "phaze.scale"
NORM_ACTIVATION, CAP, PRODUCT = "phaze.norm_activation", "phaze.cap", "phaze.product"
_OF_CAPS = {"aten.tanh", "aten.mul", "aten.div"}
WORK = "work"
"""Attribute: elements that the work of a region is done on, where they are not those of its result."""


def collapse_regions(graph: FlatGraph) -> FlatGraph:
    """The graph with every region of two nodes or more as one node, from the last to the first."""
    search = _Search(graph)
    taken: set[int] = set()
    made: dict[int, TracedNode] = {}
    for node in reversed(graph.nodes):
        if id(node) in taken or len(node.outputs) != 1 or not words.is_computing(node):
            continue
        region = search.largest(node, taken)
        if region is None:
            continue
        entry, members = region
        whole = _as_one(graph, entry, node, members)
        if whole is not None:
            taken.update(id(member) for member in members)
            made[id(node)] = whole
    nodes = tuple(made.get(id(node), node) for node in graph.nodes if id(node) in made or id(node) not in taken)
    return replace(graph, nodes=nodes)


class _Search:
    """Dominators of the tensors of a graph and what reads them."""

    def __init__(self, graph: FlatGraph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._consumers = graph.consumers()
        self._above: dict[str, str | None] = {}
        self._depth: dict[str, int] = {}
        self._position = {id(node): index for index, node in enumerate(graph.nodes)}
        for node in graph.nodes:
            above = self._dominator(node)
            for name in node.outputs:
                self._above[name] = above
                self._depth[name] = 0 if above is None else self._depth.get(above, 0) + 1

    def _dominator(self, node: TracedNode) -> str | None:
        """The tensor that all paths to the node's results go through, within elementwise work."""
        if not words.is_part_of_region(node) or self._reads_others(node):
            return None
        found: str | None = None
        for index, name in enumerate(dict.fromkeys(self._graph.varying(node))):
            found = name if index == 0 else self._meet(found, name)
            if found is None:
                return None
        return found

    def _reads_others(self, node: TracedNode) -> bool:
        """Whether a node reads a parameter or input of the model."""
        others = (TracedRole.PARAMETER, TracedRole.INPUT)
        return any(self._graph.role(name) in others for name in node.tensor_ids())

    def _meet(self, left: str | None, right: str | None) -> str | None:
        while left != right:
            if left is None or right is None:
                return None
            if self._depth.get(left, 0) >= self._depth.get(right, 0):
                left = self._above.get(left)
            else:
                right = self._above.get(right)
        return left

    def largest(self, end: TracedNode, taken: set[int]) -> tuple[str, list[TracedNode]] | None:
        """Entry and nodes of the largest region that ends with a node."""
        best = ""
        members: dict[int, TracedNode] = {}
        entry, last = self._above[end.outputs[0]], end
        while entry is not None:
            more = self._between(entry, last, taken)
            members |= more
            inside = (node for node in more.values() if node is not end)
            if any(id(node) in taken or self._is_read_outside(node, members) for node in inside):
                members = {key: node for key, node in members.items() if key not in more}
                break
            best = entry
            above = self._producers.get(entry)
            if above is None or not words.is_computing(above) or id(above) in taken:
                break
            entry, last = self._above.get(entry), above
        return (best, sorted(members.values(), key=lambda node: self._position[id(node)])) if best else None

    def _between(self, entry: str, end: TracedNode, taken: set[int]) -> dict[int, TracedNode]:
        """Nodes from an entry to an end, the end with them; behind one that is taken none is looked for."""
        members = {id(end): end}
        waiting = [end]
        while waiting:
            for name in self._graph.varying(waiting.pop()):
                node = self._producers.get(name)
                if name == entry or node is None or id(node) in members:
                    continue
                members[id(node)] = node
                if id(node) not in taken:
                    waiting.append(node)
        return members

    def _is_read_outside(self, node: TracedNode, members: Mapping[int, TracedNode]) -> bool:
        """Whether anything but members reads what a node gives."""
        return any(
            name in self._graph.ends or any(id(user) not in members for user in self._consumers.get(name, ()))
            for name in node.outputs
        )


def _as_one(graph: FlatGraph, entry: str, end: TracedNode, members: Sequence[TracedNode]) -> TracedNode | None:
    """The region as one node; None if it is a single node, or moves elements only."""
    if len(members) == 1 or not any(node.op in words.ELEMENTWISE for node in members):
        return None
    op = _kind(graph, members)
    attrs = ((WORK, _rotated(graph, members)),) if op == ROTARY else ()
    return TracedNode(op, (TensorRef(entry),), end.outputs, attrs, end.module)


def _kind(graph: FlatGraph, members: Sequence[TracedNode]) -> str:
    """What a region is, by what it contains."""
    ops = {node.op for node in members}
    is_norm = any(words.is_row_reduction(node) for node in members) and bool(
        ops & words.ROOTS or any(_is_root(node) for node in members)
    )
    curves = {node.op for node in members if node.op in words.CURVES and not _is_polynomial(node)}
    if is_norm:
        return NORM_ACTIVATION if curves - words.ROOTS - words.POWERS else NORM
    if _rotating(graph, members) and ops & (words.JOINS | words.COMPLEX):
        return ROTARY
    if ops & words.PARTS and any(len(set(graph.varying(node))) > 1 and node.op == "aten.mul" for node in members):
        return GATE
    if curves:
        return CAP if curves == {"aten.tanh"} and ops <= _OF_CAPS else ACTIVATION
    if ops & (words.RECTIFIERS | {"aten.abs", "aten.maximum", "aten.minimum"}):
        return RECTIFIER
    return PRODUCT if any(_multiplies(graph, node) for node in members) else SCALE


def _multiplies(graph: FlatGraph, node: TracedNode) -> bool:
    """Whether the derivative of a node depends on what it reads."""
    if node.op in ("aten.mul", "aten.div", "aten.addcmul", "aten.lerp"):
        return len(list(graph.varying(node))) > 1
    return node.op in words.CURVED_REDUCTIONS or node.op == "aten.square" or _is_polynomial(node)


def _is_root(node: TracedNode) -> bool:
    """A power of -1/2 or 1/2."""
    return node.op == "aten.pow" and node.inputs[1:2] in ((-0.5,), (0.5,))


def _is_polynomial(node: TracedNode) -> bool:
    """A power of a small whole number, which is a product."""
    return node.op == "aten.pow" and len(node.inputs) > 1 and node.inputs[1] in (2, 3, 4)


def _rotating(graph: FlatGraph, members: Sequence[TracedNode]) -> list[TracedNode]:
    """Products with constant tensors that are more than numbers."""
    return [
        node
        for node in members
        if node.op == "aten.mul"
        and any(graph.role(name) is TracedRole.CONSTANT and graph.tensors[name].shape for name in node.tensor_ids())
    ]


def _rotated(graph: FlatGraph, members: Sequence[TracedNode]) -> Polynomial:
    """Elements that are rotated: a rotation multiplies each twice, whether its halves are products apart or not."""
    total = Polynomial.of({})
    for node in _rotating(graph, members):
        total = total.plus(_elements(graph, node.outputs[0]))
    return total.times(Polynomial.of({(): Fraction(1, 2)}))


def _elements(graph: FlatGraph, name: str) -> Polynomial:
    tensor = graph.tensors[name]
    # A product of complex numbers is four of real ones.
    total = Polynomial.constant(4 if tensor.dtype is TracedDtype.COMPLEX64 else 1)
    for size in tensor.shape:
        total = total.times(size)
    return total


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
