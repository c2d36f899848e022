"""Sizes of a traced layer's tensors and parameters on one device of a tensor-parallel group.

Between the regions that are split every device has all tokens, or with sequence parallelism its share of them, rounded
up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.operator_rule import Shape
from phaze_opt.graph.traced.sharding_by_dataflow import LayerSharding, SplitAxis, has_tokens
from phaze_opt.graph.traced.traced_model import SEQUENCE, TracedNode, TracedRole

MAX_ELEMENTS = 1 << 50
"""Elements of a tensor beyond which a file is no model that is trained."""


@dataclass(frozen=True, slots=True)
class DeviceSizes:
    """Sizes on one device.

    Attributes:
        graph: whose tensors they are.
        values: of the symbols.
        degree: devices of the group.
        sharding: of the layer.
        has_token_shares: whether tokens between the split regions are shared out.
    """

    graph: FlatGraph
    values: Mapping[str, int]
    degree: int
    sharding: LayerSharding
    has_token_shares: bool

    def whole(self, name: str) -> Shape:
        """A tensor's shape on all devices together.

        Raises:
            InputError: it is not whole at these values, or larger than any that is trained.
        """
        shape = tuple(size.evaluate(self.values) for size in self.graph.tensors[name].shape)
        if prod(shape) > MAX_ELEMENTS:
            message = f"tensor '{name[:80]}' of shape {list(shape)} has more than {MAX_ELEMENTS} elements"
            raise InputError(message)
        return shape

    def own(self, name: str) -> Shape:
        """A tensor's shape on one device."""
        shape = self.whole(name)
        split = self.sharding.splits.get(name)
        if self.degree == 1 or (split is None and not self.is_shared(name)):
            return shape
        if split is not None:
            return _with(shape, split.axis, self.share(shape[split.axis], split))
        axis = self._token_axis(name)
        return _with(shape, axis, -(-shape[axis] // self.degree))

    def is_shared(self, name: str) -> bool:
        """Whether every device has a share of a tensor's tokens."""
        return self.has_token_shares and self.is_outside(name)

    def is_outside(self, name: str) -> bool:
        """Whether a tensor of tokens is between the regions that are split."""
        is_inside = name in self.sharding.splits or name in self.sharding.experts.whole
        is_varying = self.graph.role(name) is TracedRole.ACTIVATION
        return self.degree > 1 and is_varying and not is_inside and has_tokens(self.graph, name)

    def share(self, size: int, split: SplitAxis) -> int:
        """Of an axis what one device has: whole heads, or channels, rounded up."""
        units = split.units
        if len(split.sources) == 1:
            units = self.sharding.units[next(iter(split.sources))]
        return -(-units // self.degree) * size // units if size % units == 0 else -(-size // self.degree)

    def parameter(self, node: TracedNode, name: str) -> Shape:
        """The shape of a parameter, or of a view of one, as an operation of one device sees it."""
        shape, result = self.whole(name), node.outputs[0]
        kind = self.sharding.products.get(result)
        split = self.sharding.splits.get(result)
        if self.degree == 1:
            return shape
        if kind is ShardedAs.ROWS and len(shape) > 1:
            axis = len(shape) - 1 if node.op == "aten.linear" else len(shape) - 2
            return _with(shape, axis, -(-shape[axis] // self.degree))
        if result in self.sharding.tables:
            return _with(shape, 0, -(-shape[0] // self.degree))
        if split is not None and kind is not None:
            axis = 0 if node.op == "aten.linear" else len(shape) - 1
            return _with(shape, axis, self.share(shape[axis], split))
        return shape if split is None else self._beside(shape, result, split)

    def _beside(self, shape: Shape, result: str, split: SplitAxis) -> Shape:
        """A parameter that is spread over a split result: split where it has the axis."""
        whole = self.whole(result)
        axis = split.axis - len(whole) + len(shape)
        if axis < 0 or shape[axis] != whole[split.axis]:
            return shape
        return _with(shape, axis, self.share(shape[axis], split))

    def _token_axis(self, name: str) -> int:
        """The axis of the tokens: the first that has the sequence in it, else that behind the samples."""
        shape = self.graph.tensors[name].shape
        of_sequence = [axis for axis, size in enumerate(shape[:-1]) if SEQUENCE in size.symbols]
        return of_sequence[0] if of_sequence else min(1, len(shape) - 2)


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])
