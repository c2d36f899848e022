"""Work that goes through a sequence step by step: LSTM, GRU and Mamba's scan.

Layers on a `Tape` that go through a sequence step by step: one direction of an LSTM or GRU layer, and Mamba's scan.

The products with the input of all steps are one matmul. The products with the state follow one another: an operator of
serial steps, each of which waits for the state of the step before, and whose gates run between two products.

Backward walks the steps in reverse. What the state before the first step would get is not computed where that state is
zero: of s steps s - 1 pass a gradient on, and the weight of the state takes its gradient from s - 1 states, in one
matmul behind the steps. Kept are the input, the activated gates, the states that are summed up (the cells of an LSTM,
the candidate's product of a GRU), and the result.

A selective scan is vector work: h_t = exp(d_t A) h_(t-1) + (d_t x_t) B_t and y_t = C_t h_t, for every channel and each
of its states. The states stay on chip: forward writes the result alone, and backward makes them again before it walks
the steps in reverse (Gu and Dao 2023, section 3.3.2), so it takes twice the steps.
"""

from dataclasses import dataclass
from math import prod

from phaze_opt.errors import InputError
from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution
from phaze_opt.graph.operations import bias, linear
from phaze_opt.graph.operator import Matmul, OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, Value
from phaze_opt.graph.traced.rules.moves import join, split


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Sizes of one direction of a recurrent layer.

    Attributes:
        steps: of the sequence.
        batch: sequences.
        input_size, hidden_size: channels of an input and of a state.
    """

    steps: int
    batch: int
    input_size: int
    hidden_size: int

    def __post_init__(self) -> None:
        """Refuse empty sizes."""
        if min(self.steps, self.batch, self.input_size, self.hidden_size) < 1:
            message = f"recurrent layer {self}: every size must be positive"
            raise InputError(message)

    @property
    def rows(self) -> int:
        """Sequences times steps."""
        return self.steps * self.batch

    @property
    def states(self) -> int:
        """Elements of the states of all steps."""
        return self.rows * self.hidden_size


@dataclass(frozen=True, slots=True)
class _Cell:
    """What a step computes, for each element of its state.

    Attributes:
        gates: products with the input, and with the state.
        kept: tensors of the states' size that backward needs besides the gates and the result.
        activations: forward and backward alike.
        forward_adds, backward_adds: other lane operations: sums of both products, products with gates.
        has_own_gradients: whether gradients of the products with the state differ from those with the input.
    """

    gates: int
    kept: int
    activations: int
    forward_adds: int
    backward_adds: int
    has_own_gradients: bool


_LSTM = _Cell(gates=4, kept=1, activations=5, forward_adds=8, backward_adds=9, has_own_gradients=False)
"""Three sigmoids, two tanh; c = f c + i g, h = o tanh(c), and four sums of products."""
_GRU = _Cell(gates=3, kept=1, activations=3, forward_adds=7, backward_adds=9, has_own_gradients=True)
"""Two sigmoids, one tanh; n takes r times its product with the state, h = (1 - z) n + z h, and three sums."""


def lstm(
    tape: Tape,
    name: str,
    tensor: Tensor,
    shape: RecurrentShape,
    *,
    has_bias: bool = True,
    initial: Tensor | None = None,
) -> Tensor:
    """States of an LSTM after every step, [steps, batch, hidden].

    A bias has two vectors, one for each product, as PyTorch's layer.

    Args:
        tape: what records it.
        name: of the layer and of its result.
        tensor: the input, [steps, batch, input].
        shape: all sizes.
        has_bias: whether both products have a bias.
        initial: the state before the first step, cells included, which gets a gradient; zero if None.
    """
    return _record(tape, name, tensor, _Layer(shape, _LSTM, initial), has_bias=has_bias)


def gru(
    tape: Tape,
    name: str,
    tensor: Tensor,
    shape: RecurrentShape,
    *,
    has_bias: bool = True,
    initial: Tensor | None = None,
) -> Tensor:
    """States of a gated recurrent unit after every step; arguments as of `lstm`."""
    return _record(tape, name, tensor, _Layer(shape, _GRU, initial), has_bias=has_bias)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Sizes, the cell, and the state before the first step, if it is not zero."""

    shape: RecurrentShape
    cell: _Cell
    initial: Tensor | None

    @property
    def width(self) -> int:
        """Columns of both products."""
        return self.cell.gates * self.shape.hidden_size

    @property
    def initials(self) -> tuple[Tensor, ...]:
        return () if self.initial is None else (self.initial,)

    @property
    def backward_steps(self) -> int:
        """Steps that pass a gradient on to a state before."""
        return self.shape.steps - (self.initial is None)

    def works(self, kind: VectorKind, adds: int) -> tuple[VectorWork, ...]:
        """Lane operations of all steps."""
        states = self.shape.states
        return VectorWork(kind, self.cell.activations * states), VectorWork(VectorKind.ADD, adds * states)


