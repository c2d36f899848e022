"""Matrix products: linear layers, products of activations, einsum, experts' grouped products, and attention."""

from dataclasses import replace
from math import prod

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import CONTEXT, FUSED_ATTENTION, SCORES, SOFTMAX, SOFTMAX_DROPOUT
from phaze_opt.graph.operator import Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.expert_region import COMBINE
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION, CAP, DROPOUT, SINKS, WINDOW
from phaze_opt.graph.traced.normalise.vocabulary import GROUPED_PRODUCTS
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall
from phaze_opt.workload.training import AttentionForm

_LINEAR, _WITH_BIAS = "aten.linear", "aten.addmm"


class LinearRule:
    """A product with one weight: rows of channels in, rows of channels out, with or without a bias."""

    operators = (_LINEAR, _WITH_BIAS, "aten.mm", "aten.mv")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The product and its bias."""
        left, right = (call.operand(position + (call.op == _WITH_BIAS)) for position in (0, 1))
        inner = left.shape[-1]
        shape = Matmul(1, m=left.elements // inner, n=max(1, call.elements * inner // left.elements), k=inner)
        result = record_product(tape, call, (left, right), shape)
        added = bias_of(call)
        if added is None:
            return (result,)
        if added.tensor is not None:
            return (ops.add(tape, f"{call.name}_sum", result, added.tensor),)
        if not added.is_parameter:
            return (ops.shift(tape, f"{call.name}_bias", result),)
        return (ops.bias(tape, f"{call.name}_bias", (result,), size=added.parameter_elements)[0],)


def bias_of(call: OperatorCall) -> CallOperand | None:
    """What a product with a weight adds to its rows."""
    value = call.argument(0) if call.op == _WITH_BIAS else call.argument(2, "bias") if call.op == _LINEAR else None
    return value if isinstance(value, CallOperand) else None


def without_bias(call: OperatorCall) -> OperatorCall:
    """The product alone."""
    if call.op == _WITH_BIAS:
        return replace(call, op="aten.mm", inputs=call.inputs[1:3])
    return replace(call, inputs=call.inputs[:2], attrs={}) if call.op == _LINEAR else call


class BatchedProductRule:
    """Products of matrices in a batch, of activations or with weights."""

    operators = ("aten.matmul", "aten.bmm", "aten.baddbmm")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """The products; a matrix without batch on the right takes all rows at once."""
        first = 1 if call.op == "aten.baddbmm" else 0
        left, right = call.operand(first), call.operand(first + 1)
        inner = left.shape[-1]
        width = right.shape[-1] if len(right.shape) > 1 else 1
        batch = prod(right.shape[:-2])
        rows = max(1, call.elements // (batch * width))
        return (record_product(tape, call, (left, right), Matmul(batch, m=rows, n=width, k=inner)),)


class EinsumRule:
    """A product of two tensors by an equation of axes."""

    operators = ("aten.einsum",)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Axes of both and of the result are the batch, axes of both alone are summed over."""
        equation = call.inputs[0]
        operands = call.operands
        if not isinstance(equation, str) or len(operands) != 2 or "->" not in equation or "." in equation:
            rule = "only products of two tensors by an equation such as 'bij,bjk->bik' are known"
            raise call.fault(rule)
        given, _, result = equation.replace(" ", "").partition("->")
        names = given.split(",")
        if [len(name) for name in names] != [len(each.shape) for each in operands]:
            rule = f"the equation '{equation}' does not have an axis for each of theirs"
            raise call.fault(rule)
        joined = zip("".join(names), (size for each in operands for size in each.shape), strict=True)
        sizes = dict(joined)
        left, right = (set(text) for text in names)
        shape = Matmul(
            prod(sizes[axis] for axis in left & right & set(result)),
            m=prod(sizes[axis] for axis in left - right),
            n=prod(sizes[axis] for axis in right - left),
            k=prod(sizes[axis] for axis in (left & right) - set(result)),
        )
        return (record_product(tape, call, operands, shape),)


