"""Megatron tensor sharding: which degrees are possible, the sizes on one device, and the regions' collectives."""

from dataclasses import dataclass

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.graph.sharding_options import PLAIN_SHARDING, ShardingOptions
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload


def sharding_obstacle(
    model: Workload, tensor_parallel: int, *, options: ShardingOptions = PLAIN_SHARDING
) -> str | None:
    """Why a model cannot be sharded ``tensor_parallel`` ways, as a sentence; None if it can.

    Of transformers heads, key-value heads, MLP width (or experts) and a projected embedding must divide; the vocabulary
    need not. Shards of experts must divide their number, and devices that split an expert its width and the tensor
    degree.
    """
    if tensor_parallel < 1:
        return f"tensor parallel degree {tensor_parallel} must be at least 1"
    if not isinstance(model, ModelSpec):
        return as_recorded(model).sharding_obstacle(tensor_parallel, options)
    return _transformer_obstacle(model, tensor_parallel, options)


def _transformer_obstacle(model: ModelSpec, tensor_parallel: int, options: ShardingOptions) -> str | None:
    """Why a transformer cannot be sharded so."""
    divided = [("attention heads", model.num_heads)]
    if not (options.has_kv_replicas and tensor_parallel % model.num_kv_heads == 0):
        divided.append(("key-value heads", model.num_kv_heads))
    if model.has_experts and options.expert is None:
        divided.append(("experts", model.num_experts))
    elif not model.has_experts or options.expert_tensor is None:
        divided.append(("MLP channels", model.ffn_size))
    if model.has_embedding_projection:
        divided.append(("embedding channels", model.embedding_size))
    for what, count in divided:
        if count % tensor_parallel:
            degrees = [str(t) for t in range(1, min(count, tensor_parallel) + 1) if count % t == 0]
            return (
                f"{model.name}: {count} {what} do not divide by tensor parallel degree {tensor_parallel}; "
                f"its divisors up to that are {', '.join(degrees)}"
            )
    return _expert_obstacle(model, options.expert or 1) or _split_obstacle(model, tensor_parallel, options)


def _expert_obstacle(model: ModelSpec, expert: int) -> str | None:
    """Why experts cannot be sharded ``expert`` ways."""
    if expert > 1 and not model.has_experts:
        return f"{model.name} has no experts to shard {expert} ways; give expert parallel degree 1"
    if model.num_experts % expert:
        return f"{model.name}: {model.num_experts} experts do not divide by expert parallel degree {expert}"
    return None


def _split_obstacle(model: ModelSpec, tensor_parallel: int, options: ShardingOptions) -> str | None:
    """Why each expert cannot be split as the options say."""
    width = options.expert_tensor or 1
    if width > 1 and not model.has_experts:
        return f"{model.name} has no experts to split {width} ways; give expert tensor parallel degree 1"
    if tensor_parallel % width:
        return f"expert tensor parallel degree {width} must divide tensor parallel degree {tensor_parallel}"
    if model.has_experts and model.ffn_size % width:
        return (
            f"{model.name}: {model.ffn_size} channels of an expert do not divide by expert tensor parallel degree "
            f"{width}"
        )
    return None


@dataclass(frozen=True, slots=True)
class Sharding:
    """Sizes on one device of one model, training set-up and tensor-parallel degree."""

    model: ModelSpec
    training: TrainingSpec
    degree: int
    options: ShardingOptions = PLAIN_SHARDING

    @property
    def num_kv_heads(self) -> int:
        """Key-value heads of one device: its share, and at least one."""
        return self.split(self.model.num_kv_heads)

    @property
    def own_sequence(self) -> int:
        """Tokens of one sequence that this device, or its tensor group, has."""
        return self.training.sequence_length // self.options.context

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch that this device, or its tensor group, has."""
        return self.training.micro_batch * self.own_sequence

    @property
    def has_sequence_shards(self) -> bool:
        """Whether activations between the tensor-parallel regions are split along the sequence."""
        return self.training.is_sequence_parallel and self.degree > 1

    @property
    def outside_tokens(self) -> int:
        """Tokens that one device holds between the tensor-parallel regions."""
        return self.split(self.tokens) if self.has_sequence_shards else self.tokens

    def split(self, count: int) -> int:
        """Share of one device, rounded up."""
        return -(-count // self.degree)

    def enter(self, tape: Tape, name: str, tensor: Tensor, *, channels: int) -> Tensor:
        """Before a column-parallel matmul: all-gather the sequence shards, or Megatron's f."""
        if self.degree == 1:
            return tensor
        if self.has_sequence_shards:
            return ops.collective(
                tape,
                name,
                tensor,
                kind=CollectiveKind.ALL_GATHER,
                elements=self.tokens * channels,
                has_regather=self.options.has_regathers,
            )
        return ops.view(tape, name, tensor, adjoint=CollectiveKind.ALL_REDUCE)

    def leave(self, tape: Tape, name: str, tensor: Tensor, *, channels: int) -> Tensor:
        """After a row-parallel matmul: reduce-scatter to sequence shards, or Megatron's g."""
        if self.degree == 1:
            return tensor
        if self.has_sequence_shards:
            elements = self.outside_tokens * channels
            return ops.collective(tape, name, tensor, kind=CollectiveKind.REDUCE_SCATTER, elements=elements)
        return ops.all_reduce(tape, name, tensor)