def _record(tape: Tape, name: str, tensor: Tensor, layer: _Layer, *, has_bias: bool) -> Tensor:
    shape, cell = layer.shape, layer.cell
    given = linear(tape, f"{name}.input", tensor, rows=shape.rows, inner=shape.input_size, width=layer.width)
    if has_bias:
        given = bias(tape, f"{name}.bias", (given,), size=2 * layer.width)[0]
    weight = tape.weight(f"{name}.state_weight", shape.hidden_size * layer.width)
    result = tape.tensor(name, shape.states)
    kept = (
        tape.tensor(f"{name}.gates", cell.gates * shape.states),
        tape.tensor(f"{name}.cells", cell.kept * shape.states),
    )
    step = Matmul(1, m=shape.batch, n=layer.width, k=shape.hidden_size)
    works = layer.works(VectorKind.ACTIVATION_FORWARD, cell.forward_adds)
    _steps(tape, name, ((given, weight, *layer.initials), (result, *kept)), (step, shape.steps), works)
    tape.on_backward(lambda: _differentiate(tape, name, layer, (given, weight, result, *kept)))
    return result


def _differentiate(tape: Tape, name: str, layer: _Layer, tensors: tuple[Tensor, ...]) -> None:
    """Walk the steps in reverse, then take the gradient of the state's weight."""
    given, weight, result, *kept = tensors
    shape, steps = layer.shape, layer.backward_steps
    read = (weight, result, *kept, *layer.initials, tape.gradient(result))
    target = tape.add_gradient(given, name)
    own = tape.tensor(f"d_{name}.state_products", given.elements) if layer.cell.has_own_gradients else target
    written = {each.name: each for each in (target, own)}
    written |= {each.name: each for each in (tape.add_gradient(initial, name) for initial in layer.initials)}
    step = Matmul(1, m=shape.batch, n=shape.hidden_size, k=layer.width)
    works = layer.works(VectorKind.ACTIVATION_BACKWARD, layer.cell.backward_adds)
    _steps(tape, f"{name}.gradient", (read, tuple(written.values())), (step, steps), works)
    if steps:
        product = Matmul(1, m=shape.hidden_size, n=layer.width, k=steps * shape.batch)
        tape.emit(
            f"{name}.weight_gradient",
            OperatorKind.MATMUL,
            Fusibility.MATMUL,
            (result, own),
            (tape.add_gradient(weight, name),),
            matmuls=(product,),
            left=(result,),
            right=(own,),
        )


def _steps(
    tape: Tape,
    name: str,
    tensors: tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
    products: tuple[Matmul, int],
    works: tuple[VectorWork, ...],
) -> None:
    """One operator of so many products one after the other; vector work alone where there are none."""
    (inputs, outputs), (step, count) = tensors, products
    kind = OperatorKind.RECURRENT if count else OperatorKind.VECTOR
    tape.emit(
        name,
        kind,
        Fusibility.OPAQUE,
        inputs,
        outputs,
        matmuls=(step,) * bool(count),
        vector_works=works,
        serial_steps=max(1, count),
    )


_FORWARD_ADDS = 5
"""Lane operations a state besides the exponential: d A, (d x) B, the state (two), and C h summed up."""
_BACKWARD_ADDS = 10
"""Those of a state's gradient and of the gradients of d, A, x, B and C, two each."""


@dataclass(frozen=True, slots=True)
class ScanShape:
    """Sizes of a scan: steps of a sequence, sequences, channels, and states of each channel."""

    steps: int
    batch: int
    channels: int
    states: int

    def __post_init__(self) -> None:
        """Refuse empty sizes."""
        if min(self.steps, self.batch, self.channels, self.states) < 1:
            message = f"scan {self}: every size must be positive"
            raise InputError(message)

    @property
    def elements(self) -> int:
        """Of the result."""
        return self.steps * self.batch * self.channels


