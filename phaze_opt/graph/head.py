"""The layer after the blocks: final norm, vocabulary-parallel logits and loss; BERT's three heads.

BERT's transform is column-parallel, so that the group shares its FLOPs, and gathered before its norm.
"""

from __future__ import annotations

from phaze_opt.graph.block import record_norm
from phaze_opt.graph.operations import bias, elementwise, loss, matmul
from phaze_opt.graph.operator import CollectiveKind, Matmul
from phaze_opt.graph.program import Program, Tensor
from phaze_opt.graph.regions import collective, gather_columns, statistics, view
from phaze_opt.graph.sharding import Sharding
from phaze_opt.graph.tape import Tape
from phaze_opt.graph.vector_rules import activation_rule
from phaze_opt.workload.model import NEXT_SENTENCE_CLASSES

STATISTICS_BYTES_PER_TOKEN = 12
"""Maximum, sum of exponentials and the label's logit, 32-bit each, cross the group for every token."""


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
    count = rows * model.embedding_size
    weight = tape.weight("logits.weight", count)
    shape = Matmul(1, m=tokens, n=rows, k=model.embedding_size)
    logits = matmul(tape, "logits", inner, weight, shape=shape, output="logits")
    if model.has_pretraining_heads:
        logits = bias(tape, "logits_bias", (logits,), size=rows)[0]
    probabilities = loss(tape, "loss", logits)
    if sharding.degree > 1:
        payload = float(STATISTICS_BYTES_PER_TOKEN * tokens)
        statistics(tape, "loss_statistics", probabilities, payload_bytes=payload)
    return count


def _record_transform(tape: Tape, sharding: Sharding, inner: Tensor) -> Tensor:
    """BERT's masked-language transform: matmul, activation, norm."""
    model, tokens = sharding.model, sharding.tokens
    width = model.hidden_size // sharding.degree
    weight = tape.weight("transform.weight", model.hidden_size * width)
    shape = Matmul(1, m=tokens, n=width, k=model.hidden_size)
    inner = matmul(tape, "transform", inner, weight, shape=shape, output="transform")
    inner = bias(tape, "transform_bias", (inner,), size=width)[0]
    rule = activation_rule(inner.elements, is_relu=model.has_relu)
    inner = elementwise(tape, "transform_activation", (inner,), elements=inner.elements, rule=rule)
    if sharding.degree > 1:
        inner = gather_columns(tape, "transform_gather", inner, elements=tokens * model.hidden_size)
    inner = record_norm(tape, sharding, "transform_norm", inner)
    if sharding.degree > 1:
        inner = view(tape, "logits_enter", inner, adjoint=CollectiveKind.ALL_REDUCE)
    return inner


def _record_projection(tape: Tape, sharding: Sharding, inner: Tensor) -> Tensor:
    """OPT's projection to the embedding size."""
    model, tokens = sharding.model, sharding.tokens
    width = model.embedding_size // sharding.degree
    weight = tape.weight("project_out.weight", model.hidden_size * width)
    shape = Matmul(1, m=tokens, n=width, k=model.hidden_size)
    inner = matmul(tape, "project_out", inner, weight, shape=shape, output="project_out")
    if sharding.degree == 1:
        return inner
    elements = tokens * model.embedding_size
    return collective(tape, "project_out_gather", inner, kind=CollectiveKind.ALL_GATHER, elements=elements)


def _record_sequence_heads(tape: Tape, sharding: Sharding, start: Tensor) -> None:
    """BERT's pooler and next-sentence head, on the first token of each sample, replicated."""
    hidden, batch = sharding.model.hidden_size, sharding.training.micro_batch
    first = view(tape, "first_tokens", start, elements=batch * hidden, adjoint=None)
    weight = tape.weight("pooler.weight", hidden * hidden)
    pooled = matmul(tape, "pooler", first, weight, shape=Matmul(1, m=batch, n=hidden, k=hidden), output="pooler")
    pooled = bias(tape, "pooler_bias", (pooled,), size=hidden)[0]
    rule = activation_rule(pooled.elements)
    pooled = elementwise(tape, "pooler_activation", (pooled,), elements=pooled.elements, rule=rule)
    weight = tape.weight("next_sentence.weight", hidden * NEXT_SENTENCE_CLASSES)
    shape = Matmul(1, m=batch, n=NEXT_SENTENCE_CLASSES, k=hidden)
    scores = matmul(tape, "next_sentence", pooled, weight, shape=shape, output="next_sentence")
    scores = bias(tape, "next_sentence_bias", (scores,), size=NEXT_SENTENCE_CLASSES)[0]
    loss(tape, "next_sentence_loss", scores)
