"""What must hold of a traced model beyond the types of its values: every reference stands, every graph is in order."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from phaze_opt.errors import InputError
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.traced_model import (
    BATCH,
    SEQUENCE,
    TensorRef,
    TracedBody,
    TracedModel,
    TracedNode,
    TracedRepeat,
    TracedRole,
    TracedTensor,
)
from phaze_opt.record.input_files import shorten
from phaze_opt.record.line_numbers import dotted

MAX_RUNS = 10_000
MAX_OPERATIONS = 30_000
"""Operations of a model with every repeat written out."""

NOTHING_TO_TRAIN = "there is nothing to train; give a model with parameters"

Fault = tuple[tuple[str | int, ...], str]
"""Path of what is wrong, and the rule it breaks."""


def check_traced_model(model: TracedModel) -> None:
    """Refuse a model that breaks a rule.

    Raises:
        InputError: the first rule that is broken, with the path in the file's form.
    """
    for path, rule in faults_of(model):
        raise InputError(rule, key=dotted(path) or None)


def faults_of(model: TracedModel) -> Iterator[Fault]:
    """Every rule that the model breaks, in the order of its file; later ones may follow from earlier ones."""
    yield from _symbol_faults(model)
    yield from _tensor_faults(model.tensors, model.symbols)
    bodies: dict[str, TracedBody] = {}
    for index, body in enumerate(model.bodies):
        place = ("blocks", index)
        if body.name in bodies:
            yield (*place, "id"), f"{shorten(body.name)} is the id of another block; give each its own"
        bodies[body.name] = body
        yield from ((place + path, rule) for path, rule in _body_faults(body, model.symbols))
    yield from _size_faults(model, bodies)
    yield from _graph_faults(model, bodies)
    graphs = (model.tensors, *(body.tensors for body in model.bodies))
    if not any(each.role is TracedRole.PARAMETER for tensors in graphs for each in tensors):
        yield ("tensors",), f"hold no parameter: {NOTHING_TO_TRAIN}"


def _symbol_faults(model: TracedModel) -> Iterator[Fault]:
    for symbol, value in model.symbols.items():
        if symbol not in (BATCH, SEQUENCE):
            yield (
                ("symbols", symbol),
                f"is no symbol of a size; known are {BATCH} (micro-batch) and {SEQUENCE} (sequence)",
            )
        elif value < 1:
            yield ("symbols", symbol), f"value {value} must be at least 1"


def _tensor_faults(tensors: Sequence[TracedTensor], symbols: Mapping[str, int]) -> Iterator[Fault]:
    seen: dict[str, TracedTensor] = {}
    for index, tensor in enumerate(tensors):
        place = ("tensors", index)
        if tensor.id in seen:
            yield (*place, "id"), f"{shorten(tensor.id)} is the id of another tensor; give each its own"
        for axis, size in enumerate(tensor.shape):
            unknown = sorted(size.symbols - symbols.keys())
            if unknown:
                yield (*place, "shape", axis), f"size {size} names {unknown[0]}, which 'symbols' does not list"
            elif size.symbols and tensor.role is TracedRole.PARAMETER:
                yield (*place, "shape", axis), f"size {size} is of a parameter, whose sizes are numbers"
        if tensor.tied_to:
            other = seen.get(tensor.tied_to)
            if other is None or other.role is not TracedRole.PARAMETER or other.shape != tensor.shape:
                rule = f"{shorten(tensor.tied_to)} must be an earlier parameter of the same shape"
                yield (*place, "tied_to"), rule
        seen[tensor.id] = tensor


def _body_faults(body: TracedBody, symbols: Mapping[str, int]) -> Iterator[Fault]:
    yield from _tensor_faults(body.tensors, symbols)
    tensors = {tensor.id: tensor for tensor in body.tensors}
    given = {tensor.id for tensor in body.tensors if tensor.role is TracedRole.INPUT}
    if given != set(body.inputs) or len(given) != len(body.inputs):
        yield ("inputs",), "must name each tensor of role 'input' of the block once"
    ready = _given(body.tensors)
    for index, node in enumerate(body.nodes):
        yield from ((("nodes", index, *path), rule) for path, rule in _node_faults(node, tensors, ready, symbols))
    yield from _end_faults(("outputs",), body.outputs, ready)


def _given(tensors: Sequence[TracedTensor]) -> set[str]:
    """Tensors that are there before the first step."""
    return {tensor.id for tensor in tensors if tensor.role is not TracedRole.ACTIVATION}


def _node_faults(
    node: TracedNode, tensors: Mapping[str, TracedTensor], ready: set[str], symbols: Mapping[str, int]
) -> Iterator[Fault]:
    """Faults of one operation; ``ready`` takes in what it gives."""
    named = chain((("inputs", each) for each in node.inputs), (("attrs", each) for _, each in node.attrs))
    for place, value in named:
        for each in _leaves(value):
            if isinstance(each, TensorRef) and each.id not in ready:
                yield (place,), f"tensor {shorten(each.id)} is {_why_not(each.id, tensors)}"
            elif isinstance(each, Polynomial) and not each.symbols <= symbols.keys():
                yield (place,), f"size {each} names a symbol that 'symbols' does not list"
    yield from _result_faults(node.outputs, tensors, ready)


def _leaves(value: object) -> Iterator[object]:
    """Literals and tensors in an argument."""
    if isinstance(value, tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _why_not(id_: str, tensors: Mapping[str, TracedTensor]) -> str:
    return "used before the step that gives it" if id_ in tensors else "not listed in 'tensors'"


def _result_faults(outputs: Sequence[str], tensors: Mapping[str, TracedTensor], ready: set[str]) -> Iterator[Fault]:
    """Faults of what a step gives; every tensor of role activation is given once."""
    for position, name in enumerate(outputs):
        if name not in tensors:
            yield ("outputs", position), f"tensor {shorten(name)} is not listed in 'tensors'"
        elif name in ready:
            yield ("outputs", position), f"tensor {shorten(name)} is there already; a step gives new ones"
        ready.add(name)


def _end_faults(path: tuple[str, ...], names: Sequence[str], ready: set[str]) -> Iterator[Fault]:
    for position, name in enumerate(names):
        if name not in ready:
            yield (*path, position), f"tensor {shorten(name)} is given by no step"


def _size_faults(model: TracedModel, bodies: Mapping[str, TracedBody]) -> Iterator[Fault]:
    repeats = [step for step in model.steps if isinstance(step, TracedRepeat)]
    runs = sum(step.count * len(bodies[step.body].nodes) for step in repeats if step.body in bodies)
    total = len(model.steps) - len(repeats) + runs
    if total > MAX_OPERATIONS:
        yield ("nodes",), f"hold {total} operations with repeats written out; at most {MAX_OPERATIONS} can be read"


def _graph_faults(model: TracedModel, bodies: Mapping[str, TracedBody]) -> Iterator[Fault]:
    tensors = {tensor.id: tensor for tensor in model.tensors}
    ready = _given(model.tensors)
    for index, step in enumerate(model.steps):
        if isinstance(step, TracedRepeat):
            found = _repeat_faults(step, bodies, tensors, ready)
        else:
            found = _node_faults(step, tensors, ready, model.symbols)
        yield from ((("nodes", index, *path), rule) for path, rule in found)
    yield from _end_faults(("outputs",), model.outputs, ready)
    if model.loss and model.loss not in ready:
        yield ("loss",), f"tensor {shorten(model.loss)} is given by no step"


def _repeat_faults(
    step: TracedRepeat, bodies: Mapping[str, TracedBody], tensors: Mapping[str, TracedTensor], ready: set[str]
) -> Iterator[Fault]:
    """Faults of a repeat; ``ready`` takes in what it gives."""
    body = bodies.get(step.body)
    if body is None:
        yield ("repeat",), f"{shorten(step.body)} is no block of this file"
        return
    if not 1 <= step.count <= MAX_RUNS:
        yield ("count",), f"value {step.count} must be from 1 to {MAX_RUNS}"
    for key, names, inner in (("inputs", step.inputs, body.inputs), ("outputs", step.outputs, body.outputs)):
        if len(names) != len(inner):
            yield (key,), f"are {len(names)} tensors, where the block has {len(inner)}"
    within = {tensor.id: tensor for tensor in body.tensors}
    for position, (name, own) in enumerate(zip(step.inputs, body.inputs, strict=False)):
        if name not in ready:
            yield ("inputs", position), f"tensor {shorten(name)} is {_why_not(name, tensors)}"
        elif own in within and name in tensors and tensors[name].shape != within[own].shape:
            yield ("inputs", position), f"tensor {shorten(name)} has another shape than the block's {shorten(own)}"
    yield from _carried_faults(step, body, within)
    yield from _result_faults(step.outputs, tensors, ready)


def _carried_faults(step: TracedRepeat, body: TracedBody, within: Mapping[str, TracedTensor]) -> Iterator[Fault]:
    for position, (source, target) in enumerate(step.carried):
        if not (0 <= source < len(body.outputs) and 0 <= target < len(body.inputs)):
            rule = f"pair ({source}, {target}) must be positions of an output and of an input of the block"
            yield ("carried", position), rule
            continue
        given, taken = within.get(body.outputs[source]), within.get(body.inputs[target])
        if given is not None and taken is not None and given.shape != taken.shape:
            yield ("carried", position), f"{shorten(given.id)} has another shape than {shorten(taken.id)}"