def selective_scan(
    tape: Tape, name: str, inputs: tuple[Tensor, Tensor, Tensor, Tensor], shape: ScanShape, *, has_skip: bool = True
) -> Tensor:
    """The scan's result, [steps, batch, channels]; backward keeps its inputs.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        inputs: x and d, [steps, batch, channels]; B and C, [steps, batch, states].
        shape: all sizes.
        has_skip: whether each channel adds its input times a parameter.
    """
    decay = tape.weight(f"{name}.decay", shape.channels * shape.states)
    weights = (decay, tape.weight(f"{name}.skip", shape.channels)) if has_skip else (decay,)
    result = tape.tensor(name, shape.elements)
    cells = shape.elements * shape.states
    again = (VectorWork(VectorKind.ACTIVATION_FORWARD, cells), VectorWork(VectorKind.ADD, _FORWARD_ADDS * cells))
    kind, fusibility = OperatorKind.VECTOR, Fusibility.OPAQUE
    tape.emit(name, kind, fusibility, (*inputs, *weights), (result,), vector_works=again, serial_steps=shape.steps)

    def differentiate() -> None:
        read = (*inputs, *weights, tape.gradient(result))
        written = tuple(tape.add_gradient(each, name) for each in (*inputs, *weights))
        works = (*again, VectorWork(VectorKind.ADD, _BACKWARD_ADDS * cells))
        steps = 2 * shape.steps
        tape.emit(f"{name}.gradient", kind, fusibility, read, written, vector_works=works, serial_steps=steps)

    tape.on_backward(differentiate)
    return result


_CELLS = {"aten.lstm": lstm, "aten.gru": gru}


class RecurrentRule:
    """A stack of recurrent layers; the states behind the last step are parts of what the layers give."""

    operators = tuple(_CELLS)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Input, state before the first step, weights, then switches: biases, layers, dropout, both directions."""
        has_bias, depth, drop, is_training, is_two_way, is_batch_first = (
            call.argument(position) for position in range(3, 9)
        )
        given, tensor = call.operand(0), call.tensor(0)
        weights = _operands(call.argument(2))
        steps, batch = given.shape[1::-1] if is_batch_first else given.shape[:2]
        ways, per_way = 2 if is_two_way else 1, 4 if has_bias else 2
        if not isinstance(depth, int) or len(weights) != depth * ways * per_way:
            each = f"each of {ways * per_way} weights"
            rule = f"argument 4 must be the number of layers, {each}, where {len(weights)} weights are given"
            raise call.fault(rule)
        initial = next((each.tensor for each in _operands(call.argument(1)) if each.tensor is not None), None)
        for layer in range(depth):
            states = []
            for way in range(ways):
                own = weights[(layer * ways + way) * per_way]
                hidden = own.shape[0] // (4 if call.op == "aten.lstm" else 3)
                shape = RecurrentShape(steps=steps, batch=batch, input_size=own.shape[1], hidden_size=hidden)
                name = f"{call.name}.{layer}{'ab'[way]}"
                start = _start(tape, name, initial, batch * hidden)
                states.append(_CELLS[call.op](tape, name, tensor, shape, has_bias=bool(has_bias), initial=start))
            both = sum(state.elements for state in states)
            tensor = states[0] if ways == 1 else join(tape, f"{call.name}.{layer}", states, elements=both)
            if drop and is_training and layer < depth - 1:
                tensor = ops.dropout(tape, f"{call.name}.dropout{layer}", tensor)
        return (tensor, *(_last_states(tape, call, tensor, number) for number in range(1, len(call.results))))


def _operands(value: Value) -> list[CallOperand]:
    """The tensors of a list."""
    values = value if isinstance(value, tuple) else (value,)
    return [each for each in values if isinstance(each, CallOperand)]


def _start(tape: Tape, name: str, initial: Tensor | None, elements: int) -> Tensor | None:
    """A layer's part of the state before the first step."""
    if initial is None:
        return None
    return ops.view(tape, f"{name}.start", initial, elements=min(elements, initial.elements), adjoint=None)


