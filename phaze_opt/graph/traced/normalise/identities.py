"""First passes: plain names, nothing that changes no number, nothing behind a loss.

Names lose overloads, in-place forms and synonyms: ``aten.add_.Tensor`` is ``aten.add``. Casts between floating-point
types, copies, dropout of nothing and times one are elided before patterns are looked for: exported in fp32, a cast to
fp32 is the identity, and a residual may read either side of it. What follows a loss (sums and weights of single
numbers) costs nothing; every loss is an end of its own.
"""

from dataclasses import replace

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode

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

_LIKE = {
    "aten.type_as": "aten.to",
    "aten.expand_as": "aten.expand",
    "aten.view_as": "aten.view",
    "aten.reshape_as": "aten.view",
}


def plain_names(graph: FlatGraph) -> FlatGraph:
    """Every operation under one name; what takes the shape or type of another tensor does not depend on it."""
    return replace(graph, nodes=tuple(_plain_node(node) for node in graph.nodes))


def _plain_node(node: TracedNode) -> TracedNode:
    op = _plain(node.op)
    if op in _LIKE:
        return replace(node, op=_LIKE[op], inputs=node.inputs[:1])
    return replace(node, op=op)


def _plain(op: str) -> str:
    """``library.operation`` of ``library.operation.overload``."""
    library, _, rest = op.partition(".")
    base = rest.partition(".")[0]
    if base.endswith("_") and not base.startswith("_"):
        base = base.removesuffix("_")
    name = f"{library}.{base}" if base else library
    return _SYNONYMS.get(name, name)


_ALWAYS = {
    "aten.to",
    "aten._to_copy",
    "aten.float",
    "aten.clone",
    "aten.contiguous",
    "aten.detach",
    "aten.lift_fresh_copy",
    "aten.alias",
    "aten.positive",
    "prims.convert_element_type",
}

_BROADCAST = "aten.broadcast_tensors"


def elide_identities(graph: FlatGraph) -> FlatGraph:
    """The graph without them: their readers read what they read."""
    same: dict[str, str] = {}
    gone: list[TracedNode] = []
    for node in graph.nodes:
        given = node.inputs[0] if node.inputs else None
        if node.op == _BROADCAST and isinstance(given, tuple) and (pairs := _unchanged(node, graph)) is not None:
            same |= pairs
            gone.append(node)
        if isinstance(given, TensorRef) and _is_identity(node, graph):
            same[node.outputs[0]] = given.id
            gone.append(node)
    return graph.substituted(same, dropped=gone)


def _unchanged(node: TracedNode, graph: FlatGraph) -> dict[str, str] | None:
    """Results by what they are of, where tensors that are brought to one shape have it already."""
    pairs = dict(zip(node.outputs, node.tensor_ids(), strict=True))
    has_shapes = all(graph.tensors[result].shape == graph.tensors[given].shape for result, given in pairs.items())
    return pairs if has_shapes else None


def _is_identity(node: TracedNode, graph: FlatGraph) -> bool:
    given, result = graph.tensors[next(node.tensor_ids())], graph.tensors[node.outputs[0]]
    if node.op == "aten.dropout":
        return _is_idle_dropout(node)
    is_same_shape = given.shape == result.shape
    if node.op in _ALWAYS:
        return is_same_shape and given.dtype.is_float == result.dtype.is_float
    if node.op in ("aten.mul", "aten.div"):
        return is_same_shape and node.inputs[1:] in ((1,), (1.0,))
    return node.op in ("aten.view", "aten.expand") and is_same_shape


def _is_idle_dropout(node: TracedNode) -> bool:
    """Dropout with probability 0, or outside training."""
    return node.inputs[1:2] == (0.0,) or node.inputs[2:3] == (False,)


LOSSES = {
    "aten.cross_entropy_loss",
    "aten.nll_loss",
    "aten.nll_loss_nd",
    "aten.mse_loss",
    "aten.l1_loss",
    "aten.smooth_l1_loss",
    "aten.huber_loss",
    "aten.binary_cross_entropy",
    "aten.binary_cross_entropy_with_logits",
    "aten.kl_div",
}


def end_at_losses(graph: FlatGraph) -> FlatGraph:
    """The graph that ends with its losses; one that has none is left as it is."""
    producers = graph.producers()
    ends: list[str] = []
    gone: set[int] = set()
    for name in graph.ends:
        losses, passed = _losses_above(graph, producers, name)
        ends += losses
        gone.update(id(node) for node in passed)
    kept = tuple(node for node in graph.nodes if id(node) not in gone)
    return replace(graph, nodes=kept, ends=tuple(dict.fromkeys(ends)))


def _losses_above(graph: FlatGraph, producers: dict[str, TracedNode], end: str) -> tuple[list[str], list[TracedNode]]:
    """Losses that a number is made of, and what makes it of them; itself if anything else goes in."""
    losses: list[str] = []
    passed: list[TracedNode] = []
    waiting, seen = [end], {end}
    while waiting:
        name = waiting.pop()
        node = producers.get(name)
        if node is not None and node.op in LOSSES:
            losses.append(name)
            continue
        if node is None or graph.tensors[name].shape:
            return [end], []
        passed.append(node)
        waiting += [above for above in graph.varying(node) if above not in seen]
        seen.update(waiting)
    return (losses, passed) if losses else ([end], [])
