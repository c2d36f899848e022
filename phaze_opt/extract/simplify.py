"""Taking out of a recorded graph what costs nothing on any machine: copies of what is there, constants, dead code."""

from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedTensor, renamed
from phaze_opt.graph.traced.traced_model import TensorRef, TracedNode, TracedRole

SAME = frozenset(
    f"aten.{name}" for name in ("alias", "contiguous", "clone", "lift_fresh", "lift_fresh_copy", "positive")
)
"""Operations that give what they take."""
CASTS = frozenset(f"aten.{name}" for name in ("to", "_to_copy", "type_as", "expand", "reshape", "view"))
"""Operations that give what they take where type and shape stay."""
COPY = "aten.copy"
"""Operation that gives its second argument in the shape and type of its first."""
FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *("new_zeros", "new_ones", "new_full", "new_empty", "zeros_like", "ones_like", "full_like", "empty_like"),
        *("rand_like", "randn_like"),
    )
)
"""Operations that take of a tensor its shape and type alone."""
DROPOUTS = frozenset({"aten.dropout.default", "aten.feature_dropout.default", "aten.alpha_dropout.default"})


def simplify(graph: RecordedGraph) -> RecordedGraph:
    """The graph without operations that cost nothing.

    These give what they take, depend on no parameter and no input (their results become constants), or give what no
    output needs.
    """
    for step in (_without_copies, _without_constants, _without_dead_code):
        graph = step(graph)
    return graph


def _without_copies(graph: RecordedGraph) -> RecordedGraph:
    names: dict[str, str] = {}
    kept: list[TracedNode] = []
    for node in graph.nodes:
        now = _with_names(node, names)
        same = _same_as(now, graph)
        if same is None:
            kept.append(now)
        else:
            names[now.outputs[0]] = same
    outputs = tuple(names.get(each, each) for each in graph.outputs)
    return RecordedGraph(graph.tensors, tuple(kept), outputs)


def _with_names(node: TracedNode, names: dict[str, str]) -> TracedNode:
    inputs = tuple(renamed(each, names) for each in node.inputs)
    attrs = tuple((key, renamed(each, names)) for key, each in node.attrs)
    return TracedNode(node.op, inputs, node.outputs, attrs, node.module)


def _same_as(node: TracedNode, graph: RecordedGraph) -> str | None:
    """The tensor among its arguments that an operation gives unchanged, if it does."""
    operation = node.op.rpartition(".")[0]
    source = node.inputs[1] if operation == COPY else node.inputs[0] if node.inputs else None
    if not isinstance(source, TensorRef) or len(node.outputs) != 1:
        return None
    before, after = graph.tensors[source.id], graph.tensors[node.outputs[0]]
    keeps = (before.dtype, before.shape) == (after.dtype, after.shape)
    is_off = node.op in DROPOUTS and (node.inputs[1] == 0 or node.inputs[2] is False)
    return source.id if operation in SAME or is_off or (keeps and operation in (*CASTS, COPY)) else None


def _without_constants(graph: RecordedGraph) -> RecordedGraph:
    roles = (TracedRole.PARAMETER, TracedRole.INPUT)
    depends = {name for name, tensor in graph.tensors.items() if tensor.role in roles}
    kept: list[TracedNode] = []
    tensors = dict(graph.tensors)
    for node in graph.nodes:
        if node.op.rpartition(".")[0] not in FRESH and any(each in depends for each in node.tensor_ids()):
            depends.update(node.outputs)
            kept.append(node)
            continue
        for name in node.outputs:
            old = tensors[name]
            tensors[name] = RecordedTensor(name, old.shape, old.dtype, TracedRole.CONSTANT)
    return RecordedGraph(tensors, tuple(kept), graph.outputs)


def _without_dead_code(graph: RecordedGraph) -> RecordedGraph:
    needed = set(graph.outputs)
    kept: list[TracedNode] = []
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
