"""Recording a traced layer on a tape: a program for one micro-batch, sequence and device."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph.operations import COPY, elementwise
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.gradients import without_idle_gradients
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.operator_rule import Operand, OperatorCall, OperatorRule, Shape, Value
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.rules.experts import GROUPED_PRODUCTS
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, Argument, TensorRef, TracedNode, TracedRole
from phaze_opt.record.suggestions import near
from phaze_opt.workload.training import TrainingSpec

MAX_ELEMENTS = 1 << 50
"""Elements of a tensor beyond which a file is no model that is trained."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """How layers are recorded.

    Attributes:
        training: batches, sequence, attention form.
        rules: of operations, by their names.
        allow_unknown: whether an operation without a rule is counted by its bytes instead of refused.
    """

    training: TrainingSpec
    rules: Mapping[str, OperatorRule]
    allow_unknown: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """Values of the symbols."""
        return {BATCH: self.training.micro_batch, SEQUENCE: self.training.sequence_length}


@dataclass(frozen=True, slots=True)
class RecordedLayer:
    """A layer's program, and the names in it of what crosses its borders, in the order of the layer's lists."""

    program: Program
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def record_layer(graph: FlatGraph, layer: TracedLayer, options: RecordOptions, *, name: str) -> RecordedLayer:
    """Forward and backward of one layer.

    Raises:
        InputError: an operation has no rule, its rule refuses the call, or a size is not whole.
    """
    recording = _Recording(graph, layer, options)
    inputs = [recording.declare(each, f"input{number}") for number, each in enumerate(layer.inputs)]
    data = [recording.declare(each, f"data{number}") for number, each in enumerate(layer.data)]
    for node in layer.nodes:
        recording.record(node)
    return recording.finish(layer, inputs, data, name=name)


class _Recording:
    """The tape of one layer and what its tensors are on it."""

    def __init__(self, graph: FlatGraph, layer: TracedLayer, options: RecordOptions) -> None:
        self._graph = graph
        self._read = {*layer.outputs, *(name for node in layer.nodes for name in node.tensor_ids())}
        self._options = options
        self._tape = Tape(dtype_bytes=options.training.dtype_bytes)
        self._values: dict[str, Tensor] = {}
        self._names: dict[str, int] = {}
        self._sizes = options.sizes
        self._expert_parameters: set[str] = set()

    def declare(self, name: str, own_name: str) -> Tensor:
        """A tensor that comes from outside the layer."""
        tensor = self._graph.tensors[name]
        element_bytes = None if tensor.dtype.is_float else tensor.dtype.integer_bytes
        self._values[name] = self._tape.tensor(own_name, prod(self._shape(name)), element_bytes=element_bytes)
        return self._values[name]

    def record(self, node: TracedNode) -> None:
        """One operation by its rule."""
        call = self._call(node)
        rule = self._options.rules.get(node.op)
        if rule is not None:
            results = rule.record(self._tape, call)
        elif self._options.allow_unknown:
            results = _by_bytes(self._tape, call)
        else:
            raise _unknown(call, self._options.rules)
        self._values.update(zip(node.outputs, results, strict=True))
        if node.op in GROUPED_PRODUCTS:
            self._expert_parameters.update(
                self._graph.parameter(name)
                for name in node.tensor_ids()
                if self._graph.role(name) is TracedRole.PARAMETER
            )

    def finish(self, layer: TracedLayer, inputs: list[Tensor], data: list[Tensor], *, name: str) -> RecordedLayer:
        """Backward, and the program."""
        outputs = {self._values[each].name: self._values[each] for each in layer.outputs}
        for tensor in outputs.values():
            given = Tensor(f"d_{tensor.name}.given", tensor.elements, tensor.element_bytes, TensorRole.GRADIENT)
            self._tape.pass_gradient(tensor, given)
        self._tape.run_backward(None)
        gradients = [self._tape.gradient(tensor) for tensor in inputs]
        leaving = (*outputs.values(), *(each for each in gradients if each.elements))
        sent = sum(tensor.num_bytes for tensor in outputs.values()) + self._bytes(layer.relayed)
        taken = sum(tensor.num_bytes for tensor in (inputs or data))
        program = Program(
            name=name,
            nodes=without_idle_gradients(self._tape.nodes, leaving),
            input=Tensor("inputs", taken, 1, TensorRole.ACTIVATION),
            outputs=leaving,
            output_bytes=sent,
            num_parameters=sum(self._elements(each) for each in layer.parameters),
            num_tied_parameters=0,
            num_expert_parameters=sum(self._elements(each) for each in sorted(self._expert_parameters)),
        )
        names = tuple(self._values[each].name for each in layer.outputs)
        return RecordedLayer(program, tuple(tensor.name for tensor in inputs), names)

    def _bytes(self, names: tuple[str, ...]) -> int:
        return sum(self._elements(each) * self._options.training.dtype_bytes for each in names)

    def _shape(self, name: str) -> Shape:
        shape = tuple(size.evaluate(self._sizes) for size in self._graph.tensors[name].shape)
        if prod(shape) > MAX_ELEMENTS:
            message = f"tensor '{name[:80]}' of shape {list(shape)} has more than {MAX_ELEMENTS} elements"
            raise InputError(message)
        return shape

    def _elements(self, name: str) -> int:
        return prod(self._shape(name))

    def _call(self, node: TracedNode) -> OperatorCall:
        return OperatorCall(
            op=node.op,
            name=self._name(node),
            inputs=tuple(self._value(each) for each in node.inputs),
            attrs={key: self._value(each) for key, each in node.attrs},
            results=tuple(self._shape(name) for name in node.outputs),
            attention=self._options.training.attention,
            module=node.module,
            unread=frozenset(position for position, name in enumerate(node.outputs) if name not in self._read),
        )

    def _name(self, node: TracedNode) -> str:
        """The last word of the module's path and the operation, with a number where that is taken."""
        words = [word for word in node.module.replace(":", ".").split(".") if word and not word.isdigit()]
        operation = node.op.rpartition(".")[2].strip("_")
        name = f"{words[-1]}_{operation}" if words else operation
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def _value(self, argument: Argument) -> Value:
        if isinstance(argument, TensorRef):
            return self._operand(argument.id)
        if isinstance(argument, Polynomial):
            return argument.evaluate(self._sizes)
        if isinstance(argument, tuple):
            return tuple(self._value(each) for each in argument)
        return argument

    def _operand(self, name: str) -> Operand:
        role, shape = self._graph.role(name), self._shape(name)
        if role is TracedRole.PARAMETER:
            return Operand(shape, parameter_elements=self._elements(self._graph.parameter(name)))
        return Operand(shape, self._values.get(name), is_data=role is TracedRole.INPUT)


def _unknown(call: OperatorCall, rules: Mapping[str, OperatorRule]) -> InputError:
    close = near(call.op, list(rules))
    hint = f" ({close[0]} has one)" if close else ""
    return call.fault(
        f"no rule says what it costs{hint}; register one under phaze_opt.operators (docs/traced-model.md), "
        "or allow unknown operations to be counted by their bytes"
    )


def _by_bytes(tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
    """An operation that nothing is known of: it reads its inputs, writes its results, and the same again backward."""
    tensors = [operand.tensor for operand in call.varying if operand.tensor is not None]
    weights = [
        tape.weight(f"{call.name}.weight{number}", operand.parameter_elements)
        for number, operand in enumerate(call.parameters)
    ]
    first, *others = (prod(shape) for shape in call.results)
    rule = replace(COPY, needs_input=True)
    result = elementwise(tape, call.name, tensors, rule, elements=first, weights=weights)
    return (result, *(tape.tensor(f"{call.name}.result{number}", size) for number, size in enumerate(others, 1)))
