"""`LayerSharding`: how a group of devices shares out a traced layer, and what follows from its products."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from phaze_opt.graph.traced.axes import ShardedAs, SplitAxis, SplitRoots
from phaze_opt.graph.traced.expert_region import ExpertRegion
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise import regions
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.polynomial import Polynomial, parse_polynomial
from phaze_opt.graph.traced.traced_model import BATCH, TensorRef, TracedNode

_LINEAR = {"aten.linear", "aten.addmm", "aten.mm"}
PRODUCTS = _LINEAR | set(words.GROUPED_PRODUCTS)
LOSS = "aten.cross_entropy_loss"
_BEHIND_LOGITS = words.SHAPES | {regions.SCALE, regions.CAP}
LOOKUP, _ADD = "aten.embedding", "aten.add"
ANY_AXIS = words.ELEMENTWISE | {
    "aten.dropout",
    regions.ACTIVATION,
    regions.CAP,
    regions.RECTIFIER,
    regions.SCALE,
    regions.GATE,
}
NOT_LAST = {regions.ROTARY, regions.NORM, regions.NORM_ACTIVATION, "aten.layer_norm", "aten.rms_norm", "aten.softmax"}
_CONVOLUTIONS = {op for op in words.HEAVY if "conv" in op}


@dataclass(frozen=True, slots=True)
class LayerSharding:
    """How a layer is sharded over a tensor-parallel group.

    Attributes:
        products: of each product that is split, by its output, how.
        splits: of each tensor that is split, along what.
        roots: where they are cut.
        replicated: of each product with a weight that every device computes, by its output, why.
        tables: outputs of lookups in tables whose rows are split.
        heads: heads of queries and of keys that must divide.
        deferred: outputs of products of rows that are added up before the group sums them.
        sums: outputs of the sums of such.
        normed: outputs of normalisations of channels that are split.
        spread: outputs of operations that join what all heads share to what is split by heads.
        gathered: of each tensor whose columns are gathered, by what is gathered, whether only the outputs of the
            vocabulary read it.
        whole: tensors behind such a gather, of which every device has all.
        mixes_tokens: whether something that is not split needs all tokens: a convolution, a recurrence, a scan.
        patches: tensors of convolutions of data, whose positions the devices share out.
        experts: between dispatch and weighted sum.
    """

    products: Mapping[str, ShardedAs]
    splits: Mapping[str, SplitAxis]
    roots: SplitRoots
    replicated: Mapping[str, str]
    tables: frozenset[str]
    heads: tuple[tuple[int, int], ...]
    deferred: frozenset[str]
    sums: frozenset[str]
    normed: frozenset[str]
    spread: frozenset[str]
    gathered: Mapping[str, bool]
    whole: frozenset[str]
    mixes_tokens: bool
    patches: frozenset[str]
    experts: tuple[ExpertRegion, ...]

    def reduces(self, node: TracedNode) -> bool:
        """Whether every device has a part of each element of what a node gives, which the group sums."""
        output = node.outputs[0]
        if output in self.sums or (output in self.tables and output not in self.splits):
            return True
        return self.products.get(output) is ShardedAs.ROWS and output not in self.deferred

    def width_of(self, region: ExpertRegion) -> int:
        """Channels of an expert; 0 where they cannot be split."""
        split = self.splits.get(region.width)
        return 0 if split is None else self.roots.units[split.root]

    @property
    def channels(self) -> tuple[int, ...]:
        """Parts that must divide, other than heads, experts and the vocabulary."""
        split = (ShardedAs.COLUMNS, ShardedAs.GATHERED)
        inside = frozenset().union(*(each.inside for each in self.experts))
        leaves = [
            leaf
            for name, kind in self.products.items()
            if kind in split and name not in inside
            for leaf in self.roots.leaves(name)
        ]
        return tuple(sorted({self.roots.units[leaf] for leaf in leaves if leaf not in self.roots.headed}))

    @property
    def normed_channels(self) -> tuple[int, ...]:
        """Channels that are normalised together and must divide."""
        return tuple(sorted({self.roots.sizes[root] for root in self.roots.normed}))


def has_tokens(graph: FlatGraph, name: str) -> bool:
    """Whether a tensor has several rows for each sample, which a group of devices can share out."""
    shape = graph.tensors[name].shape
    rows = Polynomial.constant(1)
    for size in shape[: max(1, len(shape) - 1)]:
        rows = rows.times(size)
    return bool(shape) and rows not in (Polynomial.constant(1), parse_polynomial(BATCH))


def left_of(node: TracedNode) -> str:
    """The tensor that a product multiplies."""
    argument = node.inputs[1 if node.op == "aten.addmm" else 0]
    return argument.id if isinstance(argument, TensorRef) else ""


def logits_of(graph: FlatGraph, layer: TracedLayer) -> frozenset[str]:
    """Results of the products of the outputs of every token that losses read."""
    producers = {node.outputs[0]: node for node in layer.nodes}
    found = set()
    for loss in (node for node in layer.nodes if node.op == LOSS):
        node = producers.get(left_of(loss))
        while node is not None and node.op in _BEHIND_LOGITS:
            node = producers.get(left_of(node))
        if node is not None and node.op in PRODUCTS and has_tokens(graph, left_of(node)):
            found.add(node.outputs[0])
    return frozenset(found)


def readers_of(layer: TracedLayer) -> dict[str, list[TracedNode]]:
    """The nodes of a layer that read each tensor."""
    found: dict[str, list[TracedNode]] = {}
    for node in layer.nodes:
        for name in dict.fromkeys(node.tensor_ids()):
            found.setdefault(name, []).append(node)
    return found


def deferred_sums(
    graph: FlatGraph, layer: TracedLayer, products: Mapping[str, ShardedAs]
) -> tuple[frozenset[str], frozenset[str]]:
    """Products of rows that are added up on each device first, and the sums that the group then sums once."""
    readers = readers_of(layer)
    partial = {
        node.outputs[0]
        for node in layer.nodes
        if products.get(node.outputs[0]) is ShardedAs.ROWS and node.op not in words.GROUPED_PRODUCTS
    }
    deferred: set[str] = set()
    sums: set[str] = set()
    for node in layer.nodes:
        given, output = graph.varying(node), node.outputs[0]
        is_of_partial = node.op == _ADD and len(set(given)) == len(given) > 1 and set(given) <= partial
        if is_of_partial and all(len(readers[name]) == 1 and name not in layer.outputs for name in given):
            deferred |= set(given)
            sums = (sums - set(given)) | {output}
            partial.add(output)
    return frozenset(deferred), frozenset(sums)


@dataclass(frozen=True, slots=True)
class GatheredColumns:
    """Products in front of a vocabulary whose columns are split and gathered.

    Attributes:
        splits: of their results, and of work on them that leaves columns apart.
        gathered: the last of these, which is gathered, and whether the vocabulary's product alone reads it then.
        whole: what is made of it before that product.
    """

    splits: Mapping[str, SplitAxis]
    gathered: Mapping[str, bool]
    whole: frozenset[str]


def gathered_columns(graph: FlatGraph, layer: TracedLayer, products: Mapping[str, ShardedAs]) -> GatheredColumns:
    """Products that nothing but the outputs of the vocabulary read, if through elementwise work and norms."""
    readers, producers = readers_of(layer), {name: node for node in layer.nodes for name in node.outputs}
    splits: dict[str, SplitAxis] = {}
    gathered: dict[str, bool] = {}
    whole: set[str] = set()
    for node in layer.nodes:
        if products.get(node.outputs[0]) is not ShardedAs.VOCABULARY:
            continue
        chain = _single_chain(graph, left_of(node), producers, readers)
        if not chain or chain[0].op not in PRODUCTS or chain[0].outputs[0] in products:
            continue
        names = [each.outputs[0] for each in chain]
        apart = next((at for at, each in enumerate(chain) if at and each.op not in ANY_AXIS), len(chain))
        width = graph.tensors[names[0]].shape[-1].evaluate({})
        for name in names[:apart]:
            splits[name] = SplitAxis(len(graph.tensors[name].shape) - 1, width, frozenset(names[:1]), names[0])
        gathered[names[apart - 1]] = apart == len(chain)
        whole.update(names[apart:])
    return GatheredColumns(splits, gathered, frozenset(whole))


def _single_chain(
    graph: FlatGraph, name: str, producers: Mapping[str, TracedNode], readers: Mapping[str, list[TracedNode]]
) -> list[TracedNode]:
    """From a product with a weight to a tensor, each step read by the next alone; empty without such a product."""
    chain: list[TracedNode] = []
    while (node := producers.get(name)) is not None and len(readers[name]) == 1:
        chain.insert(0, node)
        if node.op in PRODUCTS:
            return chain if has_tokens(graph, left_of(node)) else []
        given = graph.varying(node)
        if node.op not in ANY_AXIS | NOT_LAST or len(given) != 1:
            return []
        (name,) = given
    return []


def patches_of(graph: FlatGraph, layer: TracedLayer, apart: Collection[str]) -> frozenset[str]:
    """Tensors of convolutions of data, in the order of channels and positions.

    Every device has the data, and makes the positions that it goes on with.
    """
    mixers = [node for node in layer.nodes if node.op in words.TOKEN_MIXERS]
    is_of_data = set(layer.inputs) <= set(apart)
    if not mixers or not is_of_data or any(node.op not in _CONVOLUTIONS for node in mixers):
        return frozenset()
    if any(node.op in PRODUCTS for node in layer.nodes):
        return frozenset()
    found: set[str] = {*layer.inputs, *layer.data}
    for node in layer.nodes:
        varying = graph.varying(node)
        if node.op in _CONVOLUTIONS or (node.op in ANY_AXIS and set(varying) <= found):
            found.update(node.outputs)
    return frozenset(found)