def record_product(tape: Tape, call: OperatorCall, operands: tuple[CallOperand, ...], shape: Matmul) -> Tensor:
    """A product whose operands are tensors, parameters or constants; a constant has no gradient."""
    tensors = [
        _operand(tape, f"{call.name}.{side}", operand)
        for side, operand in zip(("left", "weight"), operands, strict=True)
    ]
    has_gradient = [operand.is_varying or operand.is_parameter for operand in operands]
    return ops.split_matmul(
        tape,
        call.name,
        tensors[0],
        tensors[1],
        shape=shape,
        outputs={call.name: shape.batch * shape.m * shape.n},
        is_differentiable=has_gradient[0],
        is_right_differentiable=has_gradient[1],
    )[0]


def _operand(tape: Tape, name: str, operand: CallOperand) -> Tensor:
    if operand.tensor is not None:
        return operand.tensor
    return (tape.weight if operand.is_parameter else tape.constant)(name, operand.elements)


class GroupedProductRule:
    """Rows sorted by expert times the weight of each: every expert has as many rows as the next, rounded up."""

    operators = GROUPED_PRODUCTS

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """One product for each expert."""
        rows, weight = call.operand(0), call.operand(1)
        experts, inner, width = weight.shape
        if inner != rows.shape[-1]:
            inner, width = width, inner
        load = -(-rows.elements // (inner * experts))
        right = tape.weight(f"{call.name}.weight", weight.parameter_elements)
        shape = Matmul(experts, m=load, n=width, k=inner)
        return (ops.matmul(tape, call.name, call.tensor(0), right, shape=shape, output=call.name),)


class SelectionRule:
    """The largest elements of rows, or all in order: values with their gradients; places have none."""

    operators = ("aten.topk", "aten.sort", "aten.max", "aten.min", "aten.kthvalue")

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Every element is looked at once each way."""
        given = call.tensor(0)
        values = ops.elementwise(
            tape, call.name, (given,), ops.COPY, elements=call.elements, work_elements=given.elements
        )
        others = [
            tape.tensor(f"{call.name}.places{number}", prod(shape), element_bytes=8)
            for number, shape in enumerate(call.results[1:])
        ]
        return (values, *others)


class CombineRule:
    """The sum of the experts' results, weighted by the router."""

    operators = (COMBINE,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Work is done on every result of an expert."""
        back, weights = call.tensor(0), call.tensor(1)
        work = back.elements
        result = ops.elementwise(
            tape, call.name, (back, weights), ops.WEIGHTED_SUM, elements=call.elements, work_elements=work
        )
        return (result,)


class AttentionRule:
    """Attention of queries over keys and values; queries that share a key-value head are rows of one product."""

    operators = (ATTENTION,)

    def record(self, tape: Tape, call: OperatorCall) -> tuple[Tensor, ...]:
        """Query, key, value; a bias that is computed or learned is added to the scores."""
        shapes = _shapes(call)
        if call.attention is AttentionForm.FUSED:
            return (_record_fused(tape, call, shapes),)
        return (_record_unfused(tape, call, shapes),)


def _shapes(call: OperatorCall) -> tuple[Matmul, Matmul]:
    """Products of scores and of context, from what lies in memory of keys and values."""
    query, key, value = (call.operand(position) for position in range(3))
    keys, head_size, value_size = key.shape[-2], query.shape[-1], value.shape[-1]
    if query.shape[-1] != key.shape[-1]:
        # Keys that were transposed for the product, as models that write it out do.
        keys, head_size = key.shape[-1], query.shape[-1]
    tensor = call.tensor(1)
    batch = max(1, tensor.elements // (keys * head_size))
    window = call.attrs.get(WINDOW)
    keys = min(keys, window) if isinstance(window, int) else keys
    rows = max(1, query.elements // (head_size * batch))
    return Matmul(batch, m=rows, n=keys, k=head_size), Matmul(batch, m=rows, n=value_size, k=keys)


def _beside_scores(call: OperatorCall) -> tuple[list[CallOperand], list[CallOperand]]:
    """What is added to the scores, and what stands beside them: a score of each head."""
    found = [
        each for each in call.inputs[3:] if isinstance(each, CallOperand) and (each.is_varying or each.is_parameter)
    ]
    return (found[:-1], found[-1:]) if call.attrs.get(SINKS) else (found, [])


def _weight(tape: Tape, name: str, operand: CallOperand) -> Tensor:
    """A parameter that the scores meet."""
    return tape.weight(name, operand.parameter_elements, num_read=operand.elements)


def _record_unfused(tape: Tape, call: OperatorCall, shapes: tuple[Matmul, Matmul]) -> Tensor:
    query, key, value = (call.tensor(position) for position in range(3))
    scores = ops.matmul(tape, f"{SCORES}.{call.name}", query, key, shape=shapes[0], output=f"{call.name}.scores")
    if call.attrs.get(CAP):
        scores = ops.elementwise(tape, f"{SCORES}.cap.{call.name}", (scores,), ops.SOFT_CAP)
    biases, sinks = _beside_scores(call)
    for number, bias in enumerate(biases):
        name = f"{SCORES}.bias{number}.{call.name}"
        if bias.tensor is not None:
            rule = ops.Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1})
            scores = ops.elementwise(tape, name, (scores, bias.tensor), rule)
        else:
            read = min(bias.elements, scores.elements)
            scores = ops.bias(tape, name, (scores,), size=bias.parameter_elements, num_read=read)[0]
    weights = [_weight(tape, f"{call.name}.sinks", each) for each in sinks]
    probabilities = ops.elementwise(tape, f"{SOFTMAX}.{call.name}", (scores,), ops.SOFTMAX, weights=weights)
    if call.attrs.get(DROPOUT):
        probabilities = ops.dropout(tape, f"{SOFTMAX_DROPOUT}.{call.name}", probabilities)
    return ops.matmul(
        tape, f"{CONTEXT}.{call.name}", probabilities, value, shape=shapes[1], output=f"{call.name}.context"
    )


def _record_fused(tape: Tape, call: OperatorCall, shapes: tuple[Matmul, Matmul]) -> Tensor:
    """One operator each way; backward multiplies five times, as it computes the scores again first."""
    scores, context = shapes
    elements = scores.batch * scores.m * scores.n
    biases, sinks = _beside_scores(call)
    tensors = [call.tensor(position) for position in range(3)]
    for number, each in enumerate((*biases, *sinks)):
        tensors.append(each.tensor or _weight(tape, f"{call.name}.bias{number}", each))
    forward, backward = _score_works(call, elements, len(biases))
    return ops.attention(
        tape,
        f"{FUSED_ATTENTION}.{call.name}",
        tensors,
        elements=context.batch * context.m * context.n,
        forward=((scores, context), forward),
        backward=((scores, *_adjoints(context), *_adjoints(scores)), backward),
    )


def _score_works(
    call: OperatorCall, elements: int, num_biases: int
) -> tuple[tuple[VectorWork, ...], tuple[VectorWork, ...]]:
    """Vector work on so many scores, forward and backward."""
    adds = elements * (bool(call.attrs.get(DROPOUT)) + num_biases)
    both = [VectorWork(VectorKind.ADD, adds)] if adds else []
    forward = [VectorWork(VectorKind.SOFTMAX_FORWARD, elements), *both]
    backward = [VectorWork(VectorKind.SOFTMAX_BACKWARD, elements), *both]
    if call.attrs.get(CAP):
        forward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.forward.items()]
        backward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.backward.items()]
    return tuple(forward), tuple(backward)


def _adjoints(shape: Matmul) -> tuple[Matmul, Matmul]:
    """Products that give the gradients of the left and of the right operand."""
    left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    return left, Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)
