"""Batch norm in training on a `Tape`: statistics of every channel over the whole batch, then the normalised tensor.

Two passes each way, and none is a matmul's epilogue: the statistics need the whole input first, so the input is read
again to be normalised. That second pass is elementwise and fuses with what follows (an addition, a rectifier).
"""

from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor

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
