"""Convolutions of one, two or three axes, grouped, strided, dilated, and their transposes."""

from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution, transposed_convolution
from phaze_opt.graph.operations import shift
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall, Shape

_DIRECT = ("aten.conv1d", "aten.conv2d", "aten.conv3d")
_TRANSPOSED = ("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")


class ConvolutionRule:
    """A convolution with a weight of its own, or a constant one; the result is of the size that the call states."""

    operators = (*_DIRECT, *_TRANSPOSED, "aten.convolution", "aten._convolution")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The convolution and its bias."""
        given, weight = call.operand(0), call.operand(1)
        added = call.argument(2, "bias")
        has_bias = isinstance(added, CallOperand) and added.is_parameter
        is_transposed = call.op in _TRANSPOSED or call.argument(6, "transposed") is True
        image, small = (call.results[0], given.shape) if is_transposed else (given.shape, call.results[0])
        shape = _shape(call, image, weight.shape, small)
        terms = {"has_bias": has_bias, "is_trained": weight.is_parameter}
        if is_transposed:
            result = transposed_convolution(tape, call.name, call.tensor(0), shape, **terms)
        else:
            result = convolution(tape, call.name, call.tensor(0), shape, is_differentiable=not given.is_data, **terms)
        is_shifted = isinstance(added, CallOperand) and not has_bias
        return (shift(tape, f"{call.name}_bias", result) if is_shifted else result,)


def _shape(call: OperatorCall, image: Shape, weight: Shape, small: Shape) -> ConvolutionShape:
    """All sizes; a transposed convolution is stated by the one that leads back."""
    rank = len(weight) - 2
    ones, zeros = (1,) * rank, (0,) * rank
    named = {"stride": 3, "padding": 4, "dilation": 5, "groups": 6}
    if call.op in _TRANSPOSED:
        named = {"stride": 3, "padding": 4, "groups": 6, "dilation": 7}
    if call.op in ("aten.convolution", "aten._convolution"):
        named["groups"] = 8
    dilation = call.numbers(named["dilation"], "dilation", ones)
    padding = call.argument(named["padding"], "padding", zeros)
    if isinstance(padding, str):
        edges = zip(weight[2:], dilation, strict=True)
        reach = tuple(step * (taps - 1) // 2 for taps, step in edges) if padding == "same" else zeros
    else:
        reach = call.numbers(named["padding"], "padding", zeros)
    (groups,) = call.numbers(named["groups"], "groups", (1,))
    return ConvolutionShape(
        batch=image[0],
        in_channels=image[1],
        out_channels=small[1],
        in_size=image[2:],
        kernel=weight[2:],
        stride=call.numbers(named["stride"], "stride", ones),
        padding=reach,
        dilation=dilation,
        groups=groups,
        given_out_size=small[2:],
    )
