"""How a product is split over a tensor-parallel group, and where the split axis is after operations moved it."""

from collections.abc import Sequence
from enum import StrEnum

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import Argument, TracedNode


class ShardedAs(StrEnum):
    """What of the weight a device has a share of."""

    COLUMNS = "columns"
    ROWS = "rows"
    VOCABULARY = "vocabulary"


Shape = tuple[Polynomial, ...]
_ONE = Polynomial.constant(1)


def axis_after(graph: FlatGraph, node: TracedNode, axis: int) -> int | None:
    """Axis of a view's result that an axis of what it views becomes, or is the outermost part of.

    None if the view mixes the axis with one outside of it. Elements of an axis lie in blocks of its outermost part, so
    a share of the axis is the same share of that part.
    """
    given = graph.tensors[next(node.tensor_ids())].shape
    result = graph.tensors[node.outputs[0]].shape
    if node.op in ("aten.transpose", "aten.t"):
        first, second = _pair(node, len(given))
        return {first: second, second: first}.get(axis, axis)
    if node.op == "aten.permute":
        order = [int(each) % len(given) for each in _whole(node.inputs[1])]
        return order.index(axis)
    return _reshaped(given, result, axis)


def _pair(node: TracedNode, rank: int) -> tuple[int, int]:
    """The two axes that are exchanged."""
    if node.op == "aten.t":
        return 0, 1
    first, second = (_whole(each)[0] % rank for each in node.inputs[1:3])
    return first, second


def _whole(value: Argument) -> list[int]:
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, int)]


def _reshaped(given: Shape, result: Shape, axis: int) -> int | None:
    """By the elements in front: the axis of the result before which as many lie as before the axis."""
    before = _product(given[:axis])
    for place in range(len(result)):
        if result[place] == _ONE and given[axis] != _ONE:
            continue
        if _product(result[:place]) == before:
            return place
    return None


def _product(sizes: Sequence[Polynomial]) -> Polynomial:
    total = _ONE
    for size in sizes:
        total = total.times(size)
    return total
