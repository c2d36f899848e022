"""Operators that software treats apart, found by where their tensors go, with the names that config-built blocks have.

A feed-forward ends with a product that splits its rows and whose columns come from no attention; the residual is the
sum that its result reaches.
"""

from collections import Counter
from collections.abc import Iterable

from phaze_opt.graph.mlp import COMBINE as COMBINED
from phaze_opt.graph.mlp import DISPATCH
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.expert_region import COMBINE
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.layer_sharding import LayerSharding, left_of, logits_of
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise import regions
from phaze_opt.graph.traced.normalise import vocabulary as words
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION
from phaze_opt.graph.traced.traced_model import TracedNode

LOGITS, QUERY_KEY_VALUE = "logits", "query_key_value"
MLP_DOWN, MLP_OUTPUT_BIAS, MLP_DROPOUT, MLP_RESIDUAL = "mlp_down", "mlp_output_bias", "mlp_dropout", "mlp_residual"
_ADD, _DROPOUT = "aten.add", "aten.dropout"
_BEHIND_MLP = words.SHAPES | {regions.SCALE, regions.NORM, "aten.layer_norm", "aten.rms_norm", COMBINE, _DROPOUT}


def known_names(graph: FlatGraph, layer: TracedLayer, sharding: LayerSharding) -> dict[str, str]:
    """Names of the operators of a layer that have known ones, by their first outputs."""
    downs = _downs(layer, sharding)
    found = {node.outputs[0]: MLP_DOWN for node in downs}
    for region in sharding.experts:
        found |= {region.sent: DISPATCH, region.combine: COMBINED}
    return (
        found
        | _behind(graph, layer, downs)
        | _combined(layer, sharding)
        | dict.fromkeys(logits_of(graph, layer), LOGITS)
    )


def _attention_sources(layer: TracedLayer, sharding: LayerSharding) -> list[frozenset[str]]:
    """The products that queries, keys and values come from, of each attention that is split."""
    outputs = (node.outputs[0] for node in layer.nodes if node.op == ATTENTION)
    return [sharding.splits[name].sources for name in outputs if name in sharding.splits]


def _combined(layer: TracedLayer, sharding: LayerSharding) -> dict[str, str]:
    """Products that make queries, keys and values of an attention at once."""
    alone = [sources for sources in _attention_sources(layer, sharding) if len(sources) == 1]
    return {name: QUERY_KEY_VALUE for sources in alone for name in sources}


def _downs(layer: TracedLayer, sharding: LayerSharding) -> list[TracedNode]:
    """The last products of feed-forwards; of experts alone, where a layer has some."""
    attended = frozenset().union(*_attention_sources(layer, sharding))
    downs = [
        node
        for node in layer.nodes
        if sharding.products.get(node.outputs[0]) is ShardedAs.ROWS
        and not attended & sharding.splits[left_of(node)].sources
    ]
    return [node for node in downs if node.op in words.GROUPED_PRODUCTS] or downs


def _behind(graph: FlatGraph, layer: TracedLayer, downs: Iterable[TracedNode]) -> dict[str, str]:
    """Dropouts and residuals behind feed-forwards; a sum that two of them reach is of their results alone."""
    readers: dict[str, list[TracedNode]] = {}
    for node in layer.nodes:
        for name in dict.fromkeys(node.tensor_ids()):
            readers.setdefault(name, []).append(node)
    found: dict[str, str] = {}

    def reached(name: str) -> str:
        """The sum that a tensor alone reaches; empty without one."""
        users = readers.get(name, [])
        if len(users) != 1 or name in layer.outputs:
            return ""
        (user,) = users
        output = user.outputs[0]
        if user.op == _ADD:
            return output if len(graph.varying(user)) == 2 else ""  # noqa: PLR2004
        if user.op not in _BEHIND_MLP:
            return ""
        if user.op == _DROPOUT:
            found[output] = MLP_DROPOUT
        return reached(output)

    sums = Counter(reached(node.outputs[0]) for node in downs)
    ends = {name if count == 1 else reached(name) for name, count in sums.items()}
    return found | {name: MLP_RESIDUAL for name in ends if name}
