"""A Mamba-1 mixer as one operation of the traced model: its projections, convolution, scan and gate."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.scan import ScanShape, selective_scan
from phaze_opt.graph.traced.operator_rule import OperatorCall
from phaze_opt.graph.traced.rules.moves import split

MIXER = "phaze.mamba_mixer"


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
