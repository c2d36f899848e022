"""Build the sharded operator graphs of a model."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from phaze_opt.errors import InputError
from phaze_opt.graph.block import record_block
from phaze_opt.graph.ends import record_encoder_end, record_front, record_head
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.program import Program
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.graph.sharding import Sharding, sharding_obstacle
from phaze_opt.graph.sharding_options import PLAIN_SHARDING, ShardingOptions
from phaze_opt.workload.block_spec import BlockSpec
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.transformer import Stack, TransformerSpec
from phaze_opt.workload.workload import Workload

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
