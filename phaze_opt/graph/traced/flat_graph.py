"""A traced model with its repeats written out: the form that normalising passes and segments work on."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from phaze_opt.graph.traced.traced_model import (
    ITERATION,
    Argument,
    TensorRef,
    TracedBody,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)


@dataclass(frozen=True, slots=True)
class FlatGraph:
    """Operations over tensors.

    Attributes:
        nodes: in topological order.
        tensors: all tensors by id; those that no node names are of no account.
        ends: ids of what backward starts from, and of what is not to be dropped.
        parameter_of: of a view of a parameter (its transpose, rows of it, 1 + it), the parameter.
        views: of a view that stands for several, these, from the tensor behind it on.
        lent: ids of views of parameters that are read and not held: another layer looked them up.
        values: defaults of the symbols.
    """

    nodes: tuple[TracedNode, ...]
    tensors: Mapping[str, TracedTensor]
    ends: tuple[str, ...]
    parameter_of: Mapping[str, str]
    views: Mapping[str, tuple[TracedNode, ...]] = field(default_factory=dict)
    lent: frozenset[str] = frozenset()
    values: Mapping[str, int] = field(default_factory=dict)

    def role(self, name: str) -> TracedRole:
        """Where a tensor comes from."""
        return self.tensors[name].role

    def parameter(self, name: str) -> str:
        """The parameter that a tensor of this role is, or is a view of; the one it is tied to, if it is tied."""
        base = self.parameter_of.get(name, name)
        return self.tensors[base].tied_to or base

    def varying(self, node: TracedNode) -> list[str]:
        """Ids of the arguments that depend on parameters and input: all but parameters, constants and data."""
        return [name for name in node.tensor_ids() if self.role(name) is TracedRole.ACTIVATION]

    def producers(self) -> dict[str, TracedNode]:
        """The node that gives each tensor."""
        return {name: node for node in self.nodes for name in node.outputs}

    def consumers(self) -> dict[str, list[TracedNode]]:
        """The nodes that read each tensor, each once, in their order."""
        found: dict[str, list[TracedNode]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.tensor_ids()):
                found.setdefault(name, []).append(node)
        return found

    def substituted(self, names: Mapping[str, str], *, dropped: Iterable[TracedNode] = ()) -> "FlatGraph":
        """The graph with tensors read under other names, and without some nodes."""
        gone = {id(node) for node in dropped}
        final = {name: _last(name, names) for name in names}
        nodes = tuple(renamed(node, final) for node in self.nodes if id(node) not in gone)
        return replace(self, nodes=nodes, ends=tuple(final.get(name, name) for name in self.ends))


def _last(name: str, names: Mapping[str, str]) -> str:
    while name in names:
        name = names[name]
    return name


def renamed(node: TracedNode, names: Mapping[str, str]) -> TracedNode:
    """A node that reads tensors under other names."""
    if not names or not any(name in names for name in node.tensor_ids()):
        return node
    attrs = tuple((key, _renamed(value, names)) for key, value in node.attrs)
    return replace(node, inputs=tuple(_renamed(value, names) for value in node.inputs), attrs=attrs)


def _renamed(value: Argument, names: Mapping[str, str]) -> Argument:
    if isinstance(value, TensorRef):
        return TensorRef(names.get(value.id, value.id))
    if isinstance(value, tuple):
        return tuple(_renamed(each, names) for each in value)
    return value


def flatten(model: TracedModel) -> FlatGraph:
    """All operations of a model, every run of a repeat with tensors of its own."""
    tensors = {tensor.id: tensor for tensor in model.tensors}
    bodies = {body.name: body for body in model.bodies}
    nodes: list[TracedNode] = []
    for position, step in enumerate(model.steps):
        if isinstance(step, TracedNode):
            nodes.append(step)
            continue
        for run in _runs(step, bodies[step.body], position):
            nodes += run.nodes
            tensors.update((tensor.id, tensor) for tensor in run.tensors)
    ends = (model.loss,) if model.loss else model.outputs[:1]
    return FlatGraph(tuple(nodes), tensors, ends, {}, values=model.symbols)


def _runs(step: TracedRepeat, body: TracedBody, position: int) -> Iterator[TracedBody]:
    """The body once for each run, its tensors under the names they have outside."""
    taken = dict(zip(body.inputs, step.inputs, strict=True))
    for run in range(step.count):
        names = {tensor.id: f"{step.body}@{position}.{run}.{tensor.id}" for tensor in body.tensors} | taken
        if run == step.count - 1:
            names |= dict(zip(body.outputs, step.outputs, strict=True))
        yield _run(body, names, str(step.first + run))
        taken |= {body.inputs[target]: names[body.outputs[source]] for source, target in step.carried}


def _run(body: TracedBody, names: Mapping[str, str], number: str) -> TracedBody:
    inside = [tensor for tensor in body.tensors if tensor.role is not TracedRole.INPUT]
    tensors = tuple(
        replace(
            tensor,
            id=names[tensor.id],
            fqn=tensor.fqn.replace(ITERATION, number),
            tied_to=names.get(tensor.tied_to, ""),
        )
        for tensor in inside
    )
    nodes = tuple(
        replace(
            renamed(node, names),
            outputs=tuple(names[name] for name in node.outputs),
            module=node.module.replace(ITERATION, number),
        )
        for node in body.nodes
    )
    return replace(body, tensors=tensors, nodes=nodes)
