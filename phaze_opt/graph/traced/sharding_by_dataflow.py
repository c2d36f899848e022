"""Tensor parallelism of a traced layer by where its tensors go, without knowing what the model is.

A product with a weight may split its columns if its result, along that axis, only meets work that leaves the axis apart
(elementwise work, views, rotations, attention by heads) until other products sum over it: those split their rows, and
their results are summed over the group. All products are taken to split their columns; whatever meets a tensor that
cannot stay split takes the products that it comes from out, until nothing does. What is left is Megatron-LM's sharding
of transformers: queries, keys and values by heads, up and down projections, and the vocabulary of the loss.

Beyond that: parts of one product are cut each on their own (fewer key-value heads than devices are copied); channels of
all heads that are normalised together are split, and their sums of squares exchanged; sums that are added up are summed
over the group once; a table's rows that only products read are scattered by channels; what stands between a product and
the vocabulary and needs all columns gets them gathered.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import prod

from phaze_opt.graph.traced.axes import ShardedAs, SplitAxis, SplitRoots, axis_after
from phaze_opt.graph.traced.expert_region import expert_regions
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layer_sharding import (
    ANY_AXIS,
    LOOKUP,
    LOSS,
    NOT_LAST,
    PRODUCTS,
    LayerSharding,
    deferred_sums,
    gathered_columns,
    has_tokens,
    left_of,
    logits_of,
    patches_of,
    readers_of,
)
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise import regions
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION
from phaze_opt.graph.traced.normalise.views import PART, SPLIT
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedRole

MIN_TABLE_ROWS = 1024
"""Rows of a table, other than the vocabulary, below which every device has all of it."""
_JOINS = {"aten.slice_scatter", "aten.cat"}
"""What may join a tensor that all heads share to one that is split by heads."""
_HEAD_RANK = 4
"""Axes of a tensor with heads."""


_NO_TOKENS = "it has one row a sample, or no weight"


def shard_layer(
    graph: FlatGraph, layer: TracedLayer, *, vocabularies: Collection[int] = (), apart: Collection[str] = ()
) -> LayerSharding:
    """The sharding of a layer.

    Args:
        graph: that the layer is of.
        layer: which.
        vocabularies: outputs of the model for each token: tables of as many rows are split however few they are.
        apart: ids of tensors that convolutions in front of it made of data alone.
    """
    tables = _large_tables(graph, layer, vocabularies)
    candidates = {node.outputs[0] for node in layer.nodes if _may_split(graph, node)}
    candidates |= _lookups(layer, tables)
    reasons: dict[str, str] = {}
    while True:
        attempt = ShardingPass(graph, layer, frozenset(candidates), tables)
        wrong = attempt.run()
        if not wrong:
            return attempt.result(reasons, apart)
        reasons |= {name: reason for name, reason in wrong.items() if name not in reasons}
        candidates -= wrong.keys()


def vocabulary_sizes(graph: FlatGraph) -> frozenset[int]:
    """Outputs for each token that losses read."""
    logits = (left_of(node) for node in graph.nodes if node.op == LOSS)
    sizes = {graph.tensors[name].shape[-1] for name in logits if name and has_tokens(graph, name)}
    return frozenset(size.evaluate({}) for size in sizes if not size.symbols)


def _may_split(graph: FlatGraph, node: TracedNode) -> bool:
    """Whether a product has a weight, and more rows than samples."""
    if node.op not in PRODUCTS or not left_of(node):
        return False
    has_weight = any(graph.role(name) is TracedRole.PARAMETER for name in node.tensor_ids())
    has_width = not graph.tensors[node.outputs[0]].shape[-1].symbols
    return has_weight and has_width and has_tokens(graph, left_of(node))


def _large_tables(graph: FlatGraph, layer: TracedLayer, vocabularies: Collection[int]) -> frozenset[str]:
    """Outputs of lookups in tables whose rows are worth splitting: the vocabulary's, and other large ones."""
    found = []
    for node in layer.nodes:
        if node.op == LOOKUP and has_tokens(graph, node.outputs[0]):
            rows = graph.tensors[next(node.tensor_ids())].shape[0].evaluate({})
            if rows >= MIN_TABLE_ROWS or rows in vocabularies:
                found.append(node.outputs[0])
    return frozenset(found)


