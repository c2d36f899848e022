"""Layers of convolutional nets on a `Tape`, with their gradients: convolutions, batch norm in training, pooling.

Like a matmul a convolution takes the elementwise chain that alone reads its result as an epilogue. A batch norm in
training does not: it needs the statistics of the whole result first, so the result has two readers. It takes two passes
each way; the second, which normalises, is elementwise and fuses with what follows (an addition, a rectifier).
"""

from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.operations import bias
from phaze_opt.graph.operator import Matmul, OperatorKind, VectorKind, VectorWork
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


STATISTIC_BYTES = 4
"""Bytes of a mean or deviation: fp32."""
STATISTICS_WORK = 2
"""Lane operations an element: a sum, and a sum of squares."""
NORMALISE_WORK = 2
"""Scale and shift, both folded with the statistics."""
REDUCTION_WORK = 4
"""Gradients of scale and shift: the normalised element anew (two), its product with the gradient, and both sums."""
GRADIENT_WORK = 4
"""Gradient of the input: the normalised element anew (two), scaled, and taken off the scaled gradient."""


def batch_norm(tape: Tape, name: str, tensor: Tensor, *, channels: int, is_affine: bool = True) -> Tensor:
    """The tensor with every channel normalised over the batch.

    Backward keeps the input and, of each channel, mean and inverse deviation.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        tensor: the input.
        channels: of the input.
        is_affine: whether each channel has a scale and a shift.
    """
    weights = (tape.weight(f"{name}.scale_and_shift", 2 * channels),) if is_affine else ()
    found = tape.tensor(f"{name}.statistics", 2 * channels, element_bytes=STATISTIC_BYTES)
    result = tape.tensor(name, tensor.elements)
    _pass(tape, f"{name}.statistics", (tensor,), (found,), tensor.elements * STATISTICS_WORK, is_reduction=True)
    _pass(tape, name, (tensor, found, *weights), (result,), tensor.elements * NORMALISE_WORK)

    def differentiate() -> None:
        given = tape.gradient(result)
        sums = tape.tensor(f"d_{name}.sums", 2 * channels, element_bytes=STATISTIC_BYTES)
        reduced = (sums, *(tape.add_gradient(weight, name) for weight in weights))
        work = tensor.elements * REDUCTION_WORK
        _pass(tape, f"{name}.reductions", (tensor, found, given), reduced, work, is_reduction=True)
        target = (tape.add_gradient(tensor, name),)
        read = (tensor, found, *weights, given, sums)
        _pass(tape, f"{name}.gradient", read, target, tensor.elements * GRADIENT_WORK)

    tape.on_backward(differentiate)
    return result


def _pass(
    tape: Tape,
    name: str,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    work: int,
    *,
    is_reduction: bool = False,
) -> None:
    """One pass over the tensor; one that reduces never fuses."""
    fusibility = Fusibility.OPAQUE if is_reduction else Fusibility.ELEMENTWISE
    works = (VectorWork(VectorKind.ADD, work),)
    tape.emit(name, OperatorKind.VECTOR, fusibility, inputs, outputs, vector_works=works)


INDEX_BYTES = 1
"""Bytes kept for a window of a maximum: its place in the window (a stated choice; PyTorch keeps eight)."""


def max_pool(tape: Tape, name: str, tensor: Tensor, *, elements: int, window: int) -> Tensor:
    """The largest of every window of ``window`` elements.

    Backward keeps where each largest element lies and nothing of the input: every window adds its gradient there.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        tensor: the input.
        elements: of the result.
        window: elements of a window.
    """
    places = tape.tensor(f"{name}.places", elements, element_bytes=INDEX_BYTES)
    result = tape.tensor(name, elements)
    _move(tape, name, (tensor,), (result, places), elements * window)

    def differentiate() -> None:
        given = tape.gradient(result)
        _move(
            tape,
            f"{name}.gradient",
            (places, given),
            (tape.add_gradient(tensor, name),),
            max(tensor.elements, elements),
        )

    tape.on_backward(differentiate)
    return result


def average_pool(tape: Tape, name: str, tensor: Tensor, *, elements: int, window: int) -> Tensor:
    """The mean of every window of ``window`` elements; a window of an image is its global mean.

    Backward keeps nothing: every element of a window gets its share of the gradient.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        tensor: the input.
        elements: of the result.
        window: elements of a window.
    """
    result = tape.tensor(name, elements)
    _move(tape, name, (tensor,), (result,), elements * window)

    def differentiate() -> None:
        target = (tape.add_gradient(tensor, name),)
        _move(tape, f"{name}.gradient", (tape.gradient(result),), target, elements * window)

    tape.on_backward(differentiate)
    return result


def _move(tape: Tape, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], work: int) -> None:
    """A lane operation for each element looked at; windows cross rows, so nothing fuses with them."""
    works = (VectorWork(VectorKind.ADD, work),)
    tape.emit(name, OperatorKind.VECTOR, Fusibility.OPAQUE, inputs, outputs, vector_works=works)
