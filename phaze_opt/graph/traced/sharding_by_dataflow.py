"""Tensor parallelism of a traced layer by where its tensors go, without knowing what the model is.

A product with a weight may split its columns if its result, along that axis, only meets work that leaves the axis apart
(elementwise work, views, rotations, attention by heads) until other products sum over it: those split their rows, and
their results are summed over the group. All products are taken to split their columns; whatever meets a tensor that
cannot stay split takes the products that it comes from out, until nothing does. What is left is Megatron-LM's sharding
of transformers: queries, keys and values by heads, up and down projections, and the vocabulary of the loss.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from phaze_opt.graph.traced.axes import ShardedAs, axis_after
from phaze_opt.graph.traced.expert_region import ExpertRegion, expert_region
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise import regions
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION
from phaze_opt.graph.traced.normalise.views import PART, SPLIT
from phaze_opt.graph.traced.polynomial import Polynomial, parse_polynomial
from phaze_opt.graph.traced.traced_model import BATCH, TensorRef, TracedNode, TracedRole

_LINEAR = {"aten.linear", "aten.addmm", "aten.mm"}
PRODUCTS = _LINEAR | set(words.GROUPED_PRODUCTS)
LOSS = "aten.cross_entropy_loss"
MIN_TABLE_ROWS = 1024
"""Rows of a table below which every device has all of it."""
_ANY_AXIS = words.ELEMENTWISE | {
    "aten.dropout",
    regions.ACTIVATION,
    regions.CAP,
    regions.RECTIFIER,
    regions.SCALE,
    regions.GATE,
}
_NOT_LAST = {regions.ROTARY, regions.NORM, regions.NORM_ACTIVATION, "aten.layer_norm", "aten.rms_norm", "aten.softmax"}


_NO_TOKENS = "it has one row a sample, or no weight"


@dataclass(frozen=True, slots=True)
class SplitAxis:
    """A tensor of which every device has a share along an axis.

    Attributes:
        axis: which.
        units: parts that stay whole: heads, or channels.
        sources: outputs of the products whose columns it comes from.
    """

    axis: int
    units: int
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class LayerSharding:
    """How a layer is sharded over a tensor-parallel group.

    Attributes:
        products: of each product that is split, by its output, how.
        splits: of each tensor that is split, along what.
        replicated: of each product with a weight that every device computes, by its output, why.
        tables: outputs of lookups in tables whose rows are split.
        heads: heads of queries and of keys that must divide.
        units: of each product whose columns are split, by its output, the parts that stay whole.
        mixes_tokens: whether something that is not split needs all tokens: a convolution, a recurrence, a scan.
        experts: between dispatch and weighted sum.
    """

    products: Mapping[str, ShardedAs]
    splits: Mapping[str, SplitAxis]
    replicated: Mapping[str, str]
    tables: tuple[str, ...]
    heads: tuple[tuple[int, int], ...]
    units: Mapping[str, int]
    mixes_tokens: bool
    experts: ExpertRegion

    @property
    def is_split(self) -> bool:
        """Whether anything is."""
        return bool(self.products or self.tables)

    def is_gathered(self, node: TracedNode) -> bool:
        """Whether a node that is no product reads the tokens of all devices: a dispatch, or what sums up experts."""
        return node.outputs[0] in self.experts.gathered

    @property
    def channels(self) -> tuple[int, ...]:
        """Parts that must divide, other than heads and the vocabulary."""
        heads = {each for pair in self.heads for each in pair}
        columns = [name for name, kind in self.products.items() if kind is ShardedAs.COLUMNS]
        return tuple(sorted({self.units[name] for name in columns} - heads))


def shard_layer(graph: FlatGraph, layer: TracedLayer) -> LayerSharding:
    """The sharding of a layer."""
    candidates = {node.outputs[0] for node in layer.nodes if _may_split(graph, node)}
    reasons: dict[str, str] = {}
    while True:
        attempt = _Pass(graph, layer, frozenset(candidates))
        wrong = attempt.run()
        if not wrong:
            return attempt.result(reasons)
        reasons |= {name: reason for name, reason in wrong.items() if name not in reasons}
        candidates -= wrong.keys()


def _may_split(graph: FlatGraph, node: TracedNode) -> bool:
    """Whether a product has a weight, and more rows than samples."""
    if node.op not in PRODUCTS or not left_of(node):
        return False
    has_weight = any(graph.role(name) is TracedRole.PARAMETER for name in node.tensor_ids())
    has_width = not graph.tensors[node.outputs[0]].shape[-1].symbols
    return has_weight and has_width and has_tokens(graph, left_of(node))


def has_tokens(graph: FlatGraph, name: str) -> bool:
    """Whether a tensor has several rows for each sample, which a group of devices can share out."""
    rows = Polynomial.constant(1)
    for size in graph.tensors[name].shape[:-1]:
        rows = rows.times(size)
    return rows not in (Polynomial.constant(1), parse_polynomial(BATCH))


def left_of(node: TracedNode) -> str:
    """The tensor that a product multiplies."""
    argument = node.inputs[1 if node.op == "aten.addmm" else 0]
    return argument.id if isinstance(argument, TensorRef) else ""


def _has_large_table(graph: FlatGraph, node: TracedNode) -> bool:
    """Whether a node looks up rows of a table that is worth splitting."""
    if node.op != "aten.embedding" or not has_tokens(graph, node.outputs[0]):
        return False
    return graph.tensors[next(node.tensor_ids())].shape[0].evaluate({}) >= MIN_TABLE_ROWS


class _Pass:
    """One pass through a layer with products taken to split their columns."""

    def __init__(self, graph: FlatGraph, layer: TracedLayer, columns: frozenset[str]) -> None:
        self._graph = graph
        self._layer = layer
        self._columns = columns
        self._splits: dict[str, SplitAxis] = {}
        self._products: dict[str, ShardedAs] = {}
        self._heads: list[tuple[int, int]] = []
        self._wrong: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Products that cannot split their columns as things stand, and why."""
        for node in self._layer.nodes:
            self._take(node)
        leaving = (*self._layer.outputs, *self._graph.ends)
        leaves = "its result leaves the layer"
        self._refuse((self._splits[name] for name in leaving if name in self._splits), leaves)
        summed = frozenset().union(*(self._splits[left_of(node)].sources for node in self._summing()))
        for name, kind in self._products.items():
            if kind is ShardedAs.COLUMNS and name not in summed:
                self._wrong.setdefault(name, "no product sums over its columns")
        return self._wrong

    def _summing(self) -> list[TracedNode]:
        """Products that sum over a split axis, and losses over a split vocabulary."""
        return [
            node
            for node in self._layer.nodes
            if (node.op in PRODUCTS or node.op == LOSS) and left_of(node) in self._splits
        ]

    def result(self, reasons: Mapping[str, str]) -> LayerSharding:
        """What was found; reasons are those of earlier passes."""
        products = [node.outputs[0] for node in self._layer.nodes if node.op in PRODUCTS]
        replicated = {name: reasons.get(name, _NO_TOKENS) for name in products if name not in self._products}
        tables = tuple(node.outputs[0] for node in self._layer.nodes if _has_large_table(self._graph, node))
        mixes_tokens = any(
            node.op in words.TOKEN_MIXERS and node.outputs[0] not in self._splits for node in self._layer.nodes
        )
        heads = tuple(self._heads)
        experts = expert_region(self._layer, self._products)
        return LayerSharding(
            self._products, self._splits, replicated, tables, heads, self._units(), mixes_tokens, experts
        )

    def _units(self) -> dict[str, int]:
        """The fewest parts of anything that comes from a product alone."""
        found: dict[str, int] = {}
        for split in self._splits.values():
            if len(split.sources) == 1:
                (source,) = split.sources
                found[source] = min(split.units, found.get(source, split.units))
        return found

    def _refuse(self, splits: Iterable[SplitAxis], reason: str) -> None:
        for split in splits:
            self._wrong |= {source: self._wrong.get(source, reason) for source in split.sources}

    def _take(self, node: TracedNode) -> None:
        given = {name: self._splits[name] for name in node.tensor_ids() if name in self._splits}
        if node.op in PRODUCTS:
            self._product(node, given)
        elif given:
            found = self._after(node, given)
            if found is None:
                self._refuse(given.values(), f"{node.op} needs its columns together")
            else:
                self._splits.update(found)

    def _product(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> None:
        left, name = left_of(node), node.outputs[0]
        shape = self._graph.tensors[name].shape
        if left in given:
            if given[left].axis == len(self._graph.tensors[left].shape) - 1:
                self._products[name] = ShardedAs.ROWS
            else:
                self._refuse(given.values(), f"{node.op} has another axis of it as its rows")
        elif given:
            self._refuse(given.values(), f"{node.op} reads it beside what it multiplies")
        elif name in self._columns:
            self._products[name] = ShardedAs.COLUMNS
            self._splits[name] = SplitAxis(len(shape) - 1, shape[-1].evaluate({}), frozenset((name,)))

    def _after(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Splits of what an operation gives; None if it cannot be done apart."""
        if node.op in words.SHAPES:
            return self._viewed(node, next(iter(given.values())))
        if node.op == ATTENTION:
            return self._attended(node, given)
        if node.op == LOSS:
            return self._lost(node, given)
        return self._worked(node, given)

    def _worked(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Elementwise work on tensors that are all split alike."""
        varying = self._graph.varying(node)
        splits = [given[name] for name in varying if name in given]
        alike = {(each.axis - len(self._graph.tensors[name].shape), each.units) for name, each in given.items()}
        if len(splits) < len(varying) or len(alike) != 1:
            return None
        if node.op in (SPLIT, PART):
            return self._parted(node, splits[0])
        ((from_end, units),) = alike
        if node.op not in _ANY_AXIS | _NOT_LAST or (from_end == -1 and node.op in _NOT_LAST):
            return None
        whole = self._graph.tensors[node.outputs[0]].shape
        size = whole[from_end]
        sources = frozenset().union(*(each.sources for each in splits))
        units = units if size.symbols else min(units, size.evaluate({}))
        return {node.outputs[0]: SplitAxis(from_end + len(whole), units, sources)}

    def _viewed(self, node: TracedNode, split: SplitAxis) -> dict[str, SplitAxis] | None:
        axis, units = split.axis, split.units
        for view in self._graph.views.get(node.outputs[0], (node,)):
            after = axis_after(self._graph, view, axis)
            if after is None:
                return None
            axis = after
            size = self._graph.tensors[view.outputs[0]].shape[axis]
            if size.symbols:
                return None
            units = min(units, size.evaluate({}))
        return {node.outputs[0]: SplitAxis(axis, units, split.sources)}

    def _parted(self, node: TracedNode, split: SplitAxis) -> dict[str, SplitAxis] | None:
        """Parts along another axis, or several that cover the axis: each is split, as weights are kept together."""
        whole = self._graph.tensors[next(node.tensor_ids())].shape
        found = {}
        for name in node.outputs:
            shape = self._graph.tensors[name].shape
            if len(shape) != len(whole) or (shape[split.axis] != whole[split.axis] and node.op == PART):
                return None
            found[name] = SplitAxis(split.axis, min(split.units, shape[split.axis].evaluate({})), split.sources)
        return found

    def _attended(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Heads apart: queries, keys and values must all be split by theirs."""
        names = [each.id for each in node.inputs[:3] if isinstance(each, TensorRef)]
        if any(name not in given for name in names) or len(given) != len(set(names)):
            return None
        query, key, value = (given[name] for name in names)
        if {each.axis for each in (query, key, value)} != {1}:
            return None
        self._heads.append((query.units, key.units))
        sources = query.sources | key.sources | value.sources
        return {node.outputs[0]: SplitAxis(1, query.units, sources)}

    def _lost(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Logits split over the vocabulary."""
        (split,) = given.values()
        logits = self._graph.tensors[left_of(node)].shape
        if split.axis != len(logits) - 1 or any(self._products[name] is ShardedAs.ROWS for name in split.sources):
            return None
        self._products.update(dict.fromkeys(split.sources, ShardedAs.VOCABULARY))
        return {}
