"""Attention written as products and a softmax, or by the framework's function, as one operation.

Between the product of queries and keys and the softmax, and between that and the product with values, there may be
scales, caps, masks, biases, dropout and moves. A mask that is constant costs nothing; a bias that is learned or
computed is an input of its own. Query, key and value may be made by one product, as some software runs it, where they
were traced as three.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.regions import NORM, ROTARY
from phaze_opt.graph.traced.normalise.views import SPLIT
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedNode, TracedRole, TracedTensor

ATTENTION = "phaze.attention"
DROPOUT, CAP, WINDOW, SINKS, UNMASKED = "dropout", "cap", "window", "sinks", "unmasked"
"""Attributes: probabilities are dropped, scores are capped, keys that a query meets at most, the last input is a score
of each head besides, no mask hides any key."""
_FUNCTION = "aten.scaled_dot_product_attention"
_PRODUCTS = ("aten.matmul", "aten.bmm", "aten.baddbmm")
_SOFTMAX = "aten.softmax"


def join_attention(graph: FlatGraph) -> FlatGraph:
    """The graph with every attention as one operation of query, key, value and biases."""
    search = _Search(graph)
    made: dict[int, TracedNode] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        if node.op in (_FUNCTION, ATTENTION):
            made[id(node)] = _of_function(graph, node)
        elif node.op == _SOFTMAX and (found := search.around(node)) is not None:
            made[id(found.last)] = found.node()
            gone.update(id(each) for each in found.inside)
    nodes = tuple(made.get(id(node), node) for node in graph.nodes if id(node) not in gone)
    return _without_scales(replace(graph, nodes=nodes))


def _of_function(graph: FlatGraph, node: TracedNode) -> TracedNode:
    """An attention that the trace has as one operation, with the attributes that are priced."""
    given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), node.inputs, strict=False))
    given |= dict(node.attrs)
    added = (given.get("attn_mask"), *node.inputs[4:5])
    biases = tuple(
        each
        for each in added
        if isinstance(each, TensorRef) and graph.role(each.id) in (TracedRole.ACTIVATION, TracedRole.PARAMETER)
    )
    named: list[tuple[str, Argument]] = []
    if node.op == ATTENTION and isinstance((*node.inputs, *(None,) * 5)[4], TensorRef):
        named.append((SINKS, True))
    if given.get("softcap") is not None:
        named.append((CAP, True))
    probability = given.get("dropout_p", 0.0)
    if isinstance(probability, float | int) and probability > 0:
        named.append((DROPOUT, True))
    if isinstance(given.get(WINDOW), int):
        named.append((WINDOW, given[WINDOW]))
    is_hidden = isinstance(given.get("attn_mask"), TensorRef) and not biases
    if not (given.get("is_causal") or is_hidden or given.get(WINDOW)):
        named.append((UNMASKED, True))
    return TracedNode(ATTENTION, (*node.inputs[:3], *biases), node.outputs, tuple(named), node.module)


def _without_scales(graph: FlatGraph) -> FlatGraph:
    """The graph in which the scale of queries, or of keys, by a number is a part of their attention."""
    producers, consumers = graph.producers(), graph.consumers()
    same: dict[str, str] = {}
    gone: list[TracedNode] = []
    for node in graph.nodes:
        if node.op != ATTENTION:
            continue
        for operand in node.inputs[:2]:
            source = producers.get(operand.id) if isinstance(operand, TensorRef) else None
            while source is not None and source.op in words.SHAPES and len(consumers[source.outputs[0]]) == 1:
                source = producers.get(next(source.tensor_ids()))
            if source is not None and _is_scale(source) and len(consumers[source.outputs[0]]) == 1:
                same[source.outputs[0]] = next(source.tensor_ids())
                gone.append(source)
    return graph.substituted(same, dropped=gone)


def _is_scale(node: TracedNode) -> bool:
    """A product with, or a quotient by, a number."""
    return node.op in ("aten.mul", "aten.div") and isinstance(node.inputs[1], float | int)


@dataclass
class _Found:
    """An attention as it is put together."""

    first: TracedNode
    last: TracedNode
    inside: list[TracedNode] = field(default_factory=list)
    biases: list[str] = field(default_factory=list)
    has_dropout: bool = False
    has_cap: bool = False

    def node(self) -> TracedNode:
        """The whole as one operation."""
        operands = [argument for argument in self.first.inputs if isinstance(argument, TensorRef)]
        value = [argument for argument in self.last.inputs if isinstance(argument, TensorRef)][-1]
        attrs: tuple[tuple[str, Argument], ...] = ((CAP, True),) if self.has_cap else ()
        attrs = (*attrs, (DROPOUT, True)) if self.has_dropout else attrs
        biases = tuple(TensorRef(name) for name in self.biases)
        return TracedNode(ATTENTION, (*operands[-2:], value, *biases), self.last.outputs, attrs, self.last.module)


class _Search:
    """What stands around a softmax."""

    def __init__(self, graph: FlatGraph) -> None:
        self._graph = graph
        self._producers = graph.producers()
        self._consumers = graph.consumers()

    def around(self, softmax: TracedNode) -> _Found | None:
        """The attention that a softmax is the middle of, if it is of one."""
        found = _Found(softmax, softmax, [softmax])
        if self._follow_up(softmax, found) and self._follow_down(softmax, found):
            found.inside.append(found.first)
            return found
        return None

    def _follow_up(self, node: TracedNode, found: _Found) -> bool:
        """From the softmax to the product of queries and keys, through what only serves the scores."""
        name = self._scores(node, found)
        while name is not None:
            above = self._producers.get(name)
            if above is None or len(self._consumers[name]) != 1:
                return False
            if above.op in _PRODUCTS:
                found.first = above
                return len([each for each in above.inputs if isinstance(each, TensorRef)]) >= 2
            if above.op not in words.ELEMENTWISE | words.SHAPES:
                return False
            found.has_cap = found.has_cap or above.op == "aten.tanh"
            found.inside.append(above)
            name = self._scores(above, found)
        return False

    def _scores(self, node: TracedNode, found: _Found) -> str | None:
        """Of what a node reads, the scores: what is made of a product; other tensors are biases."""
        names = self._graph.varying(node)
        scores = [name for name in names if self._is_made_of_product(name)]
        if len(scores) != 1:
            return None
        found.biases += [name for name in names if name != scores[0]]
        learned = [name for name in node.tensor_ids() if self._graph.role(name) is TracedRole.PARAMETER]
        found.biases += learned
        return scores[0]

    def _is_made_of_product(self, name: str) -> bool:
        """Whether a chain of elementwise operations and moves, each with one varying input, leads to a product."""
        for _ in range(12):
            node = self._producers.get(name)
            if node is None:
                return False
            if node.op in _PRODUCTS:
                return all(self._graph.role(each) is TracedRole.ACTIVATION for each in node.tensor_ids())
            names = self._graph.varying(node)
            if node.op not in words.ELEMENTWISE | words.SHAPES or not names:
                return False
            name = names[0]
        return False

    def _follow_down(self, node: TracedNode, found: _Found) -> bool:
        """From the softmax to the product with values."""
        while True:
            users = self._consumers.get(node.outputs[0], [])
            if len(users) != 1 or len(users[0].outputs) != 1 and users[0].op != "aten.dropout":
                return False
            last, node = node, users[0]
            if node.op in _PRODUCTS:
                found.last = node
                return node.inputs[:1] == (TensorRef(last.outputs[0]),)
            if node.op == "aten.dropout":
                found.has_dropout = True
            elif node.op not in words.SHAPES:
                return False
            found.inside.append(node)


_LINEAR = "aten.linear"
_BETWEEN = SHAPES | {ROTARY, NORM}


def combine_qkv(graph: FlatGraph) -> FlatGraph:
    """The graph with one product for the three of every attention that read one tensor, all or none with a bias."""
    producers, tensors = graph.producers(), dict(graph.tensors)
    order = {id(node): index for index, node in enumerate(graph.nodes)}
    made: dict[int, tuple[TracedNode, TracedNode]] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        products = _products(node, producers) if node.op == ATTENTION else []
        if len(products) != 3 or any(id(each) in gone or id(each) in made for each in products):
            continue
        products.sort(key=lambda each: order[id(each)])
        made[id(products[0])] = _joined(products, tensors)
        gone.update(id(each) for each in products[1:])
    nodes = tuple(each for node in graph.nodes if id(node) not in gone for each in made.get(id(node), (node,)))
    return replace(graph, nodes=nodes, tensors=tensors)


def _products(node: TracedNode, producers: Mapping[str, TracedNode]) -> list[TracedNode]:
    """The three products that an attention's query, key and value come from, if they read one tensor."""
    found: list[TracedNode] = []
    for operand in node.inputs[:3]:
        source = producers.get(operand.id) if isinstance(operand, TensorRef) else None
        while source is not None and source.op in _BETWEEN:
            source = producers.get(next(source.tensor_ids()))
        if source is None or source.op != _LINEAR or source in found:
            return []
        found.append(source)
    alike = {(each.inputs[0], len(_weights(each))) for each in found}
    return found if len(alike) == 1 else []


