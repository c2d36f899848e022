"""Work over windows of an image or a signal: convolutions of one, two or three axes, their transposes, and pooling.

Sums and means over axes are windows too.
"""

from math import prod

from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import average_pool, convolution, max_pool, transposed_convolution
from phaze_opt.graph.operations import Elementwise, elementwise, shift
from phaze_opt.graph.operator import VectorKind
from phaze_opt.graph.program import Fusibility, Tape, Tensor
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


_MAXIMA = (
    "aten.max_pool1d",
    "aten.max_pool2d",
    "aten.max_pool3d",
    "aten.max_pool2d_with_indices",
    "aten.max_pool3d_with_indices",
    "aten.adaptive_max_pool1d",
    "aten.adaptive_max_pool2d",
    "aten.amax",
    "aten.amin",
)
_MEANS = (
    "aten.avg_pool1d",
    "aten.avg_pool2d",
    "aten.avg_pool3d",
    "aten.adaptive_avg_pool1d",
    "aten.adaptive_avg_pool2d",
    "aten.adaptive_avg_pool3d",
    "aten._adaptive_avg_pool2d",
    "aten.mean",
    "aten.sum",
)
_SPREADS = ("aten.var", "aten.std", "aten.linalg_vector_norm")
_SPREAD = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True, fusibility=Fusibility.OPAQUE)
"""A sum of squares: forward multiplies and adds, backward reads the input again and multiplies."""


class PoolingRule:
    """The largest element or the mean of every window; a reduction over axes is one window a result."""

    operators = (*_MAXIMA, *_MEANS, *_SPREADS)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The pooled tensor; places that the operation gives besides are those that backward keeps."""
        given = call.operand(0)
        if call.op in _SPREADS:
            tensors = (call.tensor(0),)
            work = given.elements
            return (elementwise(tape, call.name, tensors, _SPREAD, elements=call.elements, work_elements=work),)
        pool = max_pool if call.op in _MAXIMA else average_pool
        result = pool(tape, call.name, call.tensor(0), elements=call.elements, window=_window(call, given.elements))
        others = [tape.tensor(f"{call.name}.place{number}", 0) for number in range(1, len(call.results))]
        return (result, *others)


def _window(call: OperatorCall, elements: int) -> int:
    """Elements of one window."""
    is_windowed = "pool" in call.op and "adaptive" not in call.op
    if is_windowed:
        rank = int(call.op.partition("pool")[2][0])
        return prod(call.numbers(1, "kernel_size", (1,) * rank))
    return max(1, elements // max(1, call.elements))
