"""Operations that change no number: casts between floating-point types, copies, dropout of nothing, times one.

A cast is elided first: exported in fp32, a cast to fp32 is the identity, and a residual may read either side of it.
"""

from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode

_ALWAYS = {
    "aten.to",
    "aten._to_copy",
    "aten.type_as",
    "aten.float",
    "aten.clone",
    "aten.contiguous",
    "aten.detach",
    "aten.lift_fresh_copy",
    "aten.alias",
    "aten.positive",
    "aten.expand_as",
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
