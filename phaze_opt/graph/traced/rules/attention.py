"""Attention: fused or as scores, softmax, dropout and context, as the scenario says."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import CONTEXT, FUSED_ATTENTION, SCORES, SOFTMAX, SOFTMAX_DROPOUT
from phaze_opt.graph.operator import Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION, CAP, DROPOUT, WINDOW
from phaze_opt.graph.traced.operator_rule import CallOperand, OperatorCall
from phaze_opt.workload.training import AttentionForm


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


def _biases(call: OperatorCall) -> list[CallOperand]:
    """What is added to the scores, or stands beside them."""
    return [
        each for each in call.inputs[3:] if isinstance(each, CallOperand) and (each.is_varying or each.is_parameter)
    ]


def _record_unfused(tape: Tape, call: OperatorCall, shapes: tuple[Matmul, Matmul]) -> Tensor:
    query, key, value = (call.tensor(position) for position in range(3))
    scores = ops.matmul(tape, f"{SCORES}.{call.name}", query, key, shape=shapes[0], output=f"{call.name}.scores")
    if call.attrs.get(CAP):
        scores = ops.elementwise(tape, f"{SCORES}.cap.{call.name}", (scores,), ops.SOFT_CAP)
    for number, bias in enumerate(_biases(call)):
        name = f"{SCORES}.bias{number}.{call.name}"
        if bias.tensor is not None:
            rule = ops.Elementwise({VectorKind.ADD: 1}, {VectorKind.ADD: 1})
            scores = ops.elementwise(tape, name, (scores, bias.tensor), rule)
        else:
            read = min(bias.elements, scores.elements)
            scores = ops.bias(tape, name, (scores,), size=bias.parameter_elements, num_read=read)[0]
    probabilities = ops.elementwise(tape, f"{SOFTMAX}.{call.name}", (scores,), ops.SOFTMAX)
    if call.attrs.get(DROPOUT):
        probabilities = ops.dropout(tape, f"{SOFTMAX_DROPOUT}.{call.name}", probabilities)
    return ops.matmul(
        tape, f"{CONTEXT}.{call.name}", probabilities, value, shape=shapes[1], output=f"{call.name}.context"
    )


def _record_fused(tape: Tape, call: OperatorCall, shapes: tuple[Matmul, Matmul]) -> Tensor:
    """One operator each way; backward multiplies five times, as it computes the scores again first."""
    scores, context = shapes
    elements = scores.batch * scores.m * scores.n
    biases = _biases(call)
    adds = elements * (bool(call.attrs.get(DROPOUT)) + len(biases))
    extra = [VectorWork(VectorKind.ADD, adds)] if adds else []
    capped = bool(call.attrs.get(CAP))
    forward = [VectorWork(VectorKind.SOFTMAX_FORWARD, elements), *extra]
    backward = [VectorWork(VectorKind.SOFTMAX_BACKWARD, elements), *extra]
    if capped:
        forward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.forward.items()]
        backward += [VectorWork(kind, times * elements) for kind, times in ops.SOFT_CAP.backward.items()]
    tensors = [call.tensor(position) for position in range(3)]
    for number, bias in enumerate(biases):
        name = f"{call.name}.bias{number}"
        weight = tape.weight(name, bias.parameter_elements, num_read=bias.elements) if bias.is_parameter else None
        tensors += [each for each in (bias.tensor, weight) if each is not None]
    return ops.attention(
        tape,
        f"{FUSED_ATTENTION}.{call.name}",
        tensors,
        elements=context.batch * context.m * context.n,
        forward=((scores, context), tuple(forward)),
        backward=((scores, *_adjoints(context), *_adjoints(scores)), tuple(backward)),
    )


def _adjoints(shape: Matmul) -> tuple[Matmul, Matmul]:
    """Products that give the gradients of the left and of the right operand."""
    left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    return left, Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)
