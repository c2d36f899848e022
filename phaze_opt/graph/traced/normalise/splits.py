"""Parts that cover a tensor once are one split of it: nothing is copied, and their gradients lie side by side."""

from collections.abc import Sequence
from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedNode, TracedRole

SPLIT, PART = "phaze.split", "phaze.part"
_MANY = {"aten.split", "aten.chunk", "aten.unbind", "aten.tensor_split"}
_SLICES = {"aten.slice", "aten.narrow"}
_PARTS = _SLICES | {"aten.select"}


def join_splits(graph: FlatGraph) -> FlatGraph:
    """The graph in which every part is of a split, or is a part alone."""
    consumers = graph.consumers()
    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op in _MANY:
            made[id(node)] = replace(node, op=SPLIT, inputs=node.inputs[:1], attrs=())
        elif node.op in _PARTS and id(node) not in made and id(node) not in gone:
            source = next(node.tensor_ids())
            parts = [user for user in consumers[source] if user.op in _SLICES and next(user.tensor_ids()) == source]
            if graph.role(source) is TracedRole.ACTIVATION and node in parts and _cover(graph, source, parts):
                outputs = tuple(part.outputs[0] for part in parts)
                made[id(node)] = TracedNode(SPLIT, (TensorRef(source),), outputs, (), node.module)
                gone.update(id(part) for part in parts[1:])
            else:
                made[id(node)] = replace(node, op=PART, inputs=node.inputs[:1], attrs=())
    return replace(graph, nodes=tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone))


def _cover(graph: FlatGraph, source: str, parts: Sequence[TracedNode]) -> bool:
    """Whether slices along one axis, each from where another ends, make up the whole."""
    if len(parts) < 2:
        return False
    whole = graph.tensors[source].shape
    axes = {_axis(part, len(whole)) for part in parts}
    if len(axes) != 1 or (axis := axes.pop()) is None:
        return False
    ranges = sorted(filter(None, (_range(part, whole[axis], graph, axis) for part in parts)))
    starts = [start for start, _ in ranges]
    stops = [stop for _, stop in ranges]
    size = _number(whole[axis])
    return len(ranges) == len(parts) and starts[0] == 0 and starts[1:] == stops[:-1] and stops[-1] == size


def _axis(part: TracedNode, rank: int) -> int | None:
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
