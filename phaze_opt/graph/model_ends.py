"""The layers before and behind the blocks: embedding and head.

The embedding is a vocabulary-parallel lookup with OPT's projection in, positions, token types and a norm. The head is
the final norm, vocabulary-parallel logits and loss; BERT has three heads. BERT's transform is column-parallel, so that
the group shares its FLOPs, and gathered before its norm.
"""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_norm
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Program, Tape, Tensor
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.model import NEXT_SENTENCE_CLASSES, ModelFamily

TOKEN_ID_BYTES = 8
"""Token ids are 64-bit integers."""
STATISTICS_BYTES_PER_TOKEN = 12
"""Maximum, sum of exponentials and the label's logit, 32-bit each, cross the group for every token."""


def record_embedding(sharding: Sharding) -> Program:
    """Forward and backward of the embedding on one device."""
    model = sharding.model
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    ids = tape.tensor("token_ids", sharding.tokens, element_bytes=TOKEN_ID_BYTES)
    end = _record_lookup(tape, sharding, ids)
    if model.num_position_rows:
        size = model.num_position_rows * model.hidden_size
        num_read = min(sharding.own_sequence * model.hidden_size, size)
        end = ops.bias(tape, "positions", (end,), size=size, num_read=num_read)[0]
    if model.num_token_types:
        end = ops.bias(tape, "token_types", (end,), size=model.num_token_types * model.hidden_size)[0]
    if model.has_embedding_norm:
        end = record_norm(tape, sharding, "embedding_norm", end)
    if model.has_hidden_dropout and model.family is not ModelFamily.OPT:
        end = ops.dropout(tape, "embedding_dropout", end)
    tape.run_backward(end)
    return Program("embedding", tape.nodes, ids, (end,), end.num_bytes, tape.num_parameters, 0)


def _record_lookup(tape: Tape, sharding: Sharding, ids: Tensor) -> Tensor:
    """Rows of the token table that this device holds, reduced over the group, projected to the hidden size."""
    model, tokens, width = sharding.model, sharding.tokens, sharding.model.embedding_size
    table = tape.weight(
        "token_table", sharding.split(model.vocab_size) * width, num_read=sharding.split(tokens) * width
    )
    rows = ops.elementwise(
        tape, "lookup", (ids,), ops.LOOKUP, elements=tokens * width, weights=(table,), is_differentiable=False
    )
    if not model.has_embedding_projection:
        return sharding.leave(tape, "lookup_leave", rows, channels=model.hidden_size)
    own = width // sharding.degree
    if sharding.degree > 1:
        rows = ops.collective(tape, "lookup_scatter", rows, kind=CollectiveKind.REDUCE_SCATTER, elements=tokens * own)
    projected = ops.linear(tape, "project_in", rows, rows=tokens, inner=own, width=model.hidden_size)
    return sharding.leave(tape, "project_in_leave", projected, channels=model.hidden_size)


def record_head(sharding: Sharding) -> Program:
    """Forward and backward of the head on one device."""
    model = sharding.model
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    start = tape.tensor("head_input", sharding.outside_tokens * model.hidden_size)
    if model.has_pretraining_heads:
        _record_sequence_heads(tape, sharding, start)
    inner = record_norm(tape, sharding, "final_norm", start) if model.has_final_norm else start
    inner = sharding.enter(tape, "head_enter", inner, channels=model.hidden_size)
    if model.has_pretraining_heads:
        inner = _record_transform(tape, sharding, inner)
    if model.has_embedding_projection:
        inner = _record_projection(tape, sharding, inner)
    num_output_weights = _record_logits(tape, sharding, inner)
    tape.run_backward(None)
    num_tied = num_output_weights if model.is_tied else 0
    return Program("head", tape.nodes, start, (tape.gradient(start),), 0, tape.num_parameters, num_tied)


def _record_logits(tape: Tape, sharding: Sharding, inner: Tensor) -> int:
    """Output matmul and loss; returns the number of the matmul's weights."""
    model, tokens = sharding.model, sharding.tokens
    rows = sharding.split(model.vocab_size)
    inner_size, has_bias = model.embedding_size, model.has_pretraining_heads
    logits = ops.linear(tape, "logits", inner, rows=tokens, inner=inner_size, width=rows, has_bias=has_bias)
    probabilities = ops.loss(tape, "loss", logits)
    if sharding.degree > 1:
        payload = float(STATISTICS_BYTES_PER_TOKEN * tokens)
        ops.statistics(tape, "loss_statistics", probabilities, payload_bytes=payload)
    return rows * model.embedding_size


def _record_transform(tape: Tape, sharding: Sharding, inner: Tensor) -> Tensor:
    """BERT's masked-language transform: matmul, activation, norm."""
    model, tokens = sharding.model, sharding.tokens
    width = model.hidden_size // sharding.degree
    inner = ops.linear(tape, "transform", inner, rows=tokens, inner=model.hidden_size, width=width, has_bias=True)
    inner = ops.elementwise(
        tape, "transform_activation", (inner,), ops.RELU if model.has_relu else ops.SMOOTH_ACTIVATION
    )
    if sharding.degree > 1:
        inner = ops.gather_columns(tape, "transform_gather", inner, elements=tokens * model.hidden_size)
    inner = record_norm(tape, sharding, "transform_norm", inner)
    if sharding.degree > 1:
        inner = ops.view(tape, "logits_enter", inner, adjoint=CollectiveKind.ALL_REDUCE)
    return inner


def _record_projection(tape: Tape, sharding: Sharding, inner: Tensor) -> Tensor:
    """OPT's projection to the embedding size."""
    model, tokens = sharding.model, sharding.tokens
    width = model.embedding_size // sharding.degree
    inner = ops.linear(tape, "project_out", inner, rows=tokens, inner=model.hidden_size, width=width)
    if sharding.degree == 1:
        return inner
    elements = tokens * model.embedding_size
    return ops.collective(tape, "project_out_gather", inner, kind=CollectiveKind.ALL_GATHER, elements=elements)


def _record_sequence_heads(tape: Tape, sharding: Sharding, start: Tensor) -> None:
    """BERT's pooler and next-sentence head, on the first token of each sample, replicated."""
    hidden, batch = sharding.model.hidden_size, sharding.training.micro_batch
    first = ops.view(tape, "first_tokens", start, elements=batch * hidden, adjoint=None)
    pooled = ops.linear(tape, "pooler", first, rows=batch, inner=hidden, width=hidden, has_bias=True)
    pooled = ops.elementwise(tape, "pooler_activation", (pooled,), ops.SMOOTH_ACTIVATION)
    classes = NEXT_SENTENCE_CLASSES
    scores = ops.linear(tape, "next_sentence", pooled, rows=batch, inner=hidden, width=classes, has_bias=True)
    ops.loss(tape, "next_sentence_loss", scores)
