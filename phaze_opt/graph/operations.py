"""Operations of a layer, recorded forward on a `Tape` together with their gradients: matmuls, vector work, collectives.

A vector operation is described by an `Elementwise` rule: its work in both directions and what its backward reads. A
collective or view is recorded with its adjoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze_opt.graph.operator import (
    Collective,
    CollectiveGroup,
    CollectiveKind,
    Matmul,
    OperatorKind,
    VectorKind,
    VectorWork,
)
from phaze_opt.graph.program import Fusibility, Tape, Tensor, TensorRole

MASK_BYTES = 1
"""Bytes of one element of a dropout mask (Korthikanti et al. 2022, section 4.1)."""


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Vector work of an operation in both directions, and which of its tensors backward reads.

    Attributes:
        forward, backward: kinds of work, each with how often an element takes it.
        needs_input, needs_output: whether backward reads the inputs, the output.
        fusibility: how it fuses.
    """

    forward: Mapping[VectorKind, int]
    backward: Mapping[VectorKind, int]
    needs_input: bool = False
    needs_output: bool = False
    fusibility: Fusibility = Fusibility.ELEMENTWISE


NORM = Elementwise({VectorKind.NORM_FORWARD: 1}, {VectorKind.NORM_BACKWARD: 1}, needs_input=True)
"""Layer or RMS norm: backward reads the input (mean and deviation are small and not counted)."""
_ACTIVATION_WORK = ({VectorKind.ACTIVATION_FORWARD: 1}, {VectorKind.ACTIVATION_BACKWARD: 1})
SMOOTH_ACTIVATION = Elementwise(*_ACTIVATION_WORK, needs_input=True)
"""GELU, SiLU, tanh: backward reads the input."""
RELU = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, needs_output=True)
"""max(x, 0), a lane operation: backward masks by the output, which the next product keeps too."""
PUBLISHED_RELU = Elementwise(*_ACTIVATION_WORK, needs_output=True)
"""The same at the cycles of a smooth activation, as the published form of Phaze has it."""
GATED_ACTIVATION = Elementwise(
    {VectorKind.ACTIVATION_FORWARD: 1, VectorKind.ADD: 1},
    {VectorKind.ACTIVATION_BACKWARD: 1, VectorKind.ADD: 2},
    needs_input=True,
)
"""act(gate) * up: one product forward, two backward; backward reads gate and up."""
ROTARY = Elementwise({VectorKind.ROTARY: 1}, {VectorKind.ROTARY: 1})
"""Rotary positions: backward rotates back and needs nothing kept."""
SOFTMAX = Elementwise(
    {VectorKind.SOFTMAX_FORWARD: 1}, {VectorKind.SOFTMAX_BACKWARD: 1}, needs_output=True, fusibility=Fusibility.OPAQUE
)
"""Softmax over whole rows, scale and mask included: backward reads the probabilities. Never an epilogue."""
SOFT_CAP = Elementwise(
    {VectorKind.ACTIVATION_FORWARD: 1, VectorKind.ADD: 1},
    {VectorKind.ACTIVATION_BACKWARD: 1, VectorKind.ADD: 1},
    needs_output=True,
)
"""c tanh(x / c): the slope follows from the output."""
SCALE = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1})
"""Times a constant."""
JOIN = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, fusibility=Fusibility.OPAQUE)
"""Channels of several tensors side by side; one of them may be repeated: backward adds it up."""
COPY = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, fusibility=Fusibility.OPAQUE)
"""Moving rows (dispatch to experts): backward adds the rows back. Never fused."""
WEIGHTED_SUM = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 2}, needs_input=True, fusibility=Fusibility.OPAQUE)
"""Sum of expert outputs weighted by the router: backward scales them and takes one dot product each."""
LOOKUP = Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1}, needs_input=True, fusibility=Fusibility.OPAQUE)
"""Table lookup: backward adds rows up by the kept ids. Never fused."""


def linear(
    tape: Tape,
    name: str,
    left: Tensor,
    *,
    rows: int,
    inner: int,
    width: int,
    batch: int = 1,
    has_bias: bool = False,
    is_differentiable: bool = True,
) -> Tensor:
    """``rows`` of ``inner`` channels times a weight of ``width`` columns, with or without a bias; a batch of them.

    Nothing needs the gradient of ``left`` where it is not differentiable: a model's own input.
    """
    weight, shape = tape.weight(f"{name}.weight", batch * inner * width), Matmul(batch, m=rows, n=width, k=inner)
    outputs = {name: batch * rows * width}
    result = split_matmul(tape, name, left, weight, shape=shape, outputs=outputs, is_differentiable=is_differentiable)[
        0
    ]
    return bias(tape, f"{name}_bias", (result,), size=batch * width)[0] if has_bias else result


def matmul(tape: Tape, name: str, left: Tensor, right: Tensor, *, shape: Matmul, output: str) -> Tensor:
    """``left`` [batch, m, k] x ``right`` [batch, k, n] into one tensor."""
    elements = shape.batch * shape.m * shape.n
    return split_matmul(tape, name, left, right, shape=shape, outputs={output: elements})[0]


