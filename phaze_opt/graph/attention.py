"""The attention half of a block: query, key, value; scores, fused or not; output projection."""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveGroup, CollectiveKind, Matmul, VectorKind, VectorWork
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.training import AttentionForm

SCORES, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT = "scores", "softmax", "softmax_dropout", "context"
FUSED_ATTENTION = "attention"
_CORE = frozenset({SCORES, SOFTMAX, SOFTMAX_DROPOUT, CONTEXT, FUSED_ATTENTION})
"""The attention core: what selective recomputation runs again (Korthikanti et al. 2022, section 5).

Scores, softmax, its dropout and the context product, or fused attention as a whole. Query, key, value and the context
stay in memory, so that only tensors inside the core are dropped."""


def is_attention_core(name: str) -> bool:
    """Whether an operator or node of a block, forward or backward, computes a part of the attention core.

    No forward operator mixes the core with anything else, whatever is fused; a backward product may take the gradient
    of a rotary position as its epilogue.
    """
    return any(part.partition(".")[0] in _CORE for part in name.split("+"))


def record_attention(tape: Tape, sharding: Sharding, entered: Tensor) -> Tensor:
    """From the (gathered) input of the attention to its output before the row-parallel reduction."""
    model = sharding.model
    query, key, value = _record_query_key_value(tape, sharding, entered)
    if model.has_rotary_positions:
        query = ops.elementwise(tape, "rotary_query", (query,), ops.ROTARY)
        key = ops.elementwise(tape, "rotary_key", (key,), ops.ROTARY)
    if sharding.options.context > 1:
        key, value = (
            _pass_round(tape, sharding, f"{name}_ring", each) for name, each in (("key", key), ("value", value))
        )
    if sharding.training.attention is AttentionForm.FUSED:
        context = _record_fused(tape, sharding, (query, key, value))
    else:
        context = _record_unfused(tape, sharding, (query, key, value))
    width = model.query_size // sharding.degree
    return ops.linear(tape, "attention_output", context, rows=sharding.tokens, inner=width, width=model.hidden_size)


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
        results = ops.split_matmul(tape, name, entered, weight, shape=shape, outputs=outputs)
        if model.has_qkv_bias:
            results = ops.bias(tape, f"{name}_bias", results, size=width)
        found.update(zip(group, results, strict=True))
    return found["query"], found["key"], found["value"]


def _pass_round(tape: Tape, sharding: Sharding, name: str, tensor: Tensor) -> Tensor:
    """Keys or values of the whole sequence: every shard's pass by every device, beside the attention they serve.

    The ring sends (c - 1) / c of them, as an all-gather does, again in backward, and their gradients likewise.
    """
    return ops.collective(
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
    scores = ops.matmul(tape, SCORES, query, key, shape=scores_shape, output="scores")
    probabilities = ops.elementwise(tape, SOFTMAX, (scores,), ops.SOFTMAX)
    if sharding.model.has_attention_dropout:
        probabilities = ops.dropout(tape, SOFTMAX_DROPOUT, probabilities)
    return ops.matmul(tape, CONTEXT, probabilities, value, shape=context_shape, output="context")


def _record_fused(tape: Tape, sharding: Sharding, qkv: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """One operator each way; backward multiplies five times, as it computes the scores again first."""
    scores, context = _shapes(sharding)
    elements = scores.batch * scores.m * scores.n
    dropout = (VectorWork(VectorKind.ADD, elements),) if sharding.model.has_attention_dropout else ()
    forward = (VectorWork(VectorKind.SOFTMAX_FORWARD, elements), *dropout)
    backward = (VectorWork(VectorKind.SOFTMAX_BACKWARD, elements), *dropout)
    return ops.attention(
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