def _weights(node: TracedNode) -> list[str]:
    """Weight and bias of a product."""
    return [each.id for each in node.inputs[1:3] if isinstance(each, TensorRef)]


def _joined(products: list[TracedNode], tensors: dict[str, TracedTensor]) -> tuple[TracedNode, TracedNode]:
    """One product and the split of its result; new tensors are added."""
    first = products[0]
    parameters = []
    for parts in zip(*(_weights(each) for each in products), strict=True):
        name = "+".join(parts)
        size = _sum(tensors[part].shape[0] for part in parts)
        whole = tensors[parts[0]]
        tensors[name] = replace(whole, id=name, shape=(size, *whole.shape[1:]), fqn=name, tied_to="")
        parameters.append(TensorRef(name))
    outputs = tuple(each.outputs[0] for each in products)
    result = "+".join(outputs)
    given = tensors[outputs[0]]
    width = _sum(tensors[name].shape[-1] for name in outputs)
    tensors[result] = replace(given, id=result, shape=(*given.shape[:-1], width))
    product = TracedNode(_LINEAR, (first.inputs[0], *parameters), (result,), (), first.module)
    return product, TracedNode(SPLIT, (TensorRef(result),), outputs, (), first.module)


def _sum(sizes: Iterable[Polynomial]) -> Polynomial:
    total = Polynomial.of({})
    for size in sizes:
        total = total.plus(size)
    return total
