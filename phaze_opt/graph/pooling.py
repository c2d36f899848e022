"""Pooling on a `Tape`: the largest element of a window, or the mean."""

from phaze_opt.graph.operator import OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tape, Tensor

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
