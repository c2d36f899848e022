"""`AttentionSpec`: one attention of a block, as sizes and switches, with its exact parameter counts."""

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
