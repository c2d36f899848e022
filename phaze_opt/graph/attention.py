"""The attention half of a block: query, key, value; scores, fused or not; output projection."""

from __future__ import annotations

from phaze_opt.graph.attention_core import CONTEXT, FUSED_ATTENTION, SCORES, SOFTMAX, SOFTMAX_DROPOUT
from phaze_opt.graph.operations import attention, bias, dropout, elementwise, matmul, split_matmul
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tensor
from phaze_opt.graph.regions import collective
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.tape import Tape
from phaze_opt.graph.vector_rules import rotary_rule, softmax_rule
from phaze_opt.workload.training import AttentionForm


def record_attention(tape: Tape, sharding: Sharding, entered: Tensor) -> Tensor:
    """From the (gathered) input of the attention to its output before the row-parallel reduction."""
    model = sharding.model
    query, key, value = _record_query_key_value(tape, sharding, entered)
    if model.has_rotary_positions:
        query = elementwise(tape, "rotary_query", (query,), elements=query.elements, rule=rotary_rule(query.elements))
        key = elementwise(tape, "rotary_key", (key,), elements=key.elements, rule=rotary_rule(key.elements))
    if sharding.options.context > 1:
        key, value = (
            _pass_round(tape, sharding, f"{name}_ring", each) for name, each in (("key", key), ("value", value))
        )
    if sharding.training.attention is AttentionForm.FUSED:
        context = _record_fused(tape, sharding, (query, key, value))
    else:
        context = _record_unfused(tape, sharding, (query, key, value))
    width = model.query_size // sharding.degree
    weight = tape.weight("attention_output.weight", width * model.hidden_size)
    shape = Matmul(1, m=sharding.tokens, n=model.hidden_size, k=width)
    return matmul(tape, "attention_output", context, weight, shape=shape, output="attention_output")


def _record_query_key_value(tape: Tape, sharding: Sharding, entered: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One matmul for all three (gpt2) or three, column-parallel."""
    model, tokens = sharding.model, sharding.tokens
    q_size, kv_size = model.query_size // sharding.degree, sharding.num_kv_heads * model.head_size
    sizes = {"query": q_size, "key": kv_size, "value": kv_size}
    groups = [tuple(sizes)] if model.is_qkv_combined else [(name,) for name in sizes]
    found: dict[str, Tensor] = {}
    for group in groups:
        name = "_".join(group)
        width = sum(sizes[part] for part in group)
        weight = tape.weight(f"{name}.weight", model.hidden_size * width)
        shape = Matmul(1, m=tokens, n=width, k=model.hidden_size)
        outputs = {part: tokens * sizes[part] for part in group}
        results = split_matmul(tape, name, entered, weight, shape=shape, outputs=outputs)
        if model.has_qkv_bias:
            results = bias(tape, f"{name}_bias", results, size=width)
        found.update(zip(group, results, strict=True))
    return found["query"], found["key"], found["value"]


def _pass_round(tape: Tape, sharding: Sharding, name: str, tensor: Tensor) -> Tensor:
    """Keys or values of the whole sequence: every shard's pass by every device, beside the attention they serve.

    The ring sends (c - 1) / c of them, as an all-gather does, again in backward, and their gradients likewise.
    """
    return collective(
        tape,
        name,
        tensor,
        kind=CollectiveKind.ALL_GATHER,
        elements=tensor.elements * sharding.options.context,
        group=CollectiveGroup.CONTEXT,
        is_overlapped=True,
        has_regather=True,
    )


def _shapes(sharding: Sharding) -> tuple[Matmul, Matmul]:
    """Scores and context products: the queries that share a key-value head are rows of one product.

    Where key-value heads are replicated, a device has one of them and a part of the queries that share it.
    """
    model, sequence = sharding.model, sharding.training.sequence_length
    batch = sharding.training.micro_batch * sharding.num_kv_heads
    rows = sharding.own_sequence * (model.num_heads // sharding.degree // sharding.num_kv_heads)
    scores = Matmul(batch, m=rows, n=sequence, k=model.head_size)
    context = Matmul(batch, m=rows, n=model.head_size, k=sequence)
    return scores, context


def _record_unfused(tape: Tape, sharding: Sharding, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Scores, softmax, dropout and context apart; probabilities are written and kept."""
    query, key, value = qkv
    scores_shape, context_shape = _shapes(sharding)
    scores = matmul(tape, SCORES, query, key, shape=scores_shape, output="scores")
    rule = softmax_rule(scores.elements)
    probabilities = elementwise(tape, SOFTMAX, (scores,), elements=scores.elements, rule=rule)
    if sharding.model.has_attention_dropout:
        probabilities = dropout(tape, SOFTMAX_DROPOUT, probabilities)
    return matmul(tape, CONTEXT, probabilities, value, shape=context_shape, output="context")


def _record_fused(tape: Tape, sharding: Sharding, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """One operator each way; backward multiplies five times, as it computes the scores again first."""
    scores, context = _shapes(sharding)
    elements = scores.batch * scores.m * scores.n
    dropout = (VectorWork(VectorKind.ADD, elements),) if sharding.model.has_attention_dropout else ()
    forward = (VectorWork(VectorKind.SOFTMAX_FORWARD, elements), *dropout)
    backward = (VectorWork(VectorKind.SOFTMAX_BACKWARD, elements), *dropout)
    return attention(
        tape,
        FUSED_ATTENTION,
        qkv,
        elements=qkv[0].elements,
        forward=((scores, context), forward),
        backward=((scores, *_adjoints(context), *_adjoints(scores)), backward),
    )


def _adjoints(shape: Matmul) -> tuple[Matmul, Matmul]:
    """Products that give the gradients of the left and of the right operand."""
    left = Matmul(shape.batch, m=shape.m, n=shape.k, k=shape.n)
    right = Matmul(shape.batch, m=shape.k, n=shape.n, k=shape.m)
    return left, right
