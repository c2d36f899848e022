"""Megatron tensor sharding: which degrees are possible, the sizes on one device, and the regions' collectives.

Model FLOPs: what training one sample takes, whatever the sharding, fusion and recomputation (semantics 1 and 7).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from phaze_opt.graph import operations as ops
from phaze_opt.graph.operator import PLAIN_SHARDING, CollectiveKind, ShardingOptions
from phaze_opt.graph.program import Tape, Tensor
from phaze_opt.graph.recorded import as_recorded
from phaze_opt.workload.block_spec import AttentionSpec, BlockSpec, QueryKeyNorm
from phaze_opt.workload.end_specs import TokenFront
from phaze_opt.workload.model import transformer_of
from phaze_opt.workload.model_classes import ENCODERS
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.transformer import Stack, TransformerSpec
from phaze_opt.workload.workload import Workload


def model_flops(model: Workload, sequence_length: int) -> float:
    """Matmul FLOPs of forward and backward of one sample, attention in full (no causal halving).

    Of a plain transformer 6 x matmul weights + 12 x layers x query channels x sequence for each token, and 6 x the
    weights of the heads that run once a sequence. A query meets no more keys than its window has; keys and values of a
    cross-attention are made once a position of the encoder. Nothing needs the gradient of images and sound.
    """
    spec = transformer_of(model)
    if spec is None:
        return as_recorded(model).model_flops(sequence_length)
    source = 0 if spec.encoder is None else spec.encoder.length_beside(sequence_length)
    forward, unneeded = _stack_macs(spec.stack, sequence_length, source)
    if spec.encoder is not None:
        of_encoder = _stack_macs(spec.encoder.stack, source, 0)
        forward, unneeded = forward + of_encoder[0], unneeded + of_encoder[1]
    forward += sequence_length * spec.head.token_matmul_parameters
    return 2.0 * (3 * forward - unneeded) + sequence_head_flops(spec)


def sequence_head_flops(spec: TransformerSpec) -> float:
    """Matmul FLOPs of what runs once a sequence, such as BERT's pooler and next-sentence head, for one sample."""
    return 6.0 * spec.head.sequence_matmul_parameters


def unmasked_share(spec: TransformerSpec, sequence_length: int) -> float:
    """Share of the products of attention that no causal mask halves: encoders', and those across."""
    source = 0 if spec.encoder is None else spec.encoder.length_beside(sequence_length)
    of_encoder = () if spec.encoder is None else spec.encoder.stack.blocks
    unmasked = sum(each.attention.product_macs(source, each.attention.num_keys(source)) for each in of_encoder)
    total, is_encoder = unmasked, spec.family in ENCODERS
    for attention in (each for block in spec.stack.blocks for each in block.attentions):
        keys = source if attention.is_cross else sequence_length
        macs = attention.product_macs(sequence_length, attention.num_keys(keys))
        total, unmasked = total + macs, unmasked + macs * (attention.is_cross or is_encoder)
    return unmasked / total


def _stack_macs(stack: Stack, tokens: int, source: int) -> tuple[int, int]:
    """Multiply-accumulates forward, and those of the gradient of the input that backward spares."""
    by_kind = [_block_macs(kind, tokens, source) for kind in stack.kinds]
    front = stack.front
    return front.forward_macs(tokens) + sum(by_kind[index] for index in stack.pattern), front.input_macs(tokens)


def _block_macs(block: BlockSpec, tokens: int, source: int) -> int:
    """Multiply-accumulates of one block forward."""
    count = tokens * block.mlp.active_parameters
    for attention in block.attentions:
        others = source if attention.is_cross else tokens
        own = attention.matmul_parameters - attention.kv_parameters
        count += tokens * own + others * attention.kv_parameters
        count += attention.product_macs(tokens, attention.num_keys(others))
    return count


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
    spec = transformer_of(model)
    if spec is None:
        return as_recorded(model).sharding_obstacle(tensor_parallel, options)
    return _transformer_obstacle(spec, tensor_parallel, options)


def _transformer_obstacle(spec: TransformerSpec, tensor_parallel: int, options: ShardingOptions) -> str | None:
    """Why a transformer cannot be sharded so."""
    divided = _divided_sizes(spec, tensor_parallel, options)
    obstacle = division_obstacle(spec.name, divided, tensor_parallel)
    return obstacle or expert_obstacle(ExpertSizes.of(spec), tensor_parallel, options)


