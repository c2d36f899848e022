"""Convolutions on a `Tape`, with the gradients of their input and their weight.

Like a matmul a convolution takes the elementwise chain that alone reads its result as an epilogue. A batch norm in
training does not: it needs the statistics of the whole result first, so the result has two readers.
"""

from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.operations import bias
from phaze_opt.graph.operator import Matmul, OperatorKind
from phaze_opt.graph.program import Fusibility, Tape, Tensor


def convolution(
    tape: Tape,
    name: str,
    tensor: Tensor,
    shape: ConvolutionShape,
    *,
    has_bias: bool = False,
    is_trained: bool = True,
    is_differentiable: bool = True,
) -> Tensor:
    """The convolution of a tensor of ``shape.in_elements`` with a weight of its own: ``shape.out_elements``.

    Backward keeps the input.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        tensor: the input.
        shape: all sizes.
        has_bias: whether a number for each channel is added.
        is_trained: whether the weight is a parameter, else a constant, which has no gradient.
        is_differentiable: whether the input has a gradient (images have none).
    """
    weight = _weight(tape, name, shape, is_trained=is_trained)
    result = tape.tensor(name, shape.out_elements)
    _product(tape, name, (tensor, weight), result, shape.forward)

    def differentiate() -> None:
        given = tape.gradient(result)
        if is_differentiable:
            target = tape.add_gradient(tensor, name)
            _product(tape, f"{name}.input_gradient", (given, weight), target, shape.input_gradient)
        if is_trained:
            target = tape.add_gradient(weight, name)
            _product(tape, f"{name}.weight_gradient", (tensor, given), target, shape.weight_gradient)

    tape.on_backward(differentiate)
    return _biased(tape, name, result, shape.out_channels) if has_bias else result


def transposed_convolution(
    tape: Tape, name: str, tensor: Tensor, shape: ConvolutionShape, *, has_bias: bool = False, is_trained: bool = True
) -> Tensor:
    """What the gradient of an input is to a convolution: from ``shape.out_elements`` to ``shape.in_elements``.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        tensor: of the elements that ``shape`` results in.
        shape: of the convolution that leads from the result back to ``tensor``.
        has_bias: whether a number for each channel is added.
        is_trained: whether the weight is a parameter, else a constant, which has no gradient.
    """
    weight = _weight(tape, name, shape, is_trained=is_trained)
    result = tape.tensor(name, shape.in_elements)
    _product(tape, name, (tensor, weight), result, shape.input_gradient)

    def differentiate() -> None:
        given = tape.gradient(result)
        target = tape.add_gradient(tensor, name)
        _product(tape, f"{name}.input_gradient", (given, weight), target, shape.forward)
        if is_trained:
            target = tape.add_gradient(weight, name)
            _product(tape, f"{name}.weight_gradient", (given, tensor), target, shape.weight_gradient)

    tape.on_backward(differentiate)
    return _biased(tape, name, result, shape.in_channels) if has_bias else result


def _weight(tape: Tape, name: str, shape: ConvolutionShape, *, is_trained: bool) -> Tensor:
    declare = tape.weight if is_trained else tape.constant
    return declare(f"{name}.weight", shape.weight_elements)


def _biased(tape: Tape, name: str, result: Tensor, channels: int) -> Tensor:
    return bias(tape, f"{name}_bias", (result,), size=channels)[0]


def _product(tape: Tape, name: str, operands: tuple[Tensor, Tensor], result: Tensor, shape: Matmul) -> None:
    left, right = operands
    tape.emit(
        name,
        OperatorKind.MATMUL,
        Fusibility.MATMUL,
        operands,
        (result,),
        matmuls=(shape,),
        left=(left,),
        right=(right,),
    )
