"""A block of a transformer: its norms, attention, MLP or experts, with exact parameter counts."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.errors import InputError


class QueryKeyNorm(StrEnum):
    """What normalises queries and keys before their product.

    HEAD: each head by weights that all heads share. WHOLE: all heads at once, a weight a channel. PLAIN: each head,
    without weights.
    """

    NONE = "none"
    HEAD = "head"
    WHOLE = "whole"
    PLAIN = "plain"


class ScoreBias(StrEnum):
    """What is added to the scores: nothing, a distance times a slope (ALiBi), or rows of a learned table (T5)."""

    NONE = "none"
    SLOPES = "slopes"
    TABLE = "table"


class SelfOrCross(StrEnum):
    """Where keys and values come from: the layer's own input, or the output of the encoder."""

    SELF = "self"
    CROSS = "cross"


@dataclass(frozen=True, slots=True)
class LatentProjection:
    """Queries, keys and values by way of narrow, normalised vectors (DeepSeek-V2, section 2.1).

    Attributes:
        query_rank: width of the queries' vector; 0 where queries come from the hidden state.
        kv_rank: width of the vector that keys and values share.
        rotary_size: rotated channels of a key, which all heads share.
        has_bias: whether the two matmuls down have biases.
    """

    query_rank: int
    kv_rank: int
    rotary_size: int
    has_bias: bool = False


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """One attention. Sizes are channels.

    Attributes:
        hidden_size: of what enters and leaves.
        num_heads, num_kv_heads: query heads, and key-value heads that they share.
        head_size: of one query and key.
        value_size: of one value.
        rotary_size: rotated channels of one query and key; 0 without rotary positions.
        window: keys that a query meets at most: of a sliding window or of a chunk; 0 for all.
        qk_norm: what normalises queries and keys.
        latent: low-rank projections in place of plain ones.
        source: where keys and values come from.
        has_qkv_bias, has_key_bias, has_output_bias: which matmuls have a bias; keys only if both of theirs are set.
        is_qkv_combined: one matmul computes query, key and value.
        score_bias: what is added to scores.
        num_table_rows: rows of the table of `ScoreBias.TABLE` that this attention owns; 0 where another one does.
        has_soft_cap: scores go through a scaled tanh.
        has_sinks: the softmax has one learned score a head besides.
        has_dropout: whether training drops probabilities.
    """

    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    value_size: int
    rotary_size: int = 0
    window: int = 0
    qk_norm: QueryKeyNorm = QueryKeyNorm.NONE
    latent: LatentProjection | None = None
    source: SelfOrCross = SelfOrCross.SELF
    has_qkv_bias: bool = False
    has_key_bias: bool = True
    has_output_bias: bool = False
    is_qkv_combined: bool = False
    score_bias: ScoreBias = ScoreBias.NONE
    num_table_rows: int = 0
    has_soft_cap: bool = False
    has_sinks: bool = False
    has_dropout: bool = False

    def __post_init__(self) -> None:
        """Check the rule that joins the numbers of heads."""
        if self.num_heads % self.num_kv_heads:
            message = f"{self.num_heads} attention heads must be a multiple of {self.num_kv_heads} key-value heads"
            raise InputError(message)

    @property
    def query_size(self) -> int:
        """Channels of all queries."""
        return self.num_heads * self.head_size

    @property
    def key_size(self) -> int:
        """Channels of all keys."""
        return self.num_kv_heads * self.head_size

    @property
    def kv_value_size(self) -> int:
        """Channels of all values."""
        return self.num_kv_heads * self.value_size

    @property
    def context_size(self) -> int:
        """Channels of what all queries get: values, one for each query head."""
        return self.num_heads * self.value_size

    @property
    def is_cross(self) -> bool:
        """Whether keys and values come from the encoder."""
        return self.source is SelfOrCross.CROSS

    def num_keys(self, sequence_length: int) -> int:
        """Keys that a query meets: those of its window, or the whole sequence where that is shorter.

        No query meets fewer, as no causal mask halves the products either (semantics 1).
        """
        return min(self.window, sequence_length) if self.window else sequence_length

    @property
    def query_parameters(self) -> int:
        """Weights that make queries of the hidden state."""
        if self.latent is None or not self.latent.query_rank:
            return self.hidden_size * self.query_size
        return self.latent.query_rank * (self.hidden_size + self.query_size)

    @property
    def kv_parameters(self) -> int:
        """Weights that make keys and values."""
        if self.latent is None:
            return self.hidden_size * (self.key_size + self.kv_value_size)
        rank, rotary = self.latent.kv_rank, self.latent.rotary_size
        up = self.num_heads * (self.head_size - rotary + self.value_size)
        return self.hidden_size * (rank + rotary) + rank * up

    @property
    def matmul_parameters(self) -> int:
        """Weights of all its matmuls."""
        return self.query_parameters + self.kv_parameters + self.context_size * self.hidden_size

    @property
    def norm_parameters(self) -> int:
        """Parameters of the norms of queries, keys and latent vectors."""
        latent = 0 if self.latent is None else self.latent.query_rank + self.latent.kv_rank
        own = {QueryKeyNorm.HEAD: 2 * self.head_size, QueryKeyNorm.WHOLE: self.query_size + self.key_size}
        return latent + own.get(self.qk_norm, 0)

    @property
    def bias_parameters(self) -> int:
        """Parameters of all biases."""
        count = self.hidden_size if self.has_output_bias else 0
        if self.latent is not None and self.latent.has_bias:
            count += self.latent.query_rank + self.latent.kv_rank + self.latent.rotary_size
        if self.has_qkv_bias:
            count += self.query_size + self.kv_value_size + (self.key_size if self.has_key_bias else 0)
        return count

    @property
    def num_parameters(self) -> int:
        """All of them."""
        scores = self.num_heads * (self.num_table_rows + self.has_sinks)
        return self.matmul_parameters + self.norm_parameters + self.bias_parameters + scores

    def product_macs(self, queries: int, keys: int) -> int:
        """Multiply-accumulates of scores and context for so many queries, each of which meets so many keys."""
        return queries * keys * (self.query_size + self.context_size)