def _lookups(layer: TracedLayer, tables: frozenset[str]) -> set[str]:
    """Lookups that may give columns: of tables that every device has, and of others where products alone read them."""
    readers = readers_of(layer)
    lookups = {node.outputs[0] for node in layer.nodes if node.op == LOOKUP}
    is_of_products = {name for name in lookups if all(node.op in PRODUCTS for node in readers.get(name, ()))}
    return lookups - tables | is_of_products


class ShardingPass:
    """One pass through a layer with products, and columns of tables, taken to be split."""

    def __init__(self, graph: FlatGraph, layer: TracedLayer, columns: frozenset[str], tables: frozenset[str]) -> None:
        """Nothing is split yet."""
        self._graph = graph
        self._layer = layer
        self._columns = columns
        self._tables = tables
        self._splits: dict[str, SplitAxis] = {}
        self._products: dict[str, ShardedAs] = {}
        self._begun: list[str] = []
        self._logits = logits_of(graph, layer)
        self._roots = SplitRoots()
        self._heads: list[tuple[int, int]] = []
        self._normed: set[str] = set()
        self._spread: set[str] = set()
        self._wrong: dict[str, str] = {}

    def run(self) -> dict[str, str]:
        """Products that cannot split their columns as things stand, and why."""
        for node in self._layer.nodes:
            self._take(node)
        leaving = (*self._layer.outputs, *self._graph.ends)
        leaves = "its result leaves the layer"
        self._refuse((self._splits[name] for name in leaving if name in self._splits), leaves)
        summed = frozenset().union(*(self._splits[left_of(node)].sources for node in self._summing()))
        for name in self._begun:
            if name not in summed:
                self._wrong.setdefault(name, "no product sums over its columns")
        return self._wrong

    def _summing(self) -> list[TracedNode]:
        """Products that sum over a split axis, and losses over a split vocabulary."""
        return [
            node
            for node in self._layer.nodes
            if (node.op in PRODUCTS or node.op == LOSS) and left_of(node) in self._splits
        ]

    def result(self, reasons: Mapping[str, str], apart: Collection[str]) -> LayerSharding:
        """What was found; reasons are those of earlier passes."""
        graph, layer = self._graph, self._layer
        experts = expert_regions(graph, layer)
        gathers = gathered_columns(graph, layer, self._products)
        for name, split in gathers.splits.items():
            self._splits[name] = split
            if name == split.root:
                self._products[name] = ShardedAs.GATHERED
                self._roots.begin(name, split.units, split.units)
        products = [node.outputs[0] for node in layer.nodes if node.op in PRODUCTS]
        deferred, sums = deferred_sums(graph, layer, self._products)
        patches = patches_of(graph, layer, apart)
        mixers = [node.outputs[0] for node in layer.nodes if node.op in words.TOKEN_MIXERS]
        return LayerSharding(
            products=self._products,
            splits=self._splits,
            roots=self._roots,
            replicated={name: reasons.get(name, _NO_TOKENS) for name in products if name not in self._products},
            tables=self._tables,
            heads=tuple(self._heads),
            deferred=deferred,
            sums=sums,
            normed=frozenset(self._normed),
            spread=frozenset(self._spread),
            gathered=gathers.gathered,
            whole=gathers.whole,
            mixes_tokens=any(name not in self._splits and name not in patches for name in mixers),
            patches=patches,
            experts=experts,
        )

    def _begin(self, name: str) -> None:
        """A tensor whose last axis is split."""
        shape = self._graph.tensors[name].shape
        size = shape[-1].evaluate({})
        self._begun.append(name)
        self._roots.begin(name, size, size)
        self._splits[name] = SplitAxis(len(shape) - 1, size, frozenset((name,)), name)

    def _refuse(self, splits: Iterable[SplitAxis], reason: str) -> None:
        for split in splits:
            self._wrong |= {source: self._wrong.get(source, reason) for source in split.sources}

    def _take(self, node: TracedNode) -> None:
        given = {name: self._splits[name] for name in node.tensor_ids() if name in self._splits}
        if node.op in PRODUCTS:
            self._product(node, given)
        elif node.op == LOOKUP and node.outputs[0] in self._columns:
            self._begin(node.outputs[0])
        elif given:
            found = self._after(node, given)
            if found is None:
                self._refuse(given.values(), f"{node.op} needs its columns together")
                return
            self._splits.update(found)
            for split in found.values():
                self._roots.limit(split.root, split.units)

    def _product(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> None:
        name = node.outputs[0]
        fault = self._rows_fault(node, given) if given else ""
        if given and not fault:
            self._products[name] = ShardedAs.ROWS
            return
        self._refuse(given.values(), fault)
        if name in self._columns:
            self._products[name] = ShardedAs.COLUMNS
            self._begin(name)

    def _rows_fault(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> str:
        """Why a product cannot sum over what is split; empty if it can."""
        left = left_of(node)
        if left not in given:
            return f"{node.op} reads it beside what it multiplies"
        if given[left].is_normed:
            return "all of its columns are normalised at once"
        if given[left].axis != len(self._graph.tensors[left].shape) - 1:
            return f"{node.op} has another axis of it as its rows"
        return "the vocabulary's product reads its columns" if node.outputs[0] in self._logits else ""

    def _after(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Splits of what an operation gives; None if it cannot be done apart."""
        if node.op in words.SHAPES:
            return self._viewed(node, next(iter(given.values())))
        if node.op == LOSS:
            return self._lost(node, given)
        if node.op in _JOINS:
            return self._joined(node, given)
        if node.op in NOT_LAST or node.op == ATTENTION:
            given = {name: self._by_heads(name, split) for name, split in given.items()}
        if node.op == ATTENTION:
            return self._attended(node, given)
        return self._worked(node, given)

    def _by_heads(self, name: str, split: SplitAxis) -> SplitAxis:
        """Channels of one head that all queries share are that head, of which every device has a copy."""
        shape = self._graph.tensors[name].shape
        if len(shape) != _HEAD_RANK or split.axis != len(shape) - 1:
            return split
        single = [axis for axis in (1, 2) if shape[axis] == Polynomial.constant(1)]
        if not single:
            return split
        self._roots.limit(split.root, 1)
        return replace(split, axis=single[0], units=1)

    def _worked(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Elementwise work on tensors that are all split alike."""
        varying = self._graph.varying(node)
        splits = [given[name] for name in varying if name in given]
        alike = {(each.axis - len(self._graph.tensors[name].shape), each.units) for name, each in given.items()}
        if len(splits) < len(varying) or len(alike) != 1:
            return None
        if node.op in (SPLIT, PART):
            return self._parted(node, splits[0])
        ((from_end, _),) = alike
        if node.op not in ANY_AXIS | NOT_LAST:
            return None
        if from_end == -1 and node.op in NOT_LAST:
            return self._normed_together(node, splits[0])
        whole = self._graph.tensors[node.outputs[0]].shape
        # A rotation of complex pairs has an axis more for the two parts of each.
        longer = len(whole) - len(self._graph.tensors[varying[0]].shape) if node.op == regions.ROTARY else 0
        axis = len(whole) + from_end - longer
        return {node.outputs[0]: self._merged(splits, axis, whole[axis])}

    def _merged(self, splits: list[SplitAxis], axis: int, size: Polynomial) -> SplitAxis:
        """One split of a result of several tensors: all of their cuts are the same."""
        first = splits[0]
        sources = frozenset().union(*(each.sources for each in splits))
        units = first.units if size.symbols else min(first.units, size.evaluate({}))
        for each in splits:
            self._roots.limit(each.root, units)
        return replace(first, axis=axis, units=units, sources=sources)

    def _normed_together(self, node: TracedNode, split: SplitAxis) -> dict[str, SplitAxis] | None:
        """Channels of all heads are divided by one root: their sums of squares are exchanged."""
        if node.op != regions.NORM or split.is_normed or split.is_attended or len(split.sources) > 1:
            return None
        self._normed.add(node.outputs[0])
        self._roots.normed.add(split.root)
        return {node.outputs[0]: replace(split, is_normed=True)}

    def _viewed(self, node: TracedNode, split: SplitAxis) -> dict[str, SplitAxis] | None:
        axis, units, is_spread = split.axis, split.units, split.is_spread
        for view in self._graph.views.get(node.outputs[0], (node,)):
            after = axis_after(self._graph, view, axis)
            if after is None:
                return None
            axis = after
            size = self._graph.tensors[view.outputs[0]].shape[axis]
            if size.symbols:
                return None
            units = min(units, size.evaluate({}))
            is_spread = is_spread or view.op == "aten.expand"
        return {node.outputs[0]: replace(split, axis=axis, units=units, is_spread=is_spread)}

    def _parted(self, node: TracedNode, split: SplitAxis) -> dict[str, SplitAxis] | None:
        """Parts, which are cut each on their own, as weights of each are kept together."""
        whole = self._graph.tensors[next(node.tensor_ids())].shape
        shapes = {name: self._graph.tensors[name].shape for name in node.outputs}
        if any(len(shape) != len(whole) for shape in shapes.values()):
            return None
        if node.op == PART:
            (shape,) = shapes.values()
            return {node.outputs[0]: split} if shape[split.axis] == whole[split.axis] else None
        along = {axis for shape in shapes.values() for axis in range(len(whole)) if shape[axis] != whole[axis]}
        sizes = {
            name: shape[split.axis].evaluate({}) * _numbers(shape, along - {split.axis})
            for name, shape in shapes.items()
        }
        units = {name: min(split.units, shape[split.axis].evaluate({})) for name, shape in shapes.items()}
        self._roots.part(split.root, {name: (size, units[name]) for name, size in sizes.items()})
        return {name: replace(split, units=units[name], root=name) for name in shapes}

    def _joined(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Tensors side by side within heads: some of each head, others of all heads alike."""
        whole = self._graph.tensors[node.outputs[0]].shape
        heads = {name: each for name, each in given.items() if each.units > 1}
        if heads:
            # What all heads share is best made by every device.
            self._refuse((given[name] for name in given.keys() - heads.keys()), f"{node.op} has it in all heads")
            given = heads
        alike = {(each.axis, each.units) for each in given.values()}
        if len(alike) != 1:
            return None
        ((axis, _),) = alike
        if any(self._graph.tensors[name].shape[axis] != whole[axis] for name in given):
            return None
        others = [name for name in self._graph.varying(node) if name not in given]
        if not all(self._is_of_all_heads(name) for name in others):
            return None
        if others:
            self._spread.add(node.outputs[0])
        return {node.outputs[0]: self._merged(list(given.values()), axis, whole[axis])}

    def _is_of_all_heads(self, name: str) -> bool:
        """Whether a tensor is one for many: a view spreads it."""
        return any(view.op == "aten.expand" for view in self._graph.views.get(name, ()))

    def _attended(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Heads apart: queries, keys and values must all be split by theirs, and so is what is added to scores."""
        names = [each.id for each in node.inputs[:3] if isinstance(each, TensorRef)]
        if any(name not in given for name in names) or {each.axis for each in given.values()} != {1}:
            return None
        query, key, value = (given[name] for name in names)
        heads = query.units
        if not query.is_spread:
            heads = self._graph.tensors[names[0]].shape[1].evaluate({})
            self._roots.units[query.root] = heads
        self._roots.headed.update(each.root for each in given.values())
        self._heads.append((heads, min(key.units, value.units)))
        sources = frozenset().union(*(each.sources for each in given.values()))
        return {node.outputs[0]: SplitAxis(1, heads, sources, query.root, is_attended=True)}

    def _lost(self, node: TracedNode, given: Mapping[str, SplitAxis]) -> dict[str, SplitAxis] | None:
        """Logits split over the vocabulary."""
        (split,) = given.values()
        logits = self._graph.tensors[left_of(node)].shape
        is_last = split.axis == len(logits) - 1
        if not is_last or any(self._products.get(name) is not ShardedAs.COLUMNS for name in split.sources):
            return None
        self._products.update(dict.fromkeys(split.sources, ShardedAs.VOCABULARY))
        return {}


def _numbers(shape: tuple[Polynomial, ...], axes: Collection[int]) -> int:
    return prod(shape[axis].evaluate({}) for axis in axes)
