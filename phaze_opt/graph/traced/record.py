"""Recording a traced layer on a tape: a program for one micro-batch, sequence and device."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph.operations import COPY, add, bias, elementwise
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.device_sizes import DeviceSizes
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.folding import LayerParameters
from phaze_opt.graph.traced.gradients import without_idle_gradients
from phaze_opt.graph.traced.group_work import GroupWork
from phaze_opt.graph.traced.known_names import MLP_DOWN, MLP_OUTPUT_BIAS, known_names
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise.identities import LOSSES
from phaze_opt.graph.traced.normalise.regions import ROTARY, WORK
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS, SHAPES
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, OperatorRule, Value
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.rules.products import bias_of, without_bias
from phaze_opt.graph.traced.sharding_by_dataflow import LOSS, LayerSharding, left_of
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, Argument, TensorRef, TracedNode, TracedRole
from phaze_opt.record.suggestions import near
from phaze_opt.workload.training import TrainingSpec


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How layers are recorded.

    Attributes:
        training: batches, sequence, attention form.
        rules: of operations, by their names.
        allow_unknown: whether an operation without a rule is counted by its bytes instead of refused.
        degree: devices of a tensor-parallel group.
        has_regathers: whether backward's second gather of token shares is an operator.
    """

    training: TrainingSpec
    rules: Mapping[str, OperatorRule]
    allow_unknown: bool = False
    degree: int = 1
    has_regathers: bool = False

    @property
    def sizes(self) -> dict[str, int]:
        """Values of the symbols."""
        return {BATCH: self.training.micro_batch, SEQUENCE: self.training.sequence_length}

    @property
    def has_token_shares(self) -> bool:
        """Whether tokens are shared out between the split regions."""
        return self.degree > 1 and self.training.is_sequence_parallel


@dataclass(frozen=True, slots=True)
class RecordedLayer:
    """A layer's program, and elements on a device of all parameters that it reads, by id."""

    program: Program
    parameters: Mapping[str, int]


def record_layer(
    graph: FlatGraph,
    layer: TracedLayer,
    options: LayerSettings,
    *,
    name: str,
    sharding: LayerSharding,
    shared: LayerParameters,
) -> RecordedLayer:
    """Forward and backward of one layer on one device.

    Args:
        graph: that the layer is of.
        layer: which.
        options: how.
        name: of the program.
        sharding: of the layer; of no account for a group of one.
        shared: parameters that it has in common with others.

    Raises:
        InputError: an operation has no rule, its rule refuses the call, or a size is not whole.
    """
    recording = _Recording(graph, layer, options, sharding)
    for node in layer.nodes:
        recording.record(node)
    return RecordedLayer(recording.finish(name=name, shared=shared), recording.parameters)