@dataclass(frozen=True, slots=True)
class MlpSpec:
    """A dense MLP, or one expert.

    Attributes:
        hidden_size: channels that enter and leave.
        width: channels inside.
        is_gated: three matmuls and a gated activation instead of two.
        has_bias: whether its matmuls have biases.
        has_relu: the activation is a ReLU, whose backward reads its output.
        is_gate_combined: one matmul makes gate and values.
        has_dropout: whether training drops activations inside.
    """

    hidden_size: int
    width: int
    is_gated: bool = False
    has_bias: bool = False
    has_relu: bool = False
    is_gate_combined: bool = False
    has_dropout: bool = False

    @property
    def matmul_parameters(self) -> int:
        """Weights of its matmuls."""
        return (3 if self.is_gated else 2) * self.hidden_size * self.width

    @property
    def num_parameters(self) -> int:
        """All of them."""
        biases = self.hidden_size + self.width * (2 if self.is_gated else 1)
        return self.matmul_parameters + (biases if self.has_bias else 0)

    @property
    def active_parameters(self) -> int:
        """Weights of the matmuls that one token meets."""
        return self.matmul_parameters

    @property
    def idle_parameters(self) -> int:
        """Parameters that one token does not meet."""
        return 0


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """Experts that a token meets.

    Attributes:
        num_active: how many.
        num_groups, num_active_groups: of so many of so many groups alone; 0 and 0 where it may meet any.
    """

    num_active: int
    num_groups: int = 0
    num_active_groups: int = 0

    def num_places(self, places: int) -> float:
        """On how many of some places, each with as many experts, those of one token lie on average.

        Experts of a token lie on any place alike; groups lie on places of their own, or share them.
        """
        met = places * (1.0 - (1.0 - 1.0 / places) ** self.num_active)
        if not self.num_groups:
            return met
        return min(met, self.num_active_groups * max(1.0, places / self.num_groups))


