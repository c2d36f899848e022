"""The layers behind the blocks: the head, and the end of an encoder.

The head is a final norm, vocabulary-parallel logits and a loss; some models have outputs once a sequence besides, or
instead. BERT's transform is column-parallel, so that the group shares its FLOPs, and gathered before its norm.
"""

from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_norm
from phaze_opt.graph.mlp import activation_rule
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.head_spec import HeadSpec, SequenceOutputs, TokenOutputs
from phaze_opt.workload.transformer import Encoder

STATISTICS_BYTES_PER_TOKEN = 12
"""Maximum, sum of exponentials and the label's logit, 32-bit each, cross the group for every token."""


def record_head(sharding: Sharding, head: HeadSpec) -> Program:
    """Forward and backward of the head on one device."""
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    start = tape.tensor("head_input", sharding.outside_tokens * head.hidden_size)
    inner = record_norm(tape, "final_norm", start, head.norm) if head.norm is not None else start
    if head.has_dropout:
        inner = ops.dropout(tape, "final_dropout", inner)
    if head.sequence is not None:
        _record_sequence_outputs(tape, sharding, head.sequence, inner)
    num_tied = 0 if head.tokens is None else _record_token_outputs(tape, sharding, head, head.tokens, inner)
    if head.tokens is None and (head.sequence is None or not head.sequence.num_classes):
        if head.projection_parameters:
            inner = sharding.enter(tape, "head_enter", inner, channels=head.hidden_size)
            inner = _record_projection(tape, sharding, head.hidden_size, head.output_size, inner)
        _receive_gradient(tape, inner)
    tape.run_backward(None)
    return Program("head", tape.nodes, start, (tape.gradient(start),), 0, tape.num_parameters, num_tied)


def record_encoder_end(sharding: Sharding, encoder: Encoder) -> Program:
    """Forward and backward of the norm behind an encoder's blocks."""
    hidden = encoder.norm.hidden_size
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    start = tape.tensor("encoder_end_input", sharding.outside_tokens * hidden)
    end = record_norm(tape, "encoder_norm", start, encoder.norm)
    if encoder.has_dropout:
        end = ops.dropout(tape, "encoder_dropout", end)
    tape.run_backward(end)
    outputs = (end, tape.gradient(start))
    return Program("encoder_end", tape.nodes, start, outputs, end.num_bytes, tape.num_parameters, 0)


def _record_token_outputs(tape: Tape, sharding: Sharding, head: HeadSpec, outputs: TokenOutputs, inner: Tensor) -> int:
    """Outputs for every token and their loss; returns the number of parameters that are the token table's."""
    inner = sharding.enter(tape, "head_enter", inner, channels=head.hidden_size)
    if outputs.has_transform:
        inner = _record_transform(tape, sharding, head, outputs, inner)
    if head.projection_parameters:
        inner = _record_projection(tape, sharding, head.hidden_size, outputs.input_size, inner)
    rows = sharding.split(outputs.num_outputs)
    logits = ops.linear(
        tape, "logits", inner, rows=sharding.tokens, inner=outputs.input_size, width=rows, has_bias=outputs.has_bias
    )
    tape.num_parameters += sharding.split(outputs.idle_parameters)
    if outputs.has_scale:
        logits = ops.elementwise(tape, "logits_scale", (logits,), ops.SCALE)
    if outputs.has_soft_cap:
        logits = ops.elementwise(tape, "logits_soft_cap", (logits,), ops.SOFT_CAP)
    probabilities = ops.loss(tape, "loss", logits)
    if sharding.degree > 1:
        payload = float(STATISTICS_BYTES_PER_TOKEN * sharding.tokens)
        ops.statistics(tape, "loss_statistics", probabilities, payload_bytes=payload)
    return rows * outputs.input_size if outputs.is_tied else 0


def _record_transform(tape: Tape, sharding: Sharding, head: HeadSpec, outputs: TokenOutputs, inner: Tensor) -> Tensor:
    """BERT's masked-language transform: matmul, activation, norm."""
    tokens, hidden = sharding.tokens, outputs.input_size
    width = hidden // sharding.degree
    inner = ops.linear(tape, "transform", inner, rows=tokens, inner=hidden, width=width, has_bias=True)
    rule = activation_rule(sharding, has_relu=head.has_relu)
    inner = ops.elementwise(tape, "transform_activation", (inner,), rule)
    if sharding.degree > 1:
        inner = ops.gather_columns(tape, "transform_gather", inner, elements=tokens * hidden)
    inner = record_norm(tape, "transform_norm", inner, outputs.transform_norm)
    if sharding.degree > 1:
        inner = ops.view(tape, "logits_enter", inner, adjoint=CollectiveKind.ALL_REDUCE)
    return inner


def _record_projection(tape: Tape, sharding: Sharding, hidden: int, size: int, inner: Tensor) -> Tensor:
    """OPT's projection to the embedding size."""
    tokens, width = sharding.tokens, size // sharding.degree
    inner = ops.linear(tape, "project_out", inner, rows=tokens, inner=hidden, width=width)
    if sharding.degree == 1:
        return inner
    return ops.collective(tape, "project_out_gather", inner, kind=CollectiveKind.ALL_GATHER, elements=tokens * size)


def _record_sequence_outputs(tape: Tape, sharding: Sharding, outputs: SequenceOutputs, start: Tensor) -> None:
    """A pooler and classes, on the first token of each sample, replicated."""
    hidden, batch = outputs.hidden_size, sharding.training.micro_batch
    pooled = ops.view(tape, "first_tokens", start, elements=batch * hidden, adjoint=None)
    if outputs.has_pooler:
        pooled = ops.linear(tape, "pooler", pooled, rows=batch, inner=hidden, width=hidden, has_bias=True)
        pooled = ops.elementwise(tape, "pooler_activation", (pooled,), ops.SMOOTH_ACTIVATION)
    if not outputs.num_classes:
        _receive_gradient(tape, pooled)
        return
    name, width = outputs.name, outputs.num_classes
    scores = ops.linear(tape, name, pooled, rows=batch, inner=hidden, width=width, has_bias=True)
    ops.loss(tape, f"{name}_loss", scores)


def _receive_gradient(tape: Tape, tensor: Tensor) -> None:
    """What uses the output of a model without a loss gives its gradient."""
    given = Tensor(f"d_{tensor.name}_given", tensor.elements, tensor.element_bytes, TensorRole.GRADIENT)
    tape.pass_gradient(tensor, given)