def _last_states(tape: Tape, call: OperatorCall, states: Tensor, number: int) -> Tensor:
    """What is given besides the states of all steps: those behind the last one."""
    name = f"{call.name}.last{number}"
    if not call.is_used(number):
        return tape.tensor(name, 0)
    return ops.view(tape, name, states, elements=min(prod(call.results[number]), states.elements), adjoint=None)


MIXER, SCAN = "phaze.mamba_mixer", "phaze.selective_scan"


class MambaRule:
    """The mixer (Gu and Dao 2023, section 3.4)."""

    operators = (MIXER,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """From the normalised input to the mixer's output."""
        name, given = call.name, call.operand(0)
        batch, steps, width = given.shape
        kernel, step_weight, decay = (call.operand(position).shape for position in (2, 5, 7))
        channels, rank, states = kernel[0], step_weight[1], decay[1]
        rows, inner = batch * steps, batch * steps * channels
        both = ops.linear(tape, f"{name}.in", call.tensor(0), rows=rows, inner=width, width=2 * channels)
        mixed, gate = split(tape, f"{name}.halves", both, (inner, inner))
        mixed = self._convolve(tape, call, mixed)
        mixed = ops.elementwise(tape, f"{name}.activation", (mixed,), ops.SMOOTH_ACTIVATION)
        chosen = ops.linear(tape, f"{name}.x", mixed, rows=rows, inner=channels, width=rank + 2 * states)
        sizes = (rows * rank, rows * states, rows * states)
        low, taken, given_out = split(tape, f"{name}.parts", chosen, sizes)
        delta = ops.linear(tape, f"{name}.step", low, rows=rows, inner=rank, width=channels, has_bias=True)
        delta = ops.elementwise(tape, f"{name}.softplus", (delta,), ops.SMOOTH_ACTIVATION)
        shape = ScanShape(steps=steps, batch=batch, channels=channels, states=states)
        scanned = selective_scan(tape, f"{name}.scan", (mixed, delta, taken, given_out), shape)
        gated = ops.elementwise(tape, f"{name}.gate", (gate, scanned), ops.GATED_ACTIVATION)
        return (ops.linear(tape, name, gated, rows=rows, inner=channels, width=width),)

    def _convolve(self, tape: Tape, call: OperatorCall, mixed: Tensor) -> Tensor:
        """The causal depthwise convolution along the sequence: padded on both sides, then cut."""
        batch, steps, _ = call.operand(0).shape
        channels, _, taps = call.operand(2).shape
        shape = ConvolutionShape(batch, channels, channels, (steps,), (taps,), padding=(taps - 1,), groups=channels)
        wide = convolution(tape, f"{call.name}.convolution", mixed, shape, has_bias=call.operand(3).is_parameter)
        return ops.view(tape, f"{call.name}.cut", wide, elements=mixed.elements, adjoint=None)


class SelectiveScanRule:
    """Mamba's scan with what its kernel does besides: the bias and the softplus of the steps, and the gate."""

    operators = (SCAN,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """From channels [b, d, s], steps, decays [d, n], B and C [b, n, s]; skip, gate and bias may be absent."""
        name, (batch, channels, steps) = call.name, call.operand(0).shape
        mixed, delta, taken, given_out = (call.tensor(position) for position in (0, 1, 3, 4))
        skip, gate, added = (call.argument(position) for position in (5, 6, 7))
        if isinstance(added, CallOperand) and added.is_parameter:
            delta = ops.bias(tape, f"{name}.step_bias", (delta,), size=added.parameter_elements)[0]
        delta = ops.elementwise(tape, f"{name}.softplus", (delta,), ops.SMOOTH_ACTIVATION)
        shape = ScanShape(steps=steps, batch=batch, channels=channels, states=call.operand(2).shape[-1])
        has_skip = isinstance(skip, CallOperand) and skip.is_parameter
        is_gated = isinstance(gate, CallOperand) and gate.tensor is not None
        inner = f"{name}.scan" if is_gated else name
        scanned = selective_scan(tape, inner, (mixed, delta, taken, given_out), shape, has_skip=has_skip)
        if not is_gated:
            return (scanned,)
        return (ops.elementwise(tape, name, (call.tensor(6), scanned), ops.GATED_ACTIVATION),)
