"""Attention: fused or as scores, softmax, dropout and context, as the scenario says."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.attention import CONTEXT, FUSED_ATTENTION, SCORES, SOFTMAX, SOFTMAX_DROPOUT
from phaze_opt.graph.operator import Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.traced.normalise.attention_core import ATTENTION, CAP, DROPOUT, SINKS, WINDOW
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
