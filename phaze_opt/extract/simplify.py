"""Taking out of a recorded graph what costs nothing on any machine: copies of what is there, constants, dead code."""

from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedNode, RecordedTensor, renamed
from phaze_opt.graph.traced.traced_model import TensorRef, TracedRole

SAME = frozenset(f"aten.{name}" for name in ("alias", "contiguous", "clone", "lift_fresh", "lift_fresh_copy", "positive"))
"""Operations that give what they take."""
CASTS = frozenset(f"aten.{name}" for name in ("to", "_to_copy", "type_as", "expand"))
"""Operations that give what they take where type and shape stay."""
DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"})


def simplify(graph: RecordedGraph) -> RecordedGraph:
    """The graph without operations that give what they take, without those that depend on no parameter and no input
    (their results become constants), and without those that no output needs."""
    for step in (_without_copies, _without_constants, _without_dead_code):
        graph = step(graph)
    return graph


def _without_copies(graph: RecordedGraph) -> RecordedGraph:
    names: dict[str, str] = {}
    kept: list[RecordedNode] = []
    for node in graph.nodes:
        now = _with_names(node, names)
        if _is_copy(now, graph):
            first = next(now.tensor_ids())
            names[now.outputs[0]] = first
        else:
            kept.append(now)
    outputs = tuple(names.get(each, each) for each in graph.outputs)
    return RecordedGraph(graph.tensors, tuple(kept), outputs)


def _with_names(node: RecordedNode, names: dict[str, str]) -> RecordedNode:
    inputs = tuple(renamed(each, names) for each in node.inputs)
    attrs = tuple((key, renamed(each, names)) for key, each in node.attrs)
    return RecordedNode(node.op, inputs, node.outputs, attrs, node.module)


def _is_copy(node: RecordedNode, graph: RecordedGraph) -> bool:
    operation = node.op.rpartition(".")[0]
    if not node.inputs or not isinstance(node.inputs[0], TensorRef) or len(node.outputs) != 1:
        return False
    if operation in SAME:
        return True
    if node.op in DROPOUTS:
        rate, is_training = node.inputs[1], node.inputs[2]
        return rate == 0 or is_training is False
    before, after = graph.tensors[node.inputs[0].id], graph.tensors[node.outputs[0]]
    return operation in CASTS and (before.dtype, before.shape) == (after.dtype, after.shape)


def _without_constants(graph: RecordedGraph) -> RecordedGraph:
    roles = (TracedRole.PARAMETER, TracedRole.INPUT)
    depends = {name for name, tensor in graph.tensors.items() if tensor.role in roles}
    kept: list[RecordedNode] = []
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        if any(each in depends for each in node.tensor_ids()):
            depends.update(node.outputs)
            kept.append(node)
            continue
        for name in node.outputs:
            old = tensors[name]
            tensors[name] = RecordedTensor(name, old.shape, old.dtype, TracedRole.CONSTANT)
    return RecordedGraph(tensors, tuple(kept), graph.outputs)


def _without_dead_code(graph: RecordedGraph) -> RecordedGraph:
    needed = set(graph.outputs)
    kept: list[RecordedNode] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            needed.update(node.tensor_ids())
            kept.append(node)
    given = {name for node in kept for name in node.outputs}
    tensors = {
        name: tensor
        for name, tensor in graph.tensors.items()
        if name in needed or name in given or tensor.role is TracedRole.PARAMETER
    }
    return RecordedGraph(tensors, tuple(reversed(kept)), graph.outputs)

