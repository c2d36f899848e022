"""Cuts of a flat graph into the finest chain of segments: between them few tensors cross.

The order of the nodes is fixed. A border may stand where one tensor crosses, besides tensors that live long: read at
several places far apart, such as an encoder's result that every decoder layer reads. All that crosses is sent on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.vocabulary import HEAVY
from phaze_opt.graph.traced.traced_model import TracedNode, TracedRole

LONG_LIFE = 48
"""Nodes between first and last reader from which on a tensor with several readers lives long."""
MAX_LONG_LIVED = 4
"""Tensors that live long that may cross a border besides the one."""
MIN_TOWER_PRODUCTS = 2
"""Products that two towers have at least: query, key and value of an attention are none."""
MIN_TOWER_SHARE = 1 / 16
"""Share of the products of the nodes looked at that two towers have at least: a decoder's first attention, which may
run beside all of the encoder, is none."""
MAX_BLOCK_PRODUCTS = 8
"""Products up to which a tower inside a layer is one block; larger ones, and towers of a model, are cut as models."""
MAX_HEAD = 8
"""Operations, none of them a product, that towers may have before them in common."""


def cut_segments(graph: FlatGraph) -> list[tuple[TracedNode, ...]]:
    """Runs of nodes in their order, as short as the rule allows."""
    lives = _lives(graph)
    long = {name for name, (_, readers) in lives.items() if _is_long_lived(readers)}
    borders = _borders(lives, long, len(graph.nodes))
    segments, start = [], 0
    for border in [*borders, len(graph.nodes)]:
        segments.append(graph.nodes[start:border])
        start = border
    return [segment for segment in segments if segment]


def _lives(graph: FlatGraph) -> dict[str, tuple[int, list[int]]]:
    """Of each tensor that varies where it is made and where it is read."""
    lives: dict[str, tuple[int, list[int]]] = {}
    for index, node in enumerate(graph.nodes):
        for name in dict.fromkeys(node.tensor_ids()):
            if name in lives:
                lives[name][1].append(index)
        for name in node.outputs:
            if graph.role(name) is TracedRole.ACTIVATION:
                lives[name] = (index, [])
    for name in set(graph.ends) - losses_of(graph):
        if name in lives:
            lives[name][1].append(len(graph.nodes))
    return lives


def losses_of(graph: FlatGraph) -> set[str]:
    """Ends of a graph that are losses: backward starts there, and nothing is given back."""
    return {name for node in graph.nodes if node.op in LOSSES for name in node.outputs} & set(graph.ends)


def _is_long_lived(readers: Sequence[int]) -> bool:
    return len(readers) > 2 and readers[-1] - readers[0] >= LONG_LIFE


def _borders(lives: Mapping[str, tuple[int, list[int]]], long: set[str], num_nodes: int) -> list[int]:
    """Positions before which a border stands."""
    changes = [[0, 0] for _ in range(num_nodes + 2)]
    for name, (made, readers) in lives.items():
        if readers:
            changes[made + 1][name in long] += 1
            changes[readers[-1] + 1][name in long] -= 1
    borders = []
    short_lived = long_lived = 0
    for position in range(num_nodes):
        short_lived += changes[position][0]
        long_lived += changes[position][1]
        if position and short_lived <= 1 and long_lived <= MAX_LONG_LIVED:
            borders.append(position)
    return borders


@dataclass(frozen=True, slots=True)
class Towers:
    """Runs of nodes that do not read one another, what all of them stand behind, and what is behind them."""

    head: tuple[TracedNode, ...]
    towers: tuple[tuple[TracedNode, ...], ...]
    tail: tuple[TracedNode, ...]


def find_towers(nodes: Sequence[TracedNode]) -> Towers | None:
    """Towers among some nodes: two of several products at least; of all that may be apart, the longest ones.

    Args:
        nodes: in topological order.
    """
    for num_head in range(min(MAX_HEAD, len(nodes)) + 1):
        if num_head and _is_product(nodes[num_head - 1]):
            return None
        rest = nodes[num_head:]
        group, num_apart = _grow_groups(rest, least=max(MIN_TOWER_PRODUCTS, MIN_TOWER_SHARE * num_products(rest)))
        if num_apart:
            return _split(nodes[:num_head], rest, group, num_apart)
    return None


def num_products(nodes: Sequence[TracedNode]) -> int:
    """Products, convolutions and recurrences among some nodes."""
    return sum(map(_is_product, nodes))


def _is_product(node: TracedNode) -> bool:
    return node.op in HEAVY


def _grow_groups(nodes: Sequence[TracedNode], *, least: float) -> tuple[list[int], int]:
    """Group of each of the first nodes that are the most between which two towers are apart, and how many these are."""
    group: list[int] = []
    products: dict[int, int] = {}
    maker: dict[str, int] = {}
    found, num_apart = list[int](), 0
    for number, node in enumerate(nodes):
        joined = {group[maker[name]] for name in node.tensor_ids() if name in maker}
        own = min(joined, default=number)
        group = [own if each in joined else each for each in group] if len(joined) > 1 else group
        group.append(own)
        products[own] = sum(products.pop(each, 0) for each in joined) + _is_product(node)
        maker.update(dict.fromkeys(node.outputs, number))
        if sum(count >= least for count in products.values()) > 1:
            found, num_apart = group[:], number + 1
    return found, num_apart


def _split(head: Sequence[TracedNode], rest: Sequence[TracedNode], group: Sequence[int], num_apart: int) -> Towers:
    """Groups with a product are towers; other nodes stand behind all of them."""
    members: dict[int, list[TracedNode]] = {}
    for node, own in zip(rest[:num_apart], group, strict=True):
        members.setdefault(own, []).append(node)
    towers = [tuple(nodes) for nodes in members.values() if any(map(_is_product, nodes))]
    inside = {id(node) for nodes in towers for node in nodes}
    return Towers(tuple(head), tuple(towers), tuple(node for node in rest if id(node) not in inside))
