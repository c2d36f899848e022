"""Collectives and views on a `Tape`, each with its adjoint in backward."""

from __future__ import annotations

from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind, OperatorKind
from phaze_opt.graph.program import Fusibility, Tensor, TensorRole
from phaze_opt.graph.tape import Tape

_ADJOINT = {
    CollectiveKind.ALL_GATHER: CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.REDUCE_SCATTER: CollectiveKind.ALL_GATHER,
    CollectiveKind.ALL_TO_ALL: CollectiveKind.ALL_TO_ALL,
}


def collective(
    tape: Tape,
    name: str,
    tensor: Tensor,
    *,
    kind: CollectiveKind,
    elements: int,
    group: CollectiveGroup = CollectiveGroup.TENSOR,
    is_overlapped: bool = False,
    has_regather: bool = False,
) -> Tensor:
    """All-gather, reduce-scatter or all-to-all to ``elements`` elements; backward is the adjoint collective.

    Of an all-gathered tensor only the shard is kept: it is gathered again during backward, behind the matmuls
    (Korthikanti et al. 2022, section 4.2.2). That gather is an operator, overlapped, if ``has_regather``; nothing
    waits for it, so designs that are searched without it lose nothing but traffic that is hidden.
    """
    result = tape.tensor(name, elements)
    if kind is CollectiveKind.ALL_GATHER:
        result = Tensor(name, elements, tape.dtype_bytes, result.role, tensor.name, tensor.num_bytes)
    payload = float(max(tensor.num_bytes, result.num_bytes))
    _collective(tape, name, tensor, result, Collective(kind, payload, group, is_overlapped))

    def differentiate() -> None:
        gradient = tape.gradient(result)
        target = tape.add_gradient(tensor, name)
        if has_regather:
            again = Collective(CollectiveKind.ALL_GATHER, payload, group, is_overlapped=True)
            tape.emit(f"{name}.again", OperatorKind.COLLECTIVE, Fusibility.OPAQUE, (tensor,), (), collective=again)
        adjoint = Collective(_ADJOINT[kind], payload, group, is_overlapped)
        _collective(tape, f"{name}.gradient", gradient, target, adjoint)

    tape.on_backward(differentiate)
    return result


def all_reduce(tape: Tape, name: str, tensor: Tensor) -> Tensor:
    """Sum over the group; the gradient of the sum is every member's gradient (Megatron's g)."""
    result = tape.tensor(name, tensor.elements)
    _collective(tape, name, tensor, result, Collective(CollectiveKind.ALL_REDUCE, float(tensor.num_bytes)))
    tape.on_backward(lambda: tape.pass_gradient(tensor, tape.gradient(result)))
    return result


def view(
    tape: Tape, name: str, tensor: Tensor, *, elements: int | None = None, adjoint: CollectiveKind | None
) -> Tensor:
    """A part, or all, of a tensor at no cost; backward is the ``adjoint`` collective, or a view if None.

    An all-reduce as adjoint makes it Megatron's f, an all-gather makes it the split of replicated tokens.
    """
    count = tensor.elements if elements is None else elements
    kept_as, kept_bytes = tensor.kept_as or tensor.name, tensor.kept_bytes or tensor.num_bytes
    result = Tensor(name, count, tensor.element_bytes, tensor.role, kept_as, kept_bytes)
    tape.emit(name, OperatorKind.VIEW, Fusibility.OPAQUE, (tensor,), (result,))

    def differentiate() -> None:
        gradient = tape.gradient(result)
        if adjoint is None:
            part = Tensor(f"d_{name}.view", count, tensor.element_bytes, TensorRole.GRADIENT)
            tape.emit(f"{name}.gradient", OperatorKind.VIEW, Fusibility.OPAQUE, (gradient,), (part,))
            tape.pass_gradient(tensor, part)
            return
        target = tape.add_gradient(tensor, name)
        _collective(tape, f"{name}.gradient", gradient, target, Collective(adjoint, float(tensor.num_bytes)))

    tape.on_backward(differentiate)
    return result


def gather_columns(tape: Tape, name: str, tensor: Tensor, *, elements: int) -> Tensor:
    """All-gather of a tensor whose users are replicated: backward only takes this device's part."""
    result = tape.tensor(name, elements)
    payload = Collective(CollectiveKind.ALL_GATHER, float(result.num_bytes))
    _collective(tape, name, tensor, result, payload)

    def differentiate() -> None:
        gradient = tape.gradient(result)
        tape.emit(
            f"{name}.gradient",
            OperatorKind.VIEW,
            Fusibility.OPAQUE,
            (gradient,),
            (tape.add_gradient(tensor, name),),
        )

    tape.on_backward(differentiate)
    return result


def statistics(tape: Tape, name: str, tensor: Tensor, *, payload_bytes: float) -> None:
    """All-reduce of small per-token statistics that the loss needs over all vocabulary shards."""
    result = Tensor(name, 0, tape.dtype_bytes, TensorRole.ACTIVATION)
    _collective(tape, name, tensor, result, Collective(CollectiveKind.ALL_REDUCE, payload_bytes))


def _collective(tape: Tape, name: str, given: Tensor, result: Tensor, collective: Collective) -> None:
    kind = OperatorKind.COLLECTIVE
    tape.emit(name, kind, Fusibility.OPAQUE, (given,), (result,), collective=collective)
