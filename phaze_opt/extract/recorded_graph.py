"""A graph as one export gives it, without what costs nothing on any machine.

Its arguments are those of a traced model, its shapes plain numbers. An operation that changes a tensor in place is one
that gives a new tensor, which is read in place of the old; a change of a slice makes a new tensor of the whole. A
tensor that was changed through another view of it has no value that can be written down; it may only not be read
again. Copies of what is there, constants and dead code are taken out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedDtype, TracedNode, TracedRole


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor at given sizes; attributes as of `graph.traced.traced_model.TracedTensor`."""

    id: str
    shape: tuple[int, ...]
    dtype: TracedDtype
    role: TracedRole
    fqn: str = ""


@dataclass(frozen=True, slots=True)
class RecordedGraph:
    """Operations in topological order, tensors by their ids, and the ids of what it ends with.

    Attributes:
        tensors: by their ids.
        nodes: in topological order.
        outputs: ids of what it ends with.
        num_questions: how often the model's code asked for the truth of a tensor, and was told no.
    """

    tensors: Mapping[str, RecordedTensor]
    nodes: tuple[TracedNode, ...]
    outputs: tuple[str, ...]
    num_questions: int = 0


def renamed(value: Argument, names: Mapping[str, str]) -> Argument:
    """An argument with its tensors renamed; those without a new name keep theirs."""
    if isinstance(value, TensorRef):
        return TensorRef(names.get(value.id, value.id))
    if isinstance(value, tuple):
        return tuple(renamed(each, names) for each in value)
    return value


VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        *("alias", "chunk", "detach", "expand", "flatten", "narrow", "permute", "reshape", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view"),
    )
)
"""Operations whose results may share memory with their first argument."""
SCATTERS = {"aten.slice.Tensor": "aten.slice_scatter.default", "aten.select.int": "aten.select_scatter.default"}
"""What puts a part back where a view took it from."""


@dataclass(frozen=True, slots=True)
class SharedView:
    """How a tensor was taken from another: the operation and its arguments but the first."""

    of: str
    op: str
    arguments: tuple[Argument, ...]


@dataclass(slots=True)
class Storage:
    """What tensors have become.

    Attributes:
        put_back: records an operation that puts a changed part into a whole: takes its name, the whole, the part and
            the arguments of the view, and gives the new whole.
        depends: whether a tensor comes of a parameter or an input; the values of others do not count.
    """

    put_back: Callable[[str, str, str, tuple[Argument, ...]], str]
    depends: Callable[[str], bool]
    _views: dict[str, SharedView] = field(default_factory=dict)
    _changed: dict[str, str] = field(default_factory=dict)
    _stale: dict[str, str] = field(default_factory=dict)

    def see(self, op: str, inputs: Sequence[Argument], outputs: Sequence[str]) -> None:
        """Remember an operation whose results may be views."""
        if op.rpartition(".")[0] in VIEWS and isinstance(inputs[0], TensorRef):
            view = SharedView(inputs[0].id, op, tuple(inputs[1:]))
            self._views |= dict.fromkeys(outputs, view)

    def change(self, old: str, new: str, *, place: str) -> None:
        """A tensor was changed in place: ``new`` is what it is now; ``place`` is named if that cannot be followed."""
        self._changed[old] = new
        for name, view in self._views.items():
            if view.of == old and name not in self._changed and self.depends(name):
                self._stale[name] = place
        view_of_old = self._views.get(old)
        if view_of_old is None:
            return
        whole = self.latest(view_of_old.of)
        scatter = SCATTERS.get(view_of_old.op)
        if scatter is not None:
            self.change(whole, self.put_back(scatter, whole, new, view_of_old.arguments), place=place)
        elif self.depends(whole) or self.depends(new):
            self._stale[whole] = place

    def latest(self, name: str) -> str:
        """The tensor that now is what another was.

        Raises:
            InputError: it was changed through a view.
        """
        while name in self._changed:
            name = self._changed[name]
        if name in self._stale:
            message = f"{self._stale[name]} changes a tensor in place through another shape of it, and it is read again"
            sentence = f"{message}; write that part of the model so that it makes a new tensor"
            raise InputError(sentence)
        return name


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
    return replace(graph, nodes=tuple(kept), outputs=outputs)


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
    return replace(graph, tensors=tensors, nodes=tuple(kept))


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
    return replace(graph, tensors=tensors, nodes=tuple(reversed(kept)))
