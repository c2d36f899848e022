"""Experts split by channels: their tokens are gathered before they are dispatched, and summed up after experts.

A token goes to several experts. Gathered before the dispatch it is sent once, and sums over channels commute with the
router's weighted sum, so that a token comes back once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise.expert_sums import COMBINE
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS, SHAPES
from phaze_opt.graph.traced.traced_model import TracedNode

_DISPATCHES = {"aten.index", "aten.index_select", "aten.gather"}


@dataclass(frozen=True, slots=True)
class ExpertRegion:
    """What lies between dispatch and weighted sum.

    Attributes:
        whole: ids of tensors of which every device has all rows.
        gathered: outputs of the dispatches and of the weighted sums, which read tokens of all devices.
        sums: outputs of the weighted sums, whose results are summed over the group.
    """

    whole: frozenset[str]
    gathered: frozenset[str]
    sums: frozenset[str]


def expert_region(layer: TracedLayer, products: Mapping[str, ShardedAs]) -> ExpertRegion:
    """The region of a layer whose products are split so."""
    readers: dict[str, list[TracedNode]] = {}
    for node in layer.nodes:
        for name in dict.fromkeys(node.tensor_ids()):
            readers.setdefault(name, []).append(node)
    whole: set[str] = set()
    dispatches: set[str] = set()
    sums: set[str] = set()
    for node in layer.nodes:
        output = node.outputs[0]
        views, users = _read_through_views(output, readers)
        if not users or output in layer.outputs:
            continue
        if node.op in _DISPATCHES and all(_is_split(user, products, ShardedAs.COLUMNS) for user in users):
            whole |= {output, *views}
            dispatches.add(output)
        elif _is_split(node, products, ShardedAs.ROWS) and all(user.op == COMBINE for user in users):
            whole |= {output, *views}
            sums.update(user.outputs[0] for user in users)
    return ExpertRegion(frozenset(whole), frozenset(dispatches | sums), frozenset(sums))


def _is_split(node: TracedNode, products: Mapping[str, ShardedAs], kind: ShardedAs) -> bool:
    return node.op in GROUPED_PRODUCTS and products.get(node.outputs[0]) is kind


def _read_through_views(name: str, readers: Mapping[str, list[TracedNode]]) -> tuple[list[str], list[TracedNode]]:
    """Views of a tensor, and what reads it or them."""
    views: list[str] = []
    users: list[TracedNode] = []
    for node in readers.get(name, ()):
        if node.op in SHAPES:
            views.append(node.outputs[0])
            users += readers.get(node.outputs[0], ())
        else:
            users.append(node)
    return views, users
