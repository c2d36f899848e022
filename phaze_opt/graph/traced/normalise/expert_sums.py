"""What stands around the products of experts, as one operation each.

A bias of each expert is gathered for every row and added: that is the bias of the product. The sum of the experts'
results weighted by the router is a product, a reordering and a sum.
"""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise import vocabulary as words
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
