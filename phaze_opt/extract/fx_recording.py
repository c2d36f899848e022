"""An exported program of torch to a recorded graph: subgraphs inlined, operations that change nothing in place."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.extract.recorded_graph import RecordedGraph, RecordedTensor, Storage
from phaze_opt.extract.training_step import ROOT, without_root
from phaze_opt.graph.traced.traced_model import Argument, TensorRef, TracedDtype, TracedNode, TracedRole

ELSEWHERE = frozenset({"device", "layout", "pin_memory", "memory_format", "generator", "non_blocking"})
"""Arguments that say where a tensor lies, not what it holds."""
OWN = "phaze"
"""Namespace of the operations that stand for what the framework has none for."""


def record_program(program: Any, names: Mapping[str, str]) -> RecordedGraph:
    """The graph of a program of ``torch.export``.

    Args:
        program: whose inputs and shapes are concrete.
        names: the one name that counts of each name of a parameter: tied weights are one tensor.

    Raises:
        InputError: an operation changes a view of a tensor that is read again, or has no name outside of Python.
    """
    return _Recorder(program, names).graph()


class _Recorder:
    """Goes over a program once."""

    def __init__(self, program: Any, names: Mapping[str, str]) -> None:
        self._program = program
        self._names = names
        self._tensors: dict[str, RecordedTensor] = {}
        self._nodes: list[TracedNode] = []
        self._storage = Storage(self._put_back, self._depends)

    def graph(self) -> RecordedGraph:
        known = self._placeholders()
        outputs = self._walk(self._program.graph_module, known, path="")
        results = tuple(each.id for each in _flat(outputs) if isinstance(each, TensorRef))
        mutated = len(self._program.graph_signature.buffers_to_mutate)
        return RecordedGraph(self._tensors, tuple(self._nodes), results[mutated:])

    def _placeholders(self) -> dict[Any, Any]:
        """Inputs, parameters and buffers, by node; one tensor a parameter, however many names it has."""
        known: dict[Any, Any] = {}
        parameters: dict[str, TensorRef] = {}
        for node, (role, target, is_tensor) in zip(self._inputs(), self._specs(), strict=True):
            is_named = role in (TracedRole.PARAMETER, TracedRole.BUFFER)
            fqn = without_root(self._names.get(target, target)) if is_named else ""
            if not is_tensor:
                known[node] = None
            elif role is TracedRole.PARAMETER and fqn in parameters:
                known[node] = parameters[fqn]
            else:
                known[node] = parameters[fqn] = self._declare(node.name, node.meta["val"], role, fqn)
        return known

    def _inputs(self) -> list[Any]:
        return [node for node in self._program.graph_module.graph.nodes if node.op == "placeholder"]

    def _specs(self) -> list[tuple[TracedRole, str, bool]]:
        """Role and qualified name of each placeholder, and whether it is a tensor."""
        from torch.export.graph_signature import InputKind, TensorArgument

        roles = {
            InputKind.PARAMETER: TracedRole.PARAMETER,
            InputKind.BUFFER: TracedRole.BUFFER,
            InputKind.CONSTANT_TENSOR: TracedRole.CONSTANT,
            InputKind.USER_INPUT: TracedRole.INPUT,
        }
        return [
            (roles.get(spec.kind, TracedRole.CONSTANT), spec.target or "", isinstance(spec.arg, TensorArgument))
            for spec in self._program.graph_signature.input_specs
        ]

    def _declare(self, name: str, value: Any, role: TracedRole, fqn: str = "") -> TensorRef:
        unique = self._unique(name.replace(f"_{ROOT}_", "_", 1))
        shape = tuple(int(size) for size in value.shape)
        self._tensors[unique] = RecordedTensor(unique, shape, dtype_of(value.dtype), role, fqn)
        return TensorRef(unique)

    def _unique(self, name: str) -> str:
        unique, number = name, 1
        while unique in self._tensors:
            unique, number = f"{name}.{number}", number + 1
        return unique

    def _walk(self, graph_module: Any, known: dict[Any, Any], *, path: str) -> Any:
        """Record a graph; ``known`` holds values by node and grows."""
        for node in graph_module.graph.nodes:
            if node.op == "output":
                return self._value(node.args[0], known)
            if node.op == "get_attr":
                known[node] = self._attribute(graph_module, node)
            elif node.op == "call_function":
                known[node] = self._call(node, known, path=_module_path(node) or path)
        return ()

    def _attribute(self, graph_module: Any, node: Any) -> Any:
        """A subgraph, or a tensor that the program carries."""
        value = graph_module
        for part in node.target.split("."):
            value = getattr(value, part)
        return self._declare(node.name, value, TracedRole.CONSTANT) if hasattr(value, "dtype") else value

    def _call(self, node: Any, known: dict[Any, Any], *, path: str) -> Any:
        target = node.target
        if target is operator.getitem:
            return self._value(node.args[0], known)[node.args[1]]
        arguments = [self._value(each, known) for each in node.args]
        inner = next((each for each in arguments if hasattr(each, "graph")), None)
        if inner is not None:
            given = arguments[arguments.index(inner) + 1 :]
            places = [each for each in inner.graph.nodes if each.op == "placeholder"]
            return self._walk(inner, dict(zip(places, given, strict=False)), path=path)
        if not hasattr(target, "_schema"):
            message = (
                f"operation '{getattr(target, '__name__', target)}' in module '{path}' is Python's, not the framework's"
            )
            sentence = f"{message}; write that part of the model with tensors alone"
            raise InputError(sentence)
        keywords = {key: self._value(each, known) for key, each in node.kwargs.items()}
        return self._operation(node, arguments, keywords, path=path)

    def _operation(self, node: Any, arguments: list[Any], keywords: dict[str, Any], *, path: str) -> Any:
        """Record one operation and give its value: a tensor, several, or nothing."""
        name, changes = _functional_name(node.target)
        results = self._results(node)
        if not any(isinstance(each, TensorRef) for each in results):
            return None
        inputs, attrs = _by_schema(node.target, arguments, keywords)
        outputs = tuple(each.id for each in results if each is not None)
        self._nodes.append(TracedNode(name, inputs, outputs, attrs, path))
        self._storage.see(name, inputs, outputs)
        first = inputs[0] if inputs else None
        if changes and isinstance(first, TensorRef):
            self._storage.change(first.id, outputs[0], place=f"operation '{name}' in module '{path}'")
        return results[0] if _is_tensor(node.meta["val"]) else results

    def _put_back(self, op: str, whole: str, part: str, arguments: tuple[Argument, ...]) -> str:
        """Record that a part was put into a whole; gives the new whole."""
        old, module = self._tensors[whole], self._nodes[-1].module
        name = self._unique(f"{whole}.changed")
        self._tensors[name] = RecordedTensor(name, old.shape, old.dtype, TracedRole.ACTIVATION)
        self._nodes.append(TracedNode(op, (TensorRef(whole), TensorRef(part), *arguments), (name,), module=module))
        return name

    def _depends(self, name: str) -> bool:
        """Whether a tensor comes of a parameter or an input."""
        makers = {output: node for node in self._nodes for output in node.outputs}
        pending, seen = [name], {name}
        while pending:
            each = pending.pop()
            if self._tensors[each].role in (TracedRole.PARAMETER, TracedRole.INPUT):
                return True
            before = set(makers[each].tensor_ids()) - seen if each in makers else set()
            seen |= before
            pending += before
        return False

    def _results(self, node: Any) -> list[TensorRef | None]:
        value = node.meta.get("val")
        values = [value] if _is_tensor(value) else list(value) if isinstance(value, Sequence) else []
        names = [node.name] if _is_tensor(value) else [f"{node.name}.{index}" for index in range(len(values))]
        return [
            self._declare(name, each, TracedRole.ACTIVATION) if _is_tensor(each) else None
            for name, each in zip(names, values, strict=True)
        ]

    def _value(self, argument: Any, known: Mapping[Any, Any]) -> Any:
        """An argument with nodes replaced by their values, literals by what a file can hold."""
        if hasattr(argument, "op") and hasattr(argument, "meta"):
            return self._latest(known[argument])
        if isinstance(argument, list | tuple):
            return tuple(self._value(each, known) for each in argument)
        return literal_of(argument)

    def _latest(self, value: Any) -> Any:
        """What a tensor has become by changes in place."""
        if isinstance(value, list | tuple):
            return tuple(self._latest(each) for each in value)
        return TensorRef(self._storage.latest(value.id)) if isinstance(value, TensorRef) else value


def dtype_of(dtype: Any) -> TracedDtype:
    """The element type of a tensor.

    Raises:
        InputError: a file has no such type.
    """
    name = str(dtype).removeprefix("torch.")
    name = "float8" if name.startswith("float8") else name
    if name not in set(TracedDtype):
        message = f"tensors of type {name} cannot be written; build the model in another type"
        raise InputError(message)
    return TracedDtype(name)


def literal_of(value: Any) -> Any:
    """A literal of an operation as a file holds it: types by name, what is not finite as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value).removeprefix("torch.")


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _flat(value: Any) -> list[Any]:
    return [leaf for each in value for leaf in _flat(each)] if isinstance(value, list | tuple) else [value]


