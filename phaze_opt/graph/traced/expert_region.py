"""What lies between the dispatch of tokens to experts and the weighted sum of their results.

Every device routes tokens of its own: the router, the dispatch and the sum see a share of a group's tokens. What its
experts get comes from all devices that share the experts out, and has rows of its own.

What stands around the products of experts, as one operation each.

A bias of each expert is gathered for every row and added: that is the bias of the product. The sum of the experts'
results weighted by the router is a product, a reordering and a sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS, SHAPES
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedRole

COMBINE = "phaze.combine"
_ORDERS = {"aten.index", "aten.index_select", "aten.gather"}


def absorb_expert_biases(graph: FlatGraph) -> FlatGraph:
    """The graph in which what is added to products of experts is the table of their biases, not its gathered rows."""
    producers, consumers = graph.producers(), graph.consumers()
    same: dict[str, str] = {}
    gone: list[TracedNode] = []
    for node in graph.nodes:
        table, users = next(node.tensor_ids(), ""), consumers.get(node.outputs[0], [])
        if node.op not in _ORDERS or graph.role(table) is not TracedRole.PARAMETER or len(users) != 1:
            continue
        if _is_biased(users[0], producers):
            same[node.outputs[0]] = table
            gone.append(node)
    return graph.substituted(same, dropped=gone)


def _is_biased(node: TracedNode, producers: dict[str, TracedNode]) -> bool:
    """Whether a node adds to a product of experts."""
    source = producers.get(next(node.tensor_ids(), ""))
    return node.op == "aten.add" and source is not None and source.op in words.GROUPED_PRODUCTS


def join_expert_sums(graph: FlatGraph) -> FlatGraph:
    """The graph with weighted sums of experts as one operation of their results and the weights."""
    producers, consumers = graph.producers(), graph.consumers()

    def above(name: str, wanted: set[str], inside: list[TracedNode]) -> TracedNode | None:
        """What alone makes a tensor, through views: an operation that is wanted."""
        node = producers.get(name)
        while node is not None and len(consumers[node.outputs[0]]) == 1:
            inside.append(node)
            if node.op not in words.SHAPES:
                return node if node.op in wanted else None
            node = producers.get(next(node.tensor_ids()))
        return None

    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op != "aten.sum":
            continue
        inside: list[TracedNode] = []
        found = above(next(node.tensor_ids()), _ORDERS | {"aten.mul"}, inside)
        if found is not None and found.op in _ORDERS:
            found = above(next(found.tensor_ids()), {"aten.mul"}, inside)
        if found is None or not _is_of_experts(found, producers):
            continue
        made[id(node)] = TracedNode(COMBINE, found.inputs[:2], node.outputs, (), node.module)
        gone.update(id(each) for each in inside)
    return replace(graph, nodes=tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone))


def _is_of_experts(node: TracedNode, producers: dict[str, TracedNode]) -> bool:
    """Whether a product is of what experts give and another tensor."""
    if not all(isinstance(each, TensorRef) for each in node.inputs[:2]):
        return False
    source = producers.get(next(node.tensor_ids()))
    return source is not None and (source.op in words.GROUPED_PRODUCTS or _is_biased(source, producers))


DISPATCHES = ("aten.index", "aten.index_select", "aten.gather")


@dataclass(frozen=True, slots=True)
class ExpertRegion:
    """The experts of one mixture.

    Attributes:
        source: what is dispatched: all tokens of the layer.
        sent: output of the dispatch.
        inside: ids of tensors with a row for each token of each expert: what arrives, up to the last products.
        behind: ids of those that have it behind the last products' sum over the devices that split an expert.
        last: outputs of the last products.
        combine: output of the weighted sum.
        own: ids of tensors of a device's own tokens: the router's, and what it sends.
        weight: id of the first weight, of shape experts x ..., which tells how many there are.
        width: output of the first product, whose columns are an expert's channels.
    """

    source: str
    sent: str
    inside: frozenset[str]
    behind: frozenset[str]
    last: frozenset[str]
    combine: str
    own: frozenset[str]
    weight: str
    width: str

    @property
    def outputs(self) -> frozenset[str]:
        """Everything that its nodes give."""
        return self.inside | self.behind | self.own | {self.combine}


def expert_regions(graph: FlatGraph, layer: TracedLayer) -> tuple[ExpertRegion, ...]:
    """The regions of a layer."""
    producers = {name: node for node in layer.nodes for name in node.outputs}
    readers: dict[str, list[TracedNode]] = {}
    for node in layer.nodes:
        for name in dict.fromkeys(node.tensor_ids()):
            readers.setdefault(name, []).append(node)
    found = (_region(graph, node, producers, readers) for node in layer.nodes if node.op == COMBINE)
    return tuple(region for region in found if region is not None)


def _region(
    graph: FlatGraph, combine: TracedNode, producers: Mapping[str, TracedNode], readers: Mapping[str, list[TracedNode]]
) -> ExpertRegion | None:
    """What a weighted sum ends; None where its results do not come from one dispatch alone."""
    results, weights = graph.varying(combine)[:2]
    inside = _above(graph, results, producers, ends=DISPATCHES)
    dispatches = [node for node in inside if node.op in DISPATCHES]
    products = [node for node in inside if node.op in GROUPED_PRODUCTS]
    if len(dispatches) != 1 or not products:
        return None
    (dispatch,) = dispatches
    last = {node.outputs[0] for node in products if not _reaches_product(node, readers)}
    between = [node for node in inside if node is not dispatch]
    behind = _behind(between, last)
    source = graph.varying(dispatch)[0]
    routing = _above(graph, weights, producers, ends=(), stop=_behind_views(source, producers))
    views = _views_above(source, producers)
    own = {name for node in (*routing, *views) for name in node.outputs}
    experts = {name for node in (*inside, combine) for name in node.outputs}
    for node in producers.values():
        if not experts & set(node.outputs) and own & set(graph.varying(node)):
            own |= {name for name in node.outputs if len(graph.tensors[name].shape) > 1}
    inner = {name for node in between for name in node.outputs} - behind
    weight = next(name for name in products[0].tensor_ids() if graph.role(name) is TracedRole.PARAMETER)
    return ExpertRegion(
        source=_behind_views(source, producers),
        sent=dispatch.outputs[0],
        inside=frozenset(inner | {dispatch.outputs[0]}),
        behind=frozenset(behind),
        last=frozenset(last),
        combine=combine.outputs[0],
        own=frozenset(own),
        weight=weight,
        width=products[0].outputs[0],
    )


def _above(
    graph: FlatGraph, name: str, producers: Mapping[str, TracedNode], *, ends: tuple[str, ...], stop: str = ""
) -> list[TracedNode]:
    """Nodes that a tensor comes from in this layer, in their order, up to some operations or a tensor."""
    found: dict[int, TracedNode] = {}
    waiting = [name]
    while waiting:
        node = producers.get(current := waiting.pop())
        if current == stop or node is None or id(node) in found:
            continue
        found[id(node)] = node
        if node.op not in ends:
            waiting += graph.varying(node)
    places = {id(node): place for place, node in enumerate(producers.values())}
    return sorted(found.values(), key=lambda node: places[id(node)])


def _behind_views(name: str, producers: Mapping[str, TracedNode]) -> str:
    """The tensor that views look at."""
    while (node := producers.get(name)) is not None and node.op in SHAPES:
        name = next(node.tensor_ids())
    return name


def _views_above(name: str, producers: Mapping[str, TracedNode]) -> list[TracedNode]:
    found = []
    while (node := producers.get(name)) is not None and node.op in SHAPES:
        found.append(node)
        name = next(node.tensor_ids())
    return found


def _reaches_product(node: TracedNode, readers: Mapping[str, list[TracedNode]]) -> bool:
    """Whether another product of experts reads what a node gives, if only through others."""
    waiting, seen = [*node.outputs], set[str]()
    while waiting:
        for user in readers.get(waiting.pop(), ()):
            if user.op in GROUPED_PRODUCTS:
                return True
            if user.op != COMBINE and user.outputs[0] not in seen:
                seen.add(user.outputs[0])
                waiting += user.outputs
    return False


def _behind(nodes: list[TracedNode], last: set[str]) -> set[str]:
    """What comes from the last products."""
    found: set[str] = set()
    for node in nodes:
        if any(name in found or name in last for name in node.tensor_ids()):
            found.update(node.outputs)
    return found
