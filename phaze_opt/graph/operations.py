"""Operations of a layer, recorded forward on a `Tape` together with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.graph.operator import Matmul, OperatorKind, VectorKind, VectorWork
from phaze_opt.graph.program import Fusibility, Tensor
from phaze_opt.graph.tape import Tape

MASK_BYTES = 1
"""Bytes of one element of a dropout mask (Korthikanti et al. 2022, section 4.1)."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Vector work of an operation in both directions, and which of its tensors backward reads."""

    forward: tuple[VectorWork, ...]
    backward: tuple[VectorWork, ...]
    needs_input: bool = False
    needs_output: bool = False
    fusibility: Fusibility = Fusibility.ELEMENTWISE


def matmul(tape: Tape, name: str, left: Tensor, right: Tensor, *, shape: Matmul, output: str) -> Tensor:
    """``left`` [batch, m, k] x ``right`` [batch, k, n] into one tensor."""
    elements = shape.batch * shape.m * shape.n
    return split_matmul(tape, name, left, right, shape=shape, outputs={output: elements})[0]


def split_matmul(
    tape: Tape, name: str, left: Tensor, right: Tensor, *, shape: Matmul, outputs: dict[str, int]
) -> list[Tensor]:
    """``left`` [batch, m, k] x ``right`` [batch, k, n] into tensors of the given elements, side by side."""
    results = [tape.tensor(output, elements) for output, elements in outputs.items()]
    _matmul(tape, name, (left, right), tuple(results), shape)
    to_left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    to_right = Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)

    def differentiate() -> None:
        given = tuple(tape.gradient(result) for result in results)
        _matmul(tape, f"{name}.input_gradient", (*given, right), (tape.add_gradient(left, name),), to_left)
        _matmul(tape, f"{name}.weight_gradient", (left, *given), (tape.add_gradient(right, name),), to_right)

    tape.on_backward(differentiate)
    return results


def bias(tape: Tape, name: str, tensors: Sequence[Tensor], *, size: int, num_read: int | None = None) -> list[Tensor]:
    """Add a vector, or rows of a table, of ``size`` parameters to tensors that lie side by side.

    Backward passes the gradient on unchanged and sums it up into the vector or table.
    """
    vector = tape.weight(f"{name}.vector", size, num_read=num_read)
    results = [tape.tensor(f"{tensor.name}.biased", tensor.elements) for tensor in tensors]
    works = (VectorWork(VectorKind.ADD, sum(tensor.elements for tensor in tensors)),)
    _vector(tape, name, (*tensors, vector), tuple(results), works)

    def differentiate() -> None:
        given = [tape.gradient(result) for result in results]
        for tensor, gradient in zip(tensors, given, strict=True):
            tape.pass_gradient(tensor, gradient)
        total = (tape.add_gradient(vector, name),)
        _vector(tape, f"{name}.gradient", given, total, works, fusibility=Fusibility.OPAQUE)

    tape.on_backward(differentiate)
    return results


def add(tape: Tape, name: str, left: Tensor, right: Tensor) -> Tensor:
    """Residual addition; its gradient goes to both sides unchanged."""
    result = tape.tensor(name, left.elements)
    _vector(tape, name, (left, right), (result,), (VectorWork(VectorKind.ADD, left.elements),))

    def differentiate() -> None:
        gradient = tape.gradient(result)
        for tensor in (left, right):
            tape.pass_gradient(tensor, gradient)

    tape.on_backward(differentiate)
    return result


def elementwise(
    tape: Tape,
    name: str,
    inputs: Sequence[Tensor],
    *,
    elements: int,
    rule: Elementwise,
    weights: Sequence[Tensor] = (),
    is_differentiable: bool = True,
) -> Tensor:
    """Vector work from ``inputs`` and ``weights`` to one tensor, with the derivative that ``rule`` states."""
    result = tape.tensor(name, elements)
    _vector(tape, name, (*inputs, *weights), (result,), rule.forward, fusibility=rule.fusibility)

    def differentiate() -> None:
        kept = (*inputs, *weights) if rule.needs_input else tuple(weights)
        kept = (*kept, result) if rule.needs_output else kept
        given = (tape.gradient(result), *kept)
        targets = inputs if is_differentiable else ()
        results = tuple(tape.add_gradient(tensor, name) for tensor in (*targets, *weights))
        _vector(tape, f"{name}.gradient", given, results, rule.backward, fusibility=rule.fusibility)

    tape.on_backward(differentiate)
    return result


def dropout(tape: Tape, name: str, tensor: Tensor) -> Tensor:
    """Zero elements at random; the mask is kept."""
    result = tape.tensor(name, tensor.elements)
    mask = tape.tensor(f"{name}.mask", tensor.elements, element_bytes=MASK_BYTES)
    works = (VectorWork(VectorKind.ADD, tensor.elements),)
    _vector(tape, name, (tensor,), (result, mask), works)

    def differentiate() -> None:
        given = (tape.gradient(result), mask)
        _vector(tape, f"{name}.gradient", given, (tape.add_gradient(tensor, name),), works)

    tape.on_backward(differentiate)
    return result


def attention(
    tape: Tape,
    name: str,
    inputs: Sequence[Tensor],
    *,
    elements: int,
    forward: tuple[tuple[Matmul, ...], tuple[VectorWork, ...]],
    backward: tuple[tuple[Matmul, ...], tuple[VectorWork, ...]],
) -> Tensor:
    """Fused attention: query, key, value in; output out; nothing of the s x s scores reaches memory."""
    result = tape.tensor(name, elements)
    kind = OperatorKind.ATTENTION
    tape.emit(name, kind, Fusibility.OPAQUE, inputs, (result,), matmuls=forward[0], vector_works=forward[1])

    def differentiate() -> None:
        given = (*inputs, result, tape.gradient(result))
        results = tuple(tape.add_gradient(tensor, name) for tensor in inputs)
        matmuls, works = backward
        tape.emit(f"{name}.gradient", kind, Fusibility.OPAQUE, given, results, matmuls=matmuls, vector_works=works)

    tape.on_backward(differentiate)
    return result


def loss(tape: Tape, name: str, logits: Tensor) -> Tensor:
    """Cross-entropy of logits: forward keeps the probabilities, backward subtracts the labels from them."""
    probabilities = tape.tensor(f"{name}.probabilities", logits.elements)
    works = (VectorWork(VectorKind.CROSS_ENTROPY, logits.elements),)
    _vector(tape, name, (logits,), (probabilities,), works, fusibility=Fusibility.OPAQUE)

    def differentiate() -> None:
        subtract = (VectorWork(VectorKind.ADD, logits.elements),)
        target = (tape.add_gradient(logits, name),)
        _vector(tape, f"{name}.gradient", (probabilities,), target, subtract, fusibility=Fusibility.OPAQUE)

    tape.on_backward(differentiate)
    return probabilities


def _matmul(tape: Tape, name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], shape: Matmul) -> None:
    tape.emit(name, OperatorKind.MATMUL, Fusibility.MATMUL, inputs, outputs, matmuls=(shape,))


def _vector(
    tape: Tape,
    name: str,
    inputs: Sequence[Tensor],
    outputs: tuple[Tensor, ...],
    works: tuple[VectorWork, ...],
    *,
    fusibility: Fusibility = Fusibility.ELEMENTWISE,
) -> None:
    tape.emit(name, OperatorKind.VECTOR, fusibility, inputs, outputs, vector_works=works)
