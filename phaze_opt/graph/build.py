"""Build the sharded operator graphs of a model.

The layers before and behind the blocks: tokens, patches or frames at the front; the head, and the end of an encoder.

Tokens are looked up in a vocabulary-parallel table, projected where the table is narrower, and get positions, types and
a norm. Patches and frames are few products that no device shares: each makes the rows that it holds.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from phaze_opt.errors import InputError
from phaze_opt.graph import operations as ops
from phaze_opt.graph.block import record_block, record_norm
from phaze_opt.graph.convolution_shape import ConvolutionShape
from phaze_opt.graph.convolutions import convolution
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.mlp import activation_rule
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.operator import PLAIN_SHARDING, CollectiveKind, ShardingOptions
from phaze_opt.graph.program import Program, Tape, Tensor, TensorRole
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.graph.sharding import Sharding, sharding_obstacle
from phaze_opt.workload.block_spec import BlockSpec
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
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.transformer import Encoder, Stack, TransformerSpec
from phaze_opt.workload.workload import Workload

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


MAX_KEPT = 256
"""Models' layers that a process keeps, the latest: objectives of one model ask for the same ones again."""


def build_model_graph(
    model: Workload,
    training: TrainingSpec,
    *,
    tensor_parallel: int,
    fusion: FusionLevel = FusionLevel.EPILOGUE,
    options: ShardingOptions = PLAIN_SHARDING,
) -> ModelGraph:
    """The chain of a model's layers on one device of a tensor-parallel group; identical layers appear once.

    Args:
        model: what is trained.
        training: batches, sequence, optimizer, attention form.
        tensor_parallel: degree t.
        fusion: which operators run as one kernel.
        options: context and expert parallelism and more; by default tensor parallelism alone.

    Raises:
        InputError: `sharding_obstacle` names one, or the sequence is longer than a learned position table.
    """
    # No layer depends on how many micro-batches there are.
    layers = _build_layers(model, replace(training, global_batch=1), tensor_parallel, fusion, options)
    return ModelGraph(model=model.name, tensor_parallel=tensor_parallel, layers=layers, cut=model.cut)


@lru_cache(maxsize=MAX_KEPT)
def _build_layers(
    model: Workload, training: TrainingSpec, tensor_parallel: int, fusion: FusionLevel, options: ShardingOptions
) -> tuple[LayerGraph, ...]:
    programs = build_programs(model, training, tensor_parallel=tensor_parallel, options=options)
    # Front and back, embeddings and heads, stay dense, as in the papers.
    units = {kind for unit in model.cut.units for kind in unit}
    return tuple(
        lower(
            fuse(program, fusion), optimizer=training.optimizer, sparsity=training.sparsity if kind in units else None
        )
        for kind, program in enumerate(programs)
    )


def build_programs(
    model: Workload, training: TrainingSpec, *, tensor_parallel: int, options: ShardingOptions = PLAIN_SHARDING
) -> tuple[Program, ...]:
    """Each kind of layer as an unfused program, in the order of the kinds of the model's cut.

    Raises:
        InputError: as `build_model_graph`.
    """
    obstacle = sharding_obstacle(model, tensor_parallel, options=options)
    if obstacle is not None:
        raise InputError(obstacle)
    spec = transformer_of(model)
    if spec is None:
        return as_recorded(model).record_layers(training, tensor_parallel=tensor_parallel, options=options)
    return _record_transformer(spec, training, tensor_parallel, options)


def _record_transformer(
    spec: TransformerSpec, training: TrainingSpec, tensor_parallel: int, options: ShardingOptions
) -> tuple[Program, ...]:
    """Every kind of layer of a transformer, within what its positions hold."""
    if spec.has_learned_positions and training.sequence_length > spec.max_sequence_length:
        message = (
            f"sequence length {training.sequence_length} exceeds the {spec.max_sequence_length} learned positions "
            f"of {spec.name}; give at most that"
        )
        raise InputError(message, key="sequence_length")
    source_length = 0 if spec.encoder is None else spec.encoder.length_beside(training.sequence_length)
    for length in (training.sequence_length, source_length):
        if length % options.context:
            message = f"sequence length {length} does not divide by context parallel degree {options.context}"
            raise InputError(message, key="sequence_length")
    return tuple(_record_layers(spec, Sharding(training, tensor_parallel, options)))


def _record_layers(spec: TransformerSpec, sharding: Sharding) -> Iterator[Program]:
    """Every kind of layer, in the order of `TransformerSpec.chain`."""
    encoder, training = spec.encoder, sharding.training
    if encoder is not None:
        length = encoder.length_beside(training.sequence_length)
        own = replace(sharding, training=replace(training, sequence_length=length))
        yield from _record_stack(own, encoder.stack, prefix="encoder_")
        yield record_encoder_end(own, encoder)
        sharding = replace(sharding, source_length=length)
    last = spec.stack.kinds[spec.stack.pattern[-1]] if spec.hands_on_nothing else None
    yield from _record_stack(
        sharding, spec.stack, is_apart=spec.cut.is_joined, last=None if spec.has_end_apart else last
    )
    if last is not None and spec.has_end_apart:
        yield record_block(sharding, last, name="block_last", hands_on=False)
    yield record_head(sharding, spec.head)


def _record_stack(
    sharding: Sharding, stack: Stack, *, prefix: str = "", is_apart: bool = False, last: BlockSpec | None = None
) -> Iterator[Program]:
    """A front and every kind of block, numbered if there are several; ``last`` hands the encoder's output to nobody."""
    yield record_front(sharding, stack.front, name=f"{prefix}embedding", is_apart=is_apart)
    for number, kind in enumerate(stack.kinds, start=1):
        suffix = f"_{number}" if len(stack.kinds) > 1 else ""
        yield record_block(sharding, kind, name=f"{prefix}block{suffix}", hands_on=kind is not last)