def _module_path(node: Any) -> str:
    """Path of the innermost module that runs a node."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    return without_root(str(stack[-1][0])) if stack else ""


def _functional_name(target: Any) -> tuple[str, bool]:
    """Name of an operation that gives a new tensor, and whether it changes its first argument in place."""
    space, _, name = target._schema.name.partition("::")
    changes = name.endswith("_") and not name.endswith("__")
    overload = target._schema.overload_name or "default"
    return (
        f"{OWN}.{name}" if space == OWN else f"{space}.{name.removesuffix('_') if changes else name}.{overload}"
    ), changes


def _by_schema(
    target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[tuple[Argument, ...], tuple[tuple[str, Argument], ...]]:
    """Positional arguments in the order of the schema, and those by keyword, but for where tensors lie."""
    inputs: list[Argument] = []
    attrs: list[tuple[str, Argument]] = []
    last = 0
    for index, each in enumerate(target._schema.arguments):
        is_given = index < len(arguments) or each.name in keywords
        default = literal_of(each.default_value) if each.has_default_value() else None
        default = tuple(default) if isinstance(default, list) else default
        value = arguments[index] if index < len(arguments) else keywords.get(each.name, default)
        if each.name in ELSEWHERE:
            value, is_given = None, False
        if each.kwarg_only:
            attrs += [(each.name, value)] if is_given else []
            continue
        inputs.append(value)
        last = len(inputs) if is_given else last
    return tuple(inputs[:last]), tuple(sorted(attrs))