def _divided_sizes(spec: TransformerSpec, tensor_parallel: int, options: ShardingOptions) -> Iterator[tuple[str, int]]:
    """What a tensor degree must divide, by name."""
    for block in spec.kinds:
        for attention in block.attentions:
            yield "attention heads", attention.num_heads
            if not (options.has_kv_replicas and tensor_parallel % attention.num_kv_heads == 0):
                yield "key-value heads", attention.num_kv_heads
            if attention.qk_norm is QueryKeyNorm.WHOLE:
                yield "normalised key channels", attention.key_size
        if block.experts is not None and options.expert is None:
            yield "experts", block.experts.num_experts
        elif block.experts is not None and options.expert_tensor is None:
            yield "MLP channels", block.experts.expert.width
        for mlp in block.dense_mlps:
            yield "MLP channels", mlp.width
    front = spec.stack.front
    if isinstance(front, TokenFront) and front.projection_parameters:
        yield "embedding channels", front.embedding_size


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Experts of a model.

    Attributes:
        name: of the model.
        has_experts: whether some layer has experts.
        num_experts: of such a layer; 1 without any.
        width: channels of each.
    """

    name: str
    has_experts: bool = False
    num_experts: int = 1
    width: int = 0

    @classmethod
    def of(cls, spec: TransformerSpec) -> "ExpertSizes":
        """Those of a transformer."""
        width = 0 if spec.experts is None else spec.experts.expert.width
        return cls(spec.name, spec.has_experts, spec.num_experts, width)


def expert_obstacle(experts: ExpertSizes, tensor_parallel: int, options: ShardingOptions) -> str | None:
    """Why experts cannot be sharded, or each of them split, as the options say; None if they can."""
    name, expert, width = experts.name, options.expert or 1, options.expert_tensor or 1
    if expert > 1 and not experts.has_experts:
        return f"{name} has no experts to shard {expert} ways; give expert parallel degree 1"
    if experts.num_experts % expert:
        return f"{name}: {experts.num_experts} experts do not divide by expert parallel degree {expert}"
    if width > 1 and not experts.has_experts:
        return f"{name} has no experts to split {width} ways; give expert tensor parallel degree 1"
    if tensor_parallel % width:
        return f"expert tensor parallel degree {width} must divide tensor parallel degree {tensor_parallel}"
    if experts.has_experts and experts.width % width:
        return f"{name}: {experts.width} channels of an expert do not divide by expert tensor parallel degree {width}"
    return None


def division_obstacle(name: str, divided: Iterable[tuple[str, int]], tensor_parallel: int) -> str | None:
    """The first of some sizes that a tensor degree does not divide, as a sentence; None if it divides all."""
    for what, count in divided:
        if count % tensor_parallel:
            degrees = [str(t) for t in range(1, min(count, tensor_parallel) + 1) if count % t == 0]
            return (
                f"{name}: {count} {what} do not divide by tensor parallel degree {tensor_parallel}; "
                f"its divisors up to that are {', '.join(degrees)}"
            )
    return None


@dataclass(frozen=True, slots=True)
class Sharding:
    """Sizes on one device of one training set-up and tensor-parallel degree.

    ``source_length`` is the sequence that cross-attentions read.
    """

    training: TrainingSpec
    degree: int
    options: ShardingOptions = PLAIN_SHARDING
    source_length: int = 0

    def at_source(self) -> "Sharding":
        """The same for the sequence that cross-attentions read."""
        return replace(self, training=replace(self.training, sequence_length=self.source_length), source_length=0)

    def num_kv_heads(self, spec: AttentionSpec) -> int:
        """Key-value heads of one device: its share, and at least one."""
        return self.split(spec.num_kv_heads)

    def num_keys(self, spec: AttentionSpec) -> int:
        """Keys that each query of an attention meets."""
        return spec.num_keys(self.source_length if spec.is_cross else self.training.sequence_length)

    @property
    def own_sequence(self) -> int:
        """Tokens of one sequence that this device, or its tensor group, has."""
        return self.training.sequence_length // self.options.context

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch that this device, or its tensor group, has."""
        return self.training.micro_batch * self.own_sequence

    @property
    def source_tokens(self) -> int:
        """Those of the encoder's output."""
        return self.training.micro_batch * (self.source_length // self.options.context)

    @property
    def outside_source_tokens(self) -> int:
        """Those of them that one device holds between the tensor-parallel regions."""
        return self.split(self.source_tokens) if self.has_sequence_shards else self.source_tokens

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