def split_matmul(
    tape: Tape,
    name: str,
    left: Tensor,
    right: Tensor,
    *,
    shape: Matmul,
    outputs: dict[str, int],
    is_differentiable: bool = True,
    is_right_differentiable: bool = True,
) -> list[Tensor]:
    """``left`` [batch, m, k] x ``right`` [batch, k, n] into tensors of the given elements, side by side.

    ``is_differentiable`` says whether ``left`` has a gradient, ``is_right_differentiable`` whether ``right`` has.
    """
    results = [tape.tensor(output, elements) for output, elements in outputs.items()]
    _matmul(tape, name, ((left,), (right,)), tuple(results), shape)
    to_left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    to_right = Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)

    def differentiate() -> None:
        given = tuple(tape.gradient(result) for result in results)
        if is_differentiable:
            _matmul(tape, f"{name}.input_gradient", (given, (right,)), (tape.add_gradient(left, name),), to_left)
        if is_right_differentiable:
            _matmul(tape, f"{name}.weight_gradient", ((left,), given), (tape.add_gradient(right, name),), to_right)

    tape.on_backward(differentiate)
    return results


def bias(tape: Tape, name: str, tensors: Sequence[Tensor], *, size: int, num_read: int | None = None) -> list[Tensor]:
    """Add a vector, or rows of a table, of ``size`` parameters to tensors that lie side by side.

    Backward passes the gradient on unchanged and sums it up into the vector or table.
    """
    vector = tape.weight(f"{name}.vector", size, num_read=num_read)
    made = {each.name for node in tape.nodes for each in node.outputs}
    # Of a tensor to which another vector was added before, the sum has a name of its own.
    names = [f"{tensor.name}.biased" for tensor in tensors]
    names = [f"{name}.{each}" if each in made else each for each in names]
    results = [tape.tensor(each, tensor.elements) for each, tensor in zip(names, tensors, strict=True)]
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


def add_shared(tape: Tape, name: str, tensor: Tensor, shared: Tensor) -> Tensor:
    """Add a tensor that all samples share; backward adds its gradient up over them."""
    result = tape.tensor(name, tensor.elements)
    works = (VectorWork(VectorKind.ADD, tensor.elements),)
    _vector(tape, name, (tensor, shared), (result,), works)

    def differentiate() -> None:
        gradient = tape.gradient(result)
        tape.pass_gradient(tensor, gradient)
        total = (tape.add_gradient(shared, name),)
        _vector(tape, f"{name}.gradient", (gradient,), total, works, fusibility=Fusibility.OPAQUE)

    tape.on_backward(differentiate)
    return result


def shift(tape: Tape, name: str, tensor: Tensor) -> Tensor:
    """Add what no parameter decides; its gradient goes on unchanged."""
    result = tape.tensor(name, tensor.elements)
    _vector(tape, name, (tensor,), (result,), (VectorWork(VectorKind.ADD, tensor.elements),))
    tape.on_backward(lambda: tape.pass_gradient(tensor, tape.gradient(result)))
    return result


def elementwise(
    tape: Tape,
    name: str,
    inputs: Sequence[Tensor],
    rule: Elementwise,
    *,
    elements: int | None = None,
    work_elements: int | None = None,
    weights: Sequence[Tensor] = (),
    is_differentiable: bool = True,
) -> Tensor:
    """Vector work from ``inputs`` and ``weights`` to one tensor, with the derivative that ``rule`` states.

    Args:
        tape: what records it.
        name: of the operation and of its result.
        inputs: what it reads.
        rule: its work.
        elements: of the result; those of the first input unless given.
        work_elements: that work is done on; those of the result unless given.
        weights: parameters that it reads.
        is_differentiable: whether the inputs have gradients.
    """
    result = tape.tensor(name, inputs[0].elements if elements is None else elements)
    count = result.elements if work_elements is None else work_elements

    def works(kinds: Mapping[VectorKind, int]) -> tuple[VectorWork, ...]:
        return tuple(VectorWork(kind, times * count) for kind, times in kinds.items())

    _vector(tape, name, (*inputs, *weights), (result,), works(rule.forward), fusibility=rule.fusibility)

    def differentiate() -> None:
        kept = (*inputs, *weights) if rule.needs_input else tuple(weights)
        kept = (*kept, result) if rule.needs_output else kept
        given = (tape.gradient(result), *kept)
        targets = inputs if is_differentiable else ()
        results = tuple(tape.add_gradient(tensor, name) for tensor in (*targets, *weights))
        _vector(tape, f"{name}.gradient", given, results, works(rule.backward), fusibility=rule.fusibility)

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


def _matmul(
    tape: Tape, name: str, operands: tuple[tuple[Tensor, ...], ...], outputs: tuple[Tensor, ...], shape: Matmul
) -> None:
    """A product of a left and a right operand, each one tensor or several side by side."""
    left, right = operands
    kind, fusibility = OperatorKind.MATMUL, Fusibility.MATMUL
    tape.emit(name, kind, fusibility, (*left, *right), outputs, matmuls=(shape,), left=left, right=right)


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
            f"{name}.gradient", OperatorKind.VIEW, Fusibility.OPAQUE, (gradient,), (tape.add_gradient(tensor, name),)
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


RELU6 = Elementwise({VectorKind.ADD: 2}, {VectorKind.ADD: 2}, needs_input=True)
"""min(max(x, 0), 6): backward reads the input and compares it with both ends."""
HARD_SIGMOID = Elementwise({VectorKind.ADD: 4}, {VectorKind.ADD: 3}, needs_input=True)
"""relu6(x + 3) / 6: backward passes a sixth on between both ends."""
HARD_SWISH = Elementwise({VectorKind.ADD: 5}, {VectorKind.ADD: 5}, needs_input=True)
"""x relu6(x + 3) / 6: backward's slope is (2 x + 3) / 6 between both ends."""
