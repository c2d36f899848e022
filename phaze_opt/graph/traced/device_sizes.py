"""Sizes of a traced layer's tensors and parameters on one device of a tensor-parallel group.

Between the regions that are split every device has all tokens, or with sequence parallelism its share of them, rounded
up. Experts have rows of their own: the tokens that are sent to those of a device. `weight_shares` says what a device
has of every weight, and why.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, prod

from phaze_opt.errors import InputError
from phaze_opt.graph.mlp import ExpertShare
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.expert_region import ExpertRegion
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layer_sharding import LOOKUP, PRODUCTS, LayerSharding, has_tokens, left_of
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION
from phaze_opt.graph.traced.operator_rule import Shape
from phaze_opt.graph.traced.traced_model import SEQUENCE, TracedNode, TracedRole

MAX_ELEMENTS = 1 << 50
"""Elements of a tensor beyond which a file is no model that is trained."""


@dataclass(frozen=True, slots=True)
class DeviceSizes:
    """Sizes on one device.

    Attributes:
        graph: whose tensors they are.
        values: of the symbols.
        group: degrees and training.
        sharding: of the layer.
        has_token_shares: whether tokens between the split regions are shared out.
    """

    graph: FlatGraph
    values: Mapping[str, int]
    group: Sharding
    sharding: LayerSharding
    has_token_shares: bool

    @property
    def degree(self) -> int:
        """Devices of the group."""
        return self.group.degree

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
        """A tensor's shape on one device, as what reads it sees it."""
        sharding, shape = self.sharding, self.whole(name)
        region = self.region_of(name)
        if region is not None:
            return self._of_experts(name, region, shape)
        if self.degree == 1 or name in sharding.gathered or name in sharding.whole or name in sharding.deferred:
            return shape
        return self._split(name, shape)

    def made(self, node: TracedNode, name: str) -> Shape:
        """The shape of what a node gives on one device, before the group exchanges it."""
        sharding, region = self.sharding, self.region_of(name)
        if region is not None:
            return self._made_of_experts(name, region)
        for combined in sharding.experts:
            if name == combined.combine:
                return self.token_share(name) if self.degree > 1 else self.whole(name)
        if self.degree == 1:
            return self.whole(name)
        if sharding.reduces(node) or name in sharding.tables:
            return self.whole(name)
        return self._split(name, self.whole(name)) if name in sharding.gathered else self.own(name)

    def _split(self, name: str, shape: Shape) -> Shape:
        split = self.sharding.splits.get(name)
        if split is not None:
            return _cut(shape, split.axis, self.sharding.roots.share(split.root, self.degree))
        if name in self.sharding.patches and self.has_token_shares:
            return self._positions(shape)
        return self.token_share(name) if self.is_shared(name) else shape

    def token_share(self, name: str) -> Shape:
        """A device's share of the rows of a tensor of tokens, rounded up."""
        shape, axis = self.whole(name), self._token_axis(name)
        rows = -(-prod(shape[: axis + 1]) // self.degree)
        return (*(1,) * axis, rows, *shape[axis + 1 :])

    def _positions(self, shape: Shape) -> Shape:
        """Samples x channels x positions: a share of the first axis of positions of all samples."""
        rows = -(-shape[0] * prod(shape[2:]) // self.degree)
        rest = prod(shape[3:])
        return (1, shape[1], rows, *(1,) * (len(shape) - 3)) if rows % rest else (1, shape[1], rows // rest, *shape[3:])

    def is_shared(self, name: str) -> bool:
        """Whether every device has a share of a tensor's tokens."""
        if self.degree > 1 and any(name in region.own for region in self.sharding.experts):
            return self.graph.role(name) is TracedRole.ACTIVATION
        return self.has_token_shares and self.is_outside(name)

    def is_outside(self, name: str) -> bool:
        """Whether a tensor of tokens is between the regions that are split."""
        sharding = self.sharding
        is_inside = name in sharding.splits or name in sharding.whole or name in sharding.deferred
        is_inside |= self.region_of(name) is not None
        is_varying = self.graph.role(name) is TracedRole.ACTIVATION
        return self.degree > 1 and is_varying and not is_inside and has_tokens(self.graph, name)

    def region_of(self, name: str) -> ExpertRegion | None:
        """The mixture of experts whose rows a tensor has."""
        regions = self.sharding.experts
        return next((each for each in regions if name in each.inside or name in each.behind), None)

    def share_of(self, region: ExpertRegion) -> ExpertShare:
        """What a device does of the experts of a mixture."""
        share = ExpertShare.of(
            self.group,
            num_experts=self.whole(region.weight)[0],
            width=self.sharding.width_of(region),
            copies=prod(self.whole(region.sent)[:-1]),
        )
        number = self.sharding.experts.index(region)
        return replace(share, suffix=f"_{number + 1}") if number else share

    def copies(self, region: ExpertRegion) -> int:
        """Rows that a device sends."""
        tokens = self.whole(region.combine)[:-1]
        return -(-prod(tokens) // self.degree) * (prod(self.whole(region.sent)[:-1]) // prod(tokens))

    def _of_experts(self, name: str, region: ExpertRegion, shape: Shape) -> Shape:
        share = self.share_of(region)
        rows = share.own_rows if name in region.behind or name in region.last else share.rows
        split = self.sharding.splits.get(name)
        own = (rows, *shape[1:])
        return own if split is None else _cut(own, split.axis, self.sharding.roots.share(split.root, share.num_splits))

    def _made_of_experts(self, name: str, region: ExpertRegion) -> Shape:
        share = self.share_of(region)
        if name == region.sent:
            return (share.num_sent(self.copies(region)), *self.whole(name)[1:])
        if name in region.last:
            return (share.rows, *self.whole(name)[1:])
        return self.own(name)

    def parameter(self, node: TracedNode, name: str) -> Shape:
        """The shape of a parameter, or of a view of one, as an operation of one device sees it."""
        shape, region = self.whole(name), self.region_of(node.outputs[0])
        if region is None:
            return shape if self.degree == 1 else self._shared_out(node, shape, self.degree)
        share = self.share_of(region)
        return (share.batch, *self._shared_out(node, shape, share.num_splits)[1:])

    def _shared_out(self, node: TracedNode, shape: Shape, degree: int) -> Shape:
        """A parameter of which so many devices have shares."""
        result, sharding = node.outputs[0], self.sharding
        kind, split = sharding.products.get(result), sharding.splits.get(result)
        if kind is ShardedAs.ROWS and len(shape) > 1:
            axis = len(shape) - 1 if node.op == "aten.linear" else len(shape) - 2
            return _cut(shape, axis, sharding.roots.share(sharding.splits[left_of(node)].root, degree))
        if result in sharding.tables:
            return _cut(shape, 0, Fraction(1, degree))
        if split is None:
            return shape
        own = sharding.roots.share(split.root, degree)
        if kind is not None:
            return _cut(shape, 0 if node.op == "aten.linear" else len(shape) - 1, own)
        if node.op == LOOKUP:
            return _cut(shape, len(shape) - 1, own)
        whole = self.whole(result)
        axis = 0 if node.op == ATTENTION and len(shape) == 1 else split.axis - len(whole) + len(shape)
        # A parameter that is spread over a split result is split where it has the axis.
        return _cut(shape, axis, own) if axis >= 0 and shape[axis] == whole[split.axis] else shape

    def _token_axis(self, name: str) -> int:
        """The axis of the tokens: the last that has the sequence in it, else that behind the samples."""
        shape = self.graph.tensors[name].shape
        rows = shape[: max(1, len(shape) - 1)]
        of_sequence = [axis for axis, size in enumerate(rows) if SEQUENCE in size.symbols]
        return of_sequence[0] if of_sequence else min(1, len(rows) - 1)


@dataclass(frozen=True, slots=True)
class WeightShare:
    """What one device of a tensor-parallel group has of a weight.

    Attributes:
        layer: name of its kind of layer.
        module: path of the module that runs it.
        split: how it is split; None if every device has all of it.
        share: of its elements.
        reason: why a device has more than its share of them; empty if it has not.
    """

    layer: str
    module: str
    split: ShardedAs | None
    share: float
    reason: str


def weight_shares(sizes: DeviceSizes, layer: TracedLayer, name: str) -> Iterator[WeightShare]:
    """Of every product with a weight, and every lookup in a table, of a layer of that name."""
    for node in layer.nodes:
        weights = [each for each in node.tensor_ids() if sizes.graph.role(each) is TracedRole.PARAMETER]
        weights = [each for each in weights if len(sizes.whole(each)) > 1]
        if not weights or node.op not in {*PRODUCTS, LOOKUP}:
            continue
        split, reason = _split_of(sizes, node)
        share = prod(sizes.parameter(node, weights[0])) / prod(sizes.whole(weights[0]))
        yield WeightShare(name, node.module, split, share, reason)


def _split_of(sizes: DeviceSizes, node: TracedNode) -> tuple[ShardedAs | None, str]:
    """How a weight is split, and why it is not, or why more than one device has a part of it."""
    output, sharding = node.outputs[0], sizes.sharding
    if sizes.region_of(output) is not None:
        return ShardedAs.EXPERTS, ""
    if output in sharding.tables:
        return ShardedAs.VOCABULARY, ""
    if node.op == LOOKUP and output in sharding.splits:
        return ShardedAs.COLUMNS, ""
    kind = sharding.products.get(output)
    if kind is None:
        return None, sharding.replicated.get(output, "a table of few rows")
    roots = sharding.roots
    leaves = roots.leaves(output) if kind is ShardedAs.COLUMNS else ()
    copied = [roots.units[leaf] for leaf in leaves if leaf in roots.headed and roots.units[leaf] < sizes.degree]
    if not copied:
        return kind, ""
    return kind, f"{sizes.degree // copied[0]} devices have a copy of each of {copied[0]} key-value heads"


def _cut(shape: Shape, axis: int, share: Fraction) -> Shape:
    """A share of an axis, with the next where units lie in both; rounded up."""
    size = shape[axis] * share
    if size.denominator > 1 and axis + 1 < len(shape) - 1 and (both := size * shape[axis + 1]).denominator == 1:
        return (*shape[:axis], 1, int(both), *shape[axis + 2 :])
    return (*shape[:axis], ceil(size), *shape[axis + 1 :])
