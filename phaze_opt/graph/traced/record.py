"""Recording a traced layer on a tape: a program for one micro-batch, sequence and device.

What a tensor-parallel group exchanges around the products of a traced layer that it splits.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operations import add, bias
from phaze_opt.graph.operator import PLAIN_SHARDING, CollectiveKind, ShardingOptions
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.traced.axes import ShardedAs
from phaze_opt.graph.traced.device_sizes import DeviceSizes
from phaze_opt.graph.traced.expert_region import ExpertRegion
from phaze_opt.graph.traced.flat_graph import FlatGraph
from phaze_opt.graph.traced.folding import LayerParameters
from phaze_opt.graph.traced.gradients import without_idle_gradients
from phaze_opt.graph.traced.known_names import MLP_DOWN, MLP_OUTPUT_BIAS, known_names
from phaze_opt.graph.traced.layer_sharding import LOSS, LayerSharding, left_of
from phaze_opt.graph.traced.layers import TracedLayer
from phaze_opt.graph.traced.normalise.regions import WORK
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS, SHAPES
from phaze_opt.graph.traced.operator_rule import (
    CallOperand,
    OperatorCall,
    OperatorRule,
    Shape,
    Value,
    record_by_bytes,
    record_call,
    unknown_operation,
)
from phaze_opt.graph.traced.polynomial import Polynomial
from phaze_opt.graph.traced.rules.products import bias_of, without_bias
from phaze_opt.graph.traced.traced_model import BATCH, SEQUENCE, Argument, TensorRef, TracedNode, TracedRole
from phaze_opt.workload.training import TrainingSpec

STATISTICS_BYTES = 12
"""Maximum, sum of exponentials and the label's logit of a token, 32-bit each, cross the group."""
SQUARES_BYTES = 4
"""A sum of squares of a token, 32-bit."""


