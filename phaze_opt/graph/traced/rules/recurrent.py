"""Work that goes through a sequence step by step: LSTM, GRU and Mamba's scan."""

from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.recurrent import RecurrentShape, ScanShape, gru, lstm, selective_scan
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, Value
from phaze_opt.graph.traced.rules.moves import join, split

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