class _Recording:
    """The tape of one layer and what its tensors are on it."""

    def __init__(self, graph: FlatGraph, layer: TracedLayer, options: LayerSettings, sharding: LayerSharding) -> None:
        self._graph = graph
        self._layer = layer
        self._read = {*layer.outputs, *(name for node in layer.nodes for name in node.tensor_ids())}
        self._options = options
        self._tape = Tape(dtype_bytes=options.training.dtype_bytes)
        self._names: dict[str, int] = {}
        self._known = known_names(graph, layer, sharding)
        self.parameters: dict[str, int] = {}
        self._expert_parameters: set[str] = set()
        # A layer of which nothing is split, or that needs all tokens elsewhere, has them all on every device.
        has_shares = options.has_token_shares and sharding.is_split and not sharding.mixes_tokens
        self._sizes = DeviceSizes(graph, options.sizes, options.degree, sharding, has_shares)
        self._outside = replace(self._sizes, has_token_shares=options.has_token_shares)
        self._group = GroupWork(self._tape, self._sizes, options.has_regathers)
        self._values: dict[str, Tensor] = {}
        self._inputs = [self._declare(each, f"input{number}") for number, each in enumerate(layer.inputs)]
        self._data = [self._declare(each, f"data{number}") for number, each in enumerate(layer.data)]

    def _declare(self, name: str, own_name: str) -> Tensor:
        """A tensor that comes from outside the layer, as a device has it there."""
        given = self._graph.tensors[name]
        element_bytes = None if given.dtype.is_float else given.dtype.integer_bytes
        tensor = self._tape.tensor(own_name, prod(self._outside.own(name)), element_bytes=element_bytes)
        is_gathered = self._outside.is_shared(name) and not self._sizes.is_shared(name)
        whole = self._sizes.whole(name)
        self._values[name] = self._group.gather(f"{own_name}_gather", tensor, whole) if is_gathered else tensor
        return tensor

    def record(self, node: TracedNode) -> None:
        """One operation by its rule, with what the group exchanges for it."""
        kind = self._sizes.sharding.products.get(node.outputs[0]) if self._options.degree > 1 else None
        call = self._call(node, kind)
        has_bias_apart = kind is ShardedAs.ROWS or self._known.get(node.outputs[0]) == MLP_DOWN
        results = self._run(without_bias(call) if has_bias_apart else call)
        if self._is_summed(node, kind):
            results = (self._group.leave(call.name, results[0], self._sizes.own(node.outputs[0])),)
        if has_bias_apart:
            results = (self._biased(call, results[0]),)
        elif self._options.degree > 1 and node.op == LOSS and call.operands[0].shape != self._sizes.whole(_first(node)):
            self._group.exchange_statistics(call.name, results[0], prod(call.operands[0].shape[:-1]))
        self._values.update(zip(node.outputs, results, strict=True))

    def _is_summed(self, node: TracedNode, kind: ShardedAs | None) -> bool:
        """Whether every device has a part of each element of a result."""
        sharding, output = self._sizes.sharding, node.outputs[0]
        if self._options.degree == 1 or output in sharding.experts.whole:
            return False
        return kind is ShardedAs.ROWS or output in sharding.tables or output in sharding.experts.sums

    def _run(self, call: OperatorCall) -> tuple[Tensor, ...]:
        rule = self._options.rules.get(call.op)
        if rule is not None:
            return _recorded(rule, self._tape, call)
        if self._options.allow_unknown:
            return _by_bytes(self._tape, call)
        raise _unknown(call, self._options.rules)

    def _biased(self, call: OperatorCall, summed: Tensor) -> Tensor:
        """The bias of rows comes behind the sum, else every device would add it."""
        found = bias_of(call)
        if found is None or not found.is_parameter:
            return summed
        if found.tensor is not None:
            return add(self._tape, f"{call.name}_sum", summed, found.tensor)
        name = MLP_OUTPUT_BIAS if call.name == MLP_DOWN else f"{call.name}_bias"
        return bias(self._tape, name, (summed,), size=found.parameter_elements)[0]

    def finish(self, *, name: str, shared: LayerParameters) -> Program:
        """Backward, and the program."""
        outputs = self._outputs()
        for tensor in outputs:
            given = Tensor(f"d_{tensor.name}.given", tensor.elements, tensor.element_bytes, TensorRole.GRADIENT)
            self._tape.pass_gradient(tensor, given)
        self._tape.run_backward(None)
        entering = zip(self._layer.inputs, self._inputs, strict=True)
        passing = tuple(tensor for name, tensor in entering if name in self._layer.passing)
        kept = {tensor.name for tensor in passing}
        gradients = [self._tape.gradient(tensor) for tensor in self._inputs]
        leaving = (*(each for each in outputs if each.name not in kept), *(each for each in gradients if each.elements))
        relayed = sum(prod(self._outside.own(each)) for each in self._layer.relayed)
        return Program(
            name=name,
            nodes=without_idle_gradients(self._tape.nodes, leaving),
            input=self._input(kept),
            outputs=leaving,
            output_bytes=sum(each.num_bytes for each in outputs) + relayed * self._options.training.dtype_bytes,
            num_parameters=self._num(self.parameters.keys() - shared.lent),
            num_tied_parameters=self._num(shared.tied),
            num_expert_parameters=self._num(self._expert_parameters - shared.lent),
            passing=passing,
        )

    def _input(self, passing: Collection[str]) -> Tensor:
        """What enters the layer but for what it passes on; of several no neighbour is asked which it keeps too."""
        given = [tensor for tensor in self._inputs if tensor.name not in passing]
        if len(given) == 1:
            return given[0]
        taken = sum(tensor.num_bytes for tensor in (given or self._data))
        return Tensor("inputs", taken, 1, TensorRole.ACTIVATION)

    def _num(self, names: Iterable[str]) -> int:
        """Elements of some parameters on a device."""
        return sum(self.parameters[each] for each in names)

    def _outputs(self) -> list[Tensor]:
        """What leaves the layer, each tensor once, as a device has it outside."""
        found: dict[str, Tensor] = {}
        for number, name in enumerate(self._layer.outputs):
            tensor = self._values[name]
            if self._outside.is_shared(name) and not self._sizes.is_shared(name):
                tensor = self._group.keep_share(f"output{number}", tensor, self._outside.own(name))
            found[tensor.name] = tensor
        return list(found.values())

    def _call(self, node: TracedNode, kind: ShardedAs | None) -> OperatorCall:
        is_whole = kind is ShardedAs.ROWS or self._is_summed(node, kind)
        shape = self._sizes.whole if is_whole else self._sizes.own
        attrs = {key: self._value(each, node) for key, each in node.attrs}
        work = attrs.get(WORK)
        if isinstance(work, int):
            # Attributes state work on whole tensors.
            attrs[WORK] = work * prod(shape(node.outputs[0])) // max(1, prod(self._sizes.whole(node.outputs[0])))
        call = OperatorCall(
            op=node.op,
            name=self._name(node),
            inputs=tuple(self._value(each, node) for each in node.inputs),
            attrs=attrs,
            results=tuple(shape(name) for name in node.outputs),
            attention=self._options.training.attention,
            module=node.module,
            unread=frozenset(position for position, name in enumerate(node.outputs) if name not in self._read),
        )
        is_inside = left_of(node) in self._sizes.sharding.experts.whole
        return call if kind in (None, ShardedAs.ROWS) or is_inside else self._entered(call, node)

    def _entered(self, call: OperatorCall, node: TracedNode) -> OperatorCall:
        """A product of columns reads all tokens."""
        position = 1 if node.op == "aten.addmm" else 0
        left = call.operand(position)
        whole = self._sizes.whole(left_of(node))
        entered = CallOperand(whole, self._group.enter(call.tensor(position), whole))
        inputs = (*call.inputs[:position], entered, *call.inputs[position + 1 :])
        return replace(call, inputs=inputs) if left.is_varying else call

    def _name(self, node: TracedNode) -> str:
        """A known name, or the last word of the module's path and the operation; with a number where that is taken."""
        words = [word for word in node.module.replace(":", ".").split(".") if word and not word.isdigit()]
        operation = node.op.rpartition(".")[2].strip("_")
        name = self._known.get(node.outputs[0]) or (f"{words[-1]}_{operation}" if words else operation)
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    def _value(self, argument: Argument, node: TracedNode) -> Value:
        if isinstance(argument, TensorRef):
            return self._operand(argument.id, node)
        if isinstance(argument, Polynomial):
            return argument.evaluate(self._options.sizes)
        if isinstance(argument, tuple):
            return tuple(self._value(each, node) for each in argument)
        return argument

    def _operand(self, name: str, node: TracedNode) -> CallOperand:
        role = self._graph.role(name)
        if role is TracedRole.PARAMETER:
            return self._parameter(name, node)
        tensor = self._values.get(name)
        if tensor is not None and self._sizes.sharding.is_gathered(node) and self._sizes.is_outside(name):
            whole = self._sizes.whole(name)
            return CallOperand(whole, self._group.enter(tensor, whole))
        return CallOperand(self._sizes.own(name), tensor, is_data=role is TracedRole.INPUT)

    def _parameter(self, name: str, node: TracedNode) -> CallOperand:
        """A parameter with the elements that one device has; a lookup sees the whole table."""
        base = self._graph.parameter(name)
        whole, own = self._sizes.whole(name), self._sizes.parameter(node, name)
        if name in self._graph.lent:
            return CallOperand(own, parameter_elements=prod(own))
        elements = -(-prod(self._sizes.whole(base)) * prod(own) // max(1, prod(whole)))
        self.parameters[base] = max(elements, self.parameters.get(base, 0))
        if node.op in GROUPED_PRODUCTS:
            self._expert_parameters.add(base)
        is_table = node.outputs[0] in self._sizes.sharding.tables
        return CallOperand(whole if is_table else own, parameter_elements=elements)


def _first(node: TracedNode) -> str:
    """The first tensor that a node reads."""
    return next(node.tensor_ids())


_OF_OTHER_FORM = (IndexError, KeyError, ValueError, TypeError, ArithmeticError, AttributeError)
"""What a rule may raise of a call whose arguments are not the operation's: a file may say anything."""


def _recorded(rule: OperatorRule, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
    """What a rule records.

    Raises:
        InputError: the call is not of the form that the rule knows.
    """
    try:
        results = rule.record(tape, call)
    except InputError as error:
        if call.op in str(error):
            raise
        raise call.fault(str(error)) from None
    except _OF_OTHER_FORM as error:
        rule_broken = f"its arguments are not of the form that its rule knows ({type(error).__name__}: {error})"
        raise call.fault(rule_broken) from error
    if len(results) != len(call.results):
        rule_broken = f"its rule gives {len(results)} results, where the file has {len(call.results)}"
        raise call.fault(rule_broken)
    _check_sizes(call, results)
    return results


def _check_sizes(call: OperatorCall, results: tuple[Tensor, ...]) -> None:
    """Refuse results of other sizes than the file states: one of both is wrong, and no figure of it would be right.

    A view is what it looks at, a rotation may be of keys that heads share, a loss is what its backward begins with, and
    statistics and places that only backward reads are nothing.
    """
    if call.op in SHAPES or call.op in LOSSES:
        return
    for number, (result, shape) in enumerate(zip(results, call.results, strict=True)):
        is_shared = call.op == ROTARY and result.elements > 0 and prod(shape) % result.elements == 0
        if result.elements != prod(shape) and (result.elements or not number) and not is_shared:
            rule = f"its result {number} has {result.elements} elements, where the file has {prod(shape)}; correct it"
            raise call.fault(rule)


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
