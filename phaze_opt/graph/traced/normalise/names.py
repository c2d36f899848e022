"""Names of operations without overloads, in-place forms and synonyms: ``aten.add_.Tensor`` is ``aten.add``."""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph

_SYNONYMS = {
    "aten._softmax": "aten.softmax",
    "aten._log_softmax": "aten.log_softmax",
    "aten.special_softmax": "aten.softmax",
    "aten._unsafe_view": "aten.view",
    "aten.reshape": "aten.view",
    "aten._reshape_alias": "aten.view",
    "aten.native_dropout": "aten.dropout",
    "aten.feature_dropout": "aten.dropout",
    "aten.alpha_dropout": "aten.dropout",
    "aten.true_divide": "aten.div",
    "aten.divide": "aten.div",
    "aten.multiply": "aten.mul",
    "aten.subtract": "aten.sub",
    "aten.negative": "aten.neg",
    "aten.concat": "aten.cat",
    "aten.concatenate": "aten.cat",
    "aten.swapaxes": "aten.transpose",
    "aten.numpy_T": "aten.t",
    "aten.broadcast_to": "aten.expand",
    "aten.arctan": "aten.atan",
    "aten.split_with_sizes": "aten.split",
    "aten.unsafe_split": "aten.split",
    "aten.unsafe_chunk": "aten.chunk",
}


def plain_names(graph: FlatGraph) -> FlatGraph:
    """Every operation under one name."""
    return replace(graph, nodes=tuple(replace(node, op=_plain(node.op)) for node in graph.nodes))


def _plain(op: str) -> str:
    """``library.operation`` of ``library.operation.overload``."""
    library, _, rest = op.partition(".")
    base = rest.partition(".")[0]
    if base.endswith("_") and not base.startswith("_"):
        base = base.removesuffix("_")
    name = f"{library}.{base}" if base else library
    return _SYNONYMS.get(name, name)