@dataclass(slots=True)
class GroupWork:
    """The exchanges of one layer, on its tape; each tensor enters once.

    Attributes:
        tape: what records them.
        sizes: on one device.
        has_regathers: whether backward's second gather of token shares is an operator.
    """

    tape: Tape
    sizes: DeviceSizes
    has_regathers: bool
    entered: dict[str, Tensor] = field(default_factory=dict)

    def enter(self, tensor: Tensor, whole: Shape) -> Tensor:
        """Before columns: all tokens are gathered, or the gradient is summed over the group."""
        if tensor.name not in self.entered:
            name = f"enter{len(self.entered)}"
            self.entered[tensor.name] = self._entered(name, tensor, prod(whole))
        return self.entered[tensor.name]

    def _entered(self, name: str, tensor: Tensor, elements: int) -> Tensor:
        if self.sizes.has_token_shares:
            kind, regather = CollectiveKind.ALL_GATHER, self.has_regathers
            return ops.collective(self.tape, name, tensor, kind=kind, elements=elements, has_regather=regather)
        return ops.view(self.tape, name, tensor, adjoint=CollectiveKind.ALL_REDUCE)

    def leave(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """Behind rows: sums over the group, of which every device keeps its tokens."""
        if self.sizes.has_token_shares:
            kind = CollectiveKind.REDUCE_SCATTER
            return ops.collective(self.tape, f"{name}_leave", tensor, kind=kind, elements=prod(own))
        return ops.all_reduce(self.tape, f"{name}_leave", tensor)

    def scatter(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """Behind a table whose rows products of rows read: sums over the group, of which a device keeps channels."""
        kind = CollectiveKind.REDUCE_SCATTER
        return ops.collective(self.tape, f"{name}_scatter", tensor, kind=kind, elements=prod(own))

    def gather_columns(self, name: str, tensor: Tensor, whole: Shape, *, is_direct: bool) -> Tensor:
        """All columns on every device, for a product that is split; ``is_direct`` if it alone reads them.

        What is between them works on all tokens, and its gradient is summed over the group behind it.
        """
        if is_direct:
            kind, elements = CollectiveKind.ALL_GATHER, prod(whole)
            return ops.collective(self.tape, f"{name}_gather", tensor, kind=kind, elements=elements)
        return ops.gather_columns(self.tape, f"{name}_gather", tensor, elements=prod(whole))

    def enter_columns(self, name: str, tensor: Tensor) -> Tensor:
        """Before a split product of what every device has made whole."""
        return ops.view(self.tape, f"{name}_enter", tensor, adjoint=CollectiveKind.ALL_REDUCE)

    def exchange_squares(self, name: str, tensor: Tensor, tokens: int) -> None:
        """What a norm of channels that are split needs of all of them."""
        ops.statistics(self.tape, f"{name}_statistics", tensor, payload_bytes=float(SQUARES_BYTES * tokens))

    def gather(self, name: str, tensor: Tensor, whole: Shape) -> Tensor:
        """All tokens of a tensor on every device, for a layer of which nothing is split."""
        return ops.gather_columns(self.tape, name, tensor, elements=prod(whole))

    def keep_share(self, name: str, tensor: Tensor, own: Shape) -> Tensor:
        """A device's tokens of a tensor that every device has."""
        return ops.view(self.tape, name, tensor, elements=prod(own), adjoint=CollectiveKind.ALL_GATHER)

    def exchange_statistics(self, name: str, probabilities: Tensor, tokens: int) -> None:
        """What a loss needs of all shares of the vocabulary."""
        ops.statistics(self.tape, f"{name}_statistics", probabilities, payload_bytes=float(STATISTICS_BYTES * tokens))


@dataclass(frozen=True, slots=True)
class LayerSettings:
    """How layers are recorded.

    Attributes:
        training: batches, sequence, attention form.
        rules: of operations, by their names.
        allow_unknown: whether an operation without a rule is counted by its bytes instead of refused.
        degree: devices of a tensor-parallel group.
        options: what sharding does beyond tensor parallelism.
    """

    training: TrainingSpec
    rules: Mapping[str, OperatorRule]
    allow_unknown: bool = False
    degree: int = 1
    options: ShardingOptions = PLAIN_SHARDING

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
        # A layer that needs all tokens somewhere else than in attention by heads has them all on every device.
        has_shares = options.has_token_shares and not sharding.mixes_tokens
        group = Sharding(options.training, options.degree, options.options)
        self._sizes = DeviceSizes(graph, options.sizes, group, sharding, has_shares)
        self._outside = replace(self._sizes, has_token_shares=options.has_token_shares)
        self._group = GroupWork(self._tape, self._sizes, options.options.has_regathers)
        self._values: dict[str, Tensor] = {}
        self._routed: dict[str, Tensor] = {}
        self._producers = {name: node for node in layer.nodes for name in node.outputs}
        self._biases: dict[str, list[tuple[OperatorCall, CallOperand]]] = {}
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
        output, degree = node.outputs[0], self._options.degree
        sharding = self._sizes.sharding
        self._tape.is_in_experts = self._is_of_experts(node)
        call = self._call(node)
        if degree > 1 and output in sharding.normed:
            self._group.exchange_squares(call.name, call.tensor(0), prod(call.operands[0].shape[:-1]))
        is_rows = degree > 1 and sharding.products.get(output) is ShardedAs.ROWS
        has_bias_apart = is_rows or self._known.get(output) == MLP_DOWN
        results = self._run(without_bias(call) if has_bias_apart else call)
        results = (self._exchanged(node, call.name, results[0]), *results[1:])
        if has_bias_apart or output in sharding.sums:
            results = (self._biased(node, call, results[0]),)
        elif degree > 1 and node.op == LOSS and call.operands[0].shape != self._sizes.whole(_first(node)):
            self._group.exchange_statistics(call.name, results[0], prod(call.operands[0].shape[:-1]))
        self._values.update(zip(node.outputs, results, strict=True))

    def _exchanged(self, node: TracedNode, name: str, tensor: Tensor) -> Tensor:
        """What the group makes of what each of its devices has made."""
        sharding, sizes, output = self._sizes.sharding, self._sizes, node.outputs[0]
        region = next((each for each in sharding.experts if output in each.outputs), None)
        if region is not None and output not in region.own:
            return self._of_experts(region, output, tensor)
        if self._options.degree == 1:
            return tensor
        if sharding.reduces(node):
            return self._group.leave(name, tensor, sizes.own(output))
        if output in sharding.tables:
            return self._group.scatter(name, tensor, sizes.own(output))
        if output in sharding.gathered:
            is_direct = sharding.gathered[output]
            return self._group.gather_columns(name, tensor, sizes.whole(output), is_direct=is_direct)
        return tensor

    def _of_experts(self, region: ExpertRegion, output: str, tensor: Tensor) -> Tensor:
        """Tokens that arrive at experts, their results summed, and all tokens behind the weighted sum."""
        share, hidden = self._sizes.share_of(region), self._sizes.whole(output)[-1]
        if output == region.sent:
            return share.arrive(self._tape, tensor, hidden=hidden)
        if output in region.last:
            return share.add_up(self._tape, tensor, hidden=hidden)
        if output == region.combine and self._options.degree > 1 and not self._sizes.is_shared(output):
            return self._group.gather(f"gather_tokens{share.suffix}", tensor, self._sizes.whole(output))
        return tensor

    def _run(self, call: OperatorCall) -> tuple[Tensor, ...]:
        rule = self._options.rules.get(call.op)
        if rule is not None:
            return record_call(rule, self._tape, call)
        if self._options.allow_unknown:
            return record_by_bytes(self._tape, call)
        raise unknown_operation(call, self._options.rules)

    def _biased(self, node: TracedNode, call: OperatorCall, summed: Tensor) -> Tensor:
        """Biases of rows come behind the sum over the group, else every device would add them."""
        found, output = bias_of(call), node.outputs[0]
        biases = [] if found is None or not found.is_parameter else [(call, found)]
        biases += [each for name in self._graph.varying(node) for each in self._biases.pop(name, ())]
        if output in self._sizes.sharding.deferred and self._options.degree > 1:
            self._biases[output] = biases
            return summed
        for given, operand in biases:
            name = MLP_OUTPUT_BIAS if given.name == MLP_DOWN else f"{given.name}_bias"
            if operand.tensor is not None:
                summed = add(self._tape, f"{given.name}_sum", summed, operand.tensor)
            else:
                summed = bias(self._tape, name, (summed,), size=operand.parameter_elements)[0]
        return summed

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
            reads=tuple(self._inputs) if self._layer.is_apart else (),
            makes=self._makes() if self._layer.is_apart else (),
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

    def _makes(self) -> tuple[Tensor, ...]:
        """What it gives others of its own, as a device has it outside; a tensor that has two names is sent once."""
        named = {name: self._values[name] for name in self._layer.outputs if name not in self._layer.inputs}
        first = {tensor.name: name for name, tensor in reversed(named.items())}
        sizes = {name: prod(self._outside.own(name)) * (first[each.name] == name) for name, each in named.items()}
        return tuple(replace(tensor, elements=sizes[name]) for name, tensor in named.items())

    def _outputs(self) -> list[Tensor]:
        """What leaves the layer, each tensor once, as a device has it outside."""
        found: dict[str, Tensor] = {}
        for number, name in enumerate(self._layer.outputs):
            tensor = self._values[name]
            if self._outside.is_shared(name) and not self._sizes.is_shared(name):
                tensor = self._group.keep_share(f"output{number}", tensor, self._outside.own(name))
            found[tensor.name] = tensor
        return list(found.values())

    def _call(self, node: TracedNode) -> OperatorCall:
        attrs = {key: self._value(each, node) for key, each in node.attrs}
        work = attrs.get(WORK)
        if isinstance(work, int):
            # Attributes state work on whole tensors.
            name = node.outputs[0]
            attrs[WORK] = work * prod(self._sizes.made(node, name)) // max(1, prod(self._sizes.whole(name)))
        call = OperatorCall(
            op=node.op,
            name=self._name(node),
            inputs=tuple(self._value(each, node) for each in node.inputs),
            attrs=attrs,
            results=tuple(self._sizes.made(node, name) for name in node.outputs),
            attention=self._options.training.attention,
            module=node.module,
            unread=frozenset(position for position, name in enumerate(node.outputs) if name not in self._read),
        )
        return self._entered(call, node)

    def _entered(self, call: OperatorCall, node: TracedNode) -> OperatorCall:
        """A product of columns reads all tokens, and so does what joins what all heads share; sums read results."""
        sharding, output = self._sizes.sharding, node.outputs[0]
        for region in sharding.experts:
            if output == region.combine:
                return self._sent_back(call, region, node)
        if self._options.degree == 1 or self._sizes.region_of(output) is not None:
            return call
        if output in sharding.spread:
            return replace(
                call,
                inputs=tuple(self._spread(each, given) for each, given in zip(call.inputs, node.inputs, strict=True)),
            )
        if sharding.products.get(output) not in _OF_COLUMNS:
            return call
        position, left = (1 if node.op == "aten.addmm" else 0), left_of(node)
        operand = call.operand(position)
        if operand.tensor is None or sharding.gathered.get(left):
            return call
        whole = self._sizes.whole(left)
        is_whole = left in sharding.whole or left in sharding.gathered
        entering = (
            self._group.enter_columns(call.name, operand.tensor)
            if is_whole
            else self._group.enter(operand.tensor, whole)
        )
        entered = CallOperand(whole, entering)
        return replace(call, inputs=(*call.inputs[:position], entered, *call.inputs[position + 1 :]))

    def _sent_back(self, call: OperatorCall, region: ExpertRegion, node: TracedNode) -> OperatorCall:
        """Results of experts on the devices that sent the tokens."""
        place = next(
            at
            for at, each in enumerate(node.inputs)
            if isinstance(each, TensorRef) and each.id in region.behind | region.last
        )
        shape = (self._sizes.copies(region), *call.operand(place).shape[1:])
        back = self._sizes.share_of(region).send_back(self._tape, call.tensor(place), elements=prod(shape))
        return replace(call, inputs=(*call.inputs[:place], CallOperand(shape, back), *call.inputs[place + 1 :]))

    def _spread(self, value: Value, given: Argument) -> Value:
        """What all heads share, with all tokens."""
        if isinstance(value, tuple) and isinstance(given, tuple):
            return tuple(self._spread(*each) for each in zip(value, given, strict=True))
        is_shared = isinstance(given, TensorRef) and given.id not in self._sizes.sharding.splits
        if (
            not isinstance(value, CallOperand)
            or not isinstance(given, TensorRef)
            or not is_shared
            or value.tensor is None
        ):
            return value
        whole = self._sizes.whole(self._behind_views(given.id))
        return replace(value, shape=self._sizes.whole(given.id), tensor=self._group.enter(value.tensor, whole))

    def _behind_views(self, name: str) -> str:
        """The tensor that views look at."""
        while (node := self._producers.get(name)) is not None and node.op in SHAPES:
            name = _first(node)
        return name

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
        shape, tensor = self._sizes.own(name), self._values.get(name)
        if tensor is not None and self._is_routed(name, node):
            shape, tensor = self._sizes.token_share(name), self._own_tokens(name, tensor)
        return CallOperand(shape, tensor, is_data=role is TracedRole.INPUT)

    def _is_routed(self, name: str, node: TracedNode) -> bool:
        """Whether a router or a dispatch reads tokens that every device has all of: each goes on with its own."""
        if self._options.degree == 1 or self._sizes.is_shared(name) or self._sizes.region_of(name) is not None:
            return False
        output = node.outputs[0]
        is_read = any(output in each.own or output == each.sent for each in self._sizes.sharding.experts)
        return is_read and self._graph.role(name) is TracedRole.ACTIVATION

    def _own_tokens(self, name: str, tensor: Tensor) -> Tensor:
        if tensor.name not in self._routed:
            own = f"own_tokens{len(self._routed)}"
            self._routed[tensor.name] = self._group.keep_share(own, tensor, self._sizes.token_share(name))
        return self._routed[tensor.name]

    def _is_of_experts(self, node: TracedNode) -> bool:
        return self._sizes.region_of(node.outputs[0]) is not None or node.op in GROUPED_PRODUCTS

    def _parameter(self, name: str, node: TracedNode) -> CallOperand:
        """A parameter with the elements that one device has; a lookup sees the whole table."""
        base = self._graph.parameter(name)
        whole, own = self._sizes.whole(name), self._sizes.parameter(node, name)
        if name in self._graph.lent:
            return CallOperand(own, parameter_elements=prod(own))
        elements = -(-prod(self._sizes.whole(base)) * prod(own) // max(1, prod(whole)))
        self.parameters[base] = max(elements, self.parameters.get(base, 0))
        if self._is_of_experts(node):
            self._expert_parameters.add(base)
        is_table = node.outputs[0] in self._sizes.sharding.tables
        return CallOperand(whole if is_table else own, parameter_elements=elements)


_OF_COLUMNS = (ShardedAs.COLUMNS, ShardedAs.VOCABULARY, ShardedAs.GATHERED)


def _first(node: TracedNode) -> str:
    """The first tensor that a node reads."""
    return next(node.tensor_ids())
