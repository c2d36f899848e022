"""How tensors are split over a tensor-parallel group, and where the split axis is after operations moved it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import Argument, TracedNode


class ShardedAs(StrEnum):
    """What of the weight a device has a share of.

    The group gathers the results of some columns, in place of summing what products of rows make of them. Of experts a
    device has whole ones, or channels of each.
    """

    COLUMNS = "columns"
    ROWS = "rows"
    VOCABULARY = "vocabulary"
    GATHERED = "columns, gathered"
    EXPERTS = "experts"


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """A tensor of which every device has a share along an axis.

    Attributes:
        axis: which.
        units: parts of it that stay whole: heads, or channels.
        sources: outputs of the products whose columns it comes from.
        root: the first tensor that is cut at the same places: the result of a product, or a part of one.
        is_normed: whether its channels were normalised together, for which the group exchanges statistics.
        is_attended: whether it comes from an attention, whose heads its units are.
        is_spread: whether a view repeats its units, as that of key-value heads for the queries that share them.
    """

    axis: int
    units: int
    sources: frozenset[str]
    root: str
    is_normed: bool = False
    is_attended: bool = False
    is_spread: bool = False


@dataclass(slots=True)
class SplitRoots:
    """Where tensors are cut, by the first tensor that is cut so.

    Attributes:
        units: of each, the fewest parts that stay whole of any tensor with its cuts.
        sizes: of each, the elements of its axis.
        parts: of a tensor that is parted along its axis, its parts, which are cut each on their own.
        headed: those that are heads of an attention.
        normed: those whose channels are normalised together.
    """

    units: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    headed: set[str] = field(default_factory=set)
    normed: set[str] = field(default_factory=set)

    def begin(self, name: str, size: int, units: int) -> None:
        """A tensor that is cut on its own."""
        self.sizes[name], self.units[name] = size, units

    def part(self, whole: str, parts: Mapping[str, tuple[int, int]]) -> None:
        """A tensor is parted into such of these sizes and units, which are cut on their own."""
        self.parts[whole] = tuple(parts)
        for name, (size, units) in parts.items():
            self.begin(name, size, units)

    def limit(self, root: str, units: int) -> None:
        """No more units than that."""
        self.units[root] = min(units, self.units[root])

    def share(self, root: str, degree: int) -> Fraction:
        """What of it one device has: whole units, rounded up."""
        parts = self.parts.get(root)
        if parts is None:
            return Fraction(-(-self.units[root] // degree), self.units[root])
        return sum((self.share(each, degree) * self.sizes[each] for each in parts), Fraction()) / sum(
            self.sizes[each] for each in parts
        )

    def leaves(self, root: str) -> tuple[str, ...]:
        """Its parts that are not parted again, or itself."""
        parts = self.parts.get(root)
        return (root,) if parts is None else tuple(leaf for each in parts for leaf in self.leaves(each))


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
