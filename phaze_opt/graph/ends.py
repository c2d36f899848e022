"""The layers before and behind the blocks: tokens, patches or frames at the front; the head, and the end of an encoder.

Tokens are looked up in a vocabulary-parallel table, projected where the table is narrower, and get positions, types and
a norm. Patches and frames are few products that no device shares: each makes the rows that it holds.
"""

from dataclasses import replace

from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_norm
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution
from phaze_opt.graph.mlp import activation_rule
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.sharding import Sharding
from phaze_opt.workload.end_specs import (
    AUDIO_STRIDE,
    FILTER_WIDTH,
    AudioFront,
    Front,
    HeadSpec,
    PatchFront,
    SequenceOutputs,
    TokenFront,
    TokenOutputs,
)
from phaze_opt.workload.transformer import Encoder

TOKEN_ID_BYTES = 8
"""Token ids are 64-bit integers."""


def record_front(sharding: Sharding, front: Front, *, name: str, is_apart: bool = False) -> Program:
    """Forward and backward of what stands before the blocks, on one device.

    Args:
        sharding: what a device has of it.
        front: which kind.
        name: of the program.
        is_apart: whether it may be on another stage than an earlier front: then it holds a copy of a shared table.
    """
    tape = Tape(dtype_bytes=sharding.training.dtype_bytes)
    num_tied = 0
    if is_apart and isinstance(front, TokenFront) and front.is_shared:
        front = replace(front, is_shared=False)
        num_tied = sharding.split(front.vocab_size) * front.embedding_size
    if isinstance(front, TokenFront):
        start, end = _record_tokens(tape, sharding, front)
    elif isinstance(front, PatchFront):
        start, end = _record_patches(tape, sharding, front)
    else:
        start, end = _record_sound(tape, sharding, front)
    if front.has_dropout:
        end = ops.dropout(tape, "embedding_dropout", end)
    tape.run_backward(end)
    # The encoder's output passes a decoder's front on its way to the blocks.
    output_bytes = end.num_bytes + sharding.outside_source_tokens * front.hidden_size * tape.dtype_bytes
    return Program(name, tape.nodes, start, (end,), output_bytes, tape.num_parameters, num_tied)


def _record_tokens(tape: Tape, sharding: Sharding, front: TokenFront) -> tuple[Tensor, Tensor]:
    """Rows of the table with what is added to them."""
    ids = tape.tensor("token_ids", sharding.tokens, element_bytes=TOKEN_ID_BYTES)
    end = _record_lookup(tape, sharding, front, ids)
    if front.has_scale:
        end = ops.elementwise(tape, "embedding_scale", (end,), ops.SCALE)
    if front.num_position_rows:
        end = _add_positions(tape, sharding, end, front.num_position_rows, front.hidden_size)
    if front.num_token_types:
        end = ops.bias(tape, "token_types", (end,), size=front.num_token_types * front.hidden_size)[0]
    if front.norm is not None:
        end = record_norm(tape, "embedding_norm", end, front.norm)
    return ids, end


def _add_positions(tape: Tape, sharding: Sharding, tensor: Tensor, rows: int, hidden: int) -> Tensor:
    """Add the rows of a position table that the sequence has."""
    num_read = min(sharding.own_sequence, rows) * hidden
    return ops.bias(tape, "positions", (tensor,), size=rows * hidden, num_read=num_read)[0]


def _record_lookup(tape: Tape, sharding: Sharding, front: TokenFront, ids: Tensor) -> Tensor:
    """Rows of the token table that this device holds, reduced over the group, projected to the hidden size."""
    tokens, width = sharding.tokens, front.embedding_size
    held = 0 if front.is_shared else sharding.split(front.vocab_size) * width
    table = tape.weight("token_table", held, num_read=sharding.split(tokens) * width)
    rows = ops.elementwise(
        tape, "lookup", (ids,), ops.LOOKUP, elements=tokens * width, weights=(table,), is_differentiable=False
    )
    if not front.projection_parameters:
        return sharding.leave(tape, "lookup_leave", rows, channels=front.hidden_size)
    own = width // sharding.degree
    if sharding.degree > 1:
        rows = ops.collective(tape, "lookup_scatter", rows, kind=CollectiveKind.REDUCE_SCATTER, elements=tokens * own)
    projected = ops.linear(tape, "project_in", rows, rows=tokens, inner=own, width=front.hidden_size)
    return sharding.leave(tape, "project_in_leave", projected, channels=front.hidden_size)


def _record_patches(tape: Tape, sharding: Sharding, front: PatchFront) -> tuple[Tensor, Tensor]:
    """One product for all patches of this device's rows, a class token, and positions."""
    images = sharding.training.micro_batch
    patches = sharding.split(images * front.num_patches) if sharding.has_sequence_shards else images * front.num_patches
    pixels = tape.tensor("pixels", patches * front.patch_elements)
    end = ops.linear(
        tape,
        "patches",
        pixels,
        rows=patches,
        inner=front.patch_elements,
        width=front.hidden_size,
        has_bias=True,
        is_differentiable=False,
    )
    token = tape.weight("class_token", front.hidden_size)
    elements = sharding.outside_tokens * front.hidden_size
    end = ops.elementwise(tape, "class_tokens", (end,), ops.JOIN, elements=elements, weights=(token,))
    return pixels, _add_positions(tape, sharding, end, front.num_positions, front.hidden_size)


def _record_sound(tape: Tape, sharding: Sharding, front: AudioFront) -> tuple[Tensor, Tensor]:
    """Two convolutions over the frames of this device's positions, each with an activation, and positions."""
    positions, width = sharding.outside_tokens, front.hidden_size
    frames = AUDIO_STRIDE * positions
    end = sound = tape.tensor("sound", frames * front.num_bins)
    for name, channels, stride in (("filters", front.num_bins, 1), ("second_filters", width, AUDIO_STRIDE)):
        shape = ConvolutionShape(
            batch=1,
            in_channels=channels,
            out_channels=width,
            in_size=(frames,),
            kernel=(FILTER_WIDTH,),
            stride=(stride,),
            padding=(FILTER_WIDTH // 2,),
        )
        end = convolution(tape, name, end, shape, has_bias=True, is_differentiable=end is not sound)
        end = ops.elementwise(tape, f"{name}_activation", (end,), ops.SMOOTH_ACTIVATION)
    return sound, _add_positions(tape, sharding, end, front.num_positions, width)


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
