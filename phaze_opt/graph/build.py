"""Build the sharded operator graphs of a model."""

from dataclasses import replace
from functools import lru_cache

from phaze_opt.errors import InputError
from phaze_opt.graph.block import record_block
from phaze_opt.graph.fusion import fuse
from phaze_opt.graph.layer import LayerGraph
from phaze_opt.graph.lowering import lower
from phaze_opt.graph.model_ends import record_embedding, record_head
from phaze_opt.graph.model_graph import ModelGraph
from phaze_opt.graph.program import Program
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.graph.sharding import Sharding, sharding_obstacle
from phaze_opt.graph.sharding_options import PLAIN_SHARDING, ShardingOptions
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.software import FusionLevel
from phaze_opt.workload.training import TrainingSpec
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
    return tuple(lower(fuse(program, fusion), optimizer=training.optimizer) for program in programs)


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
    if not isinstance(model, ModelSpec):
        return as_recorded(model).record_layers(training, tensor_parallel=tensor_parallel, options=options)
    return _record_transformer(model, training, tensor_parallel, options)


def _record_transformer(
    model: ModelSpec, training: TrainingSpec, tensor_parallel: int, options: ShardingOptions
) -> tuple[Program, ...]:
    """Embedding, block and head."""
    if not model.has_rotary_positions and training.sequence_length > model.max_sequence_length:
        message = (
            f"sequence length {training.sequence_length} exceeds the {model.max_sequence_length} learned positions "
            f"of {model.name}; give at most that"
        )
        raise InputError(message, key="sequence_length")
    if training.sequence_length % options.context:
        message = (
            f"sequence length {training.sequence_length} does not divide by context parallel degree {options.context}"
        )
        raise InputError(message, key="sequence_length")
    sharding = Sharding(model, training, tensor_parallel, options)
    return record_embedding(sharding), record_block(sharding), record_head(sharding)
