"""Query, key and value of an attention from one product, as some software runs it, where they were traced as three."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION
from phaze_opt.graph.traced.normalise.regions import NORM, ROTARY
from phaze_opt.graph.traced.normalise.splits import SPLIT
from phaze_opt.graph.traced.normalise.vocabulary import SHAPES
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedTensor

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