@dataclass(frozen=True, slots=True)
class ExpertsSpec:
    """A router and experts, of which a token meets some; perhaps an expert that every token meets.

    Attributes:
        expert: one of the routed experts.
        num_experts: of them.
        num_active: that one token meets.
        shared: what every token meets besides.
        has_router_bias: whether the router has a bias.
        num_groups, num_active_groups: a token meets experts of so many of so many groups alone (node-limited routing);
            0 and 0 where it may meet any.
    """

    expert: MlpSpec
    num_experts: int
    num_active: int
    shared: MlpSpec | None = None
    has_router_bias: bool = False
    num_groups: int = 0
    num_active_groups: int = 0

    def __post_init__(self) -> None:
        """Check the rule that joins the numbers of experts."""
        if self.num_active > self.num_experts:
            message = f"{self.num_active} active experts must not exceed {self.num_experts}"
            raise InputError(message)
        if not 0 <= self.num_active_groups <= self.num_groups or self.num_experts % max(1, self.num_groups):
            given = f"{self.num_active_groups} of {self.num_groups} groups"
            message = f"{given} are no part of {self.num_experts} experts in equal groups"
            raise InputError(message)

    @property
    def routing(self) -> "ExpertRouting":
        """Which of them a token meets."""
        return ExpertRouting(self.num_active, self.num_groups, self.num_active_groups)

    @property
    def hidden_size(self) -> int:
        """Channels that enter and leave."""
        return self.expert.hidden_size

    @property
    def router_parameters(self) -> int:
        """Weights of the router."""
        return self.hidden_size * self.num_experts

    @property
    def num_parameters(self) -> int:
        """All of them."""
        router = self.router_parameters + (self.num_experts if self.has_router_bias else 0)
        shared = 0 if self.shared is None else self.shared.num_parameters
        return router + self.num_experts * self.expert.num_parameters + shared

    @property
    def active_parameters(self) -> int:
        """Weights of the matmuls that one token meets, the router's with them."""
        shared = 0 if self.shared is None else self.shared.matmul_parameters
        return self.router_parameters + self.num_active * self.expert.matmul_parameters + shared

    @property
    def idle_parameters(self) -> int:
        """Parameters of the experts that one token does not meet."""
        return (self.num_experts - self.num_active) * self.expert.num_parameters


class NormKind(StrEnum):
    """Layer norm has a weight and a bias a channel, RMS norm a weight only."""

    LAYER = "layer"
    RMS = "rms"

    @property
    def parameters_per_channel(self) -> int:
        """Parameters of one normalisation for each channel."""
        return 2 if self is NormKind.LAYER else 1


class NormPlacement(StrEnum):
    """Where a block normalises.

    BEFORE: what enters attention and MLP. AFTER: each residual sum. AROUND: what enters them and what leaves them.
    BRANCH_END: what leaves them alone. SHARED: one norm feeds attention and MLP, which run side by side. SEPARATE: they
    run side by side behind a norm each.
    """

    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    BRANCH_END = "branch_end"
    SHARED = "shared"
    SEPARATE = "separate"

    @property
    def is_parallel(self) -> bool:
        """Whether attention and MLP run side by side and their results are added at once."""
        return self in (NormPlacement.SHARED, NormPlacement.SEPARATE)

    @property
    def has_first(self) -> bool:
        """Whether what enters attention and MLP is normalised."""
        return self not in (NormPlacement.AFTER, NormPlacement.BRANCH_END)

    @property
    def has_branch_end(self) -> bool:
        """Whether what leaves them is normalised before it is added."""
        return self in (NormPlacement.AROUND, NormPlacement.BRANCH_END)

    def num_norms(self, num_halves: int) -> int:
        """Normalisations of a block of so many attentions and MLPs."""
        if self is NormPlacement.SHARED:
            return 1
        return num_halves * (2 if self is NormPlacement.AROUND else 1)


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A normalisation over the hidden size: its kind, and whether it has parameters."""

    kind: NormKind
    hidden_size: int
    has_parameters: bool = True

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.kind.parameters_per_channel * self.hidden_size if self.has_parameters else 0


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One kind of block.

    Attributes:
        attention: of the block's own sequence.
        mlp: dense, or experts.
        norm: of the block.
        placement: where it normalises.
        cross_attention: to the encoder's output.
        has_dropout: whether training drops what attention and MLP add.
        has_branch_scale: whether what they add is scaled first.
    """

    attention: AttentionSpec
    mlp: MlpSpec | ExpertsSpec
    norm: NormSpec
    placement: NormPlacement = NormPlacement.BEFORE
    cross_attention: AttentionSpec | None = None
    has_dropout: bool = False
    has_branch_scale: bool = False

    @property
    def hidden_size(self) -> int:
        """Channels that enter and leave."""
        return self.norm.hidden_size

    @property
    def attentions(self) -> Iterator[AttentionSpec]:
        """Its attentions, in their order."""
        yield self.attention
        if self.cross_attention is not None:
            yield self.cross_attention

    @property
    def experts(self) -> ExpertsSpec | None:
        """Its experts, if it has any."""
        return self.mlp if isinstance(self.mlp, ExpertsSpec) else None

    @property
    def dense_mlps(self) -> tuple[MlpSpec, ...]:
        """What of its MLP every token meets, the router apart."""
        if isinstance(self.mlp, MlpSpec):
            return (self.mlp,)
        return () if self.mlp.shared is None else (self.mlp.shared,)

    @property
    def num_parameters(self) -> int:
        """All of them."""
        attentions = list(self.attentions)
        norms = self.placement.num_norms(len(attentions) + 1) * self.norm.num_parameters
        return sum(each.num_parameters for each in attentions) + self.mlp.num_parameters + norms
