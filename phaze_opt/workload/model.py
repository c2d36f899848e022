"""`ModelSpec`: a transformer as sizes and switches, with its exact parameter counts."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from phaze_opt.errors import InputError
from phaze_opt.record.plain_data import later
from phaze_opt.workload.chain import ChainCut, cut_chain

MAX_DEFAULT_SEQUENCE_LENGTH = 4096
"""A model that admits longer sequences is still run at this length unless told otherwise."""
NEXT_SENTENCE_CLASSES = 2
"""Outputs of BERT's next-sentence head."""


class ModelFamily(StrEnum):
    """Families of Hugging Face configs that are understood (the config's ``model_type``)."""

    BERT = "bert"
    GPT2 = "gpt2"
    OPT = "opt"
    LLAMA = "llama"
    MISTRAL = "mistral"
    QWEN2 = "qwen2"
    MIXTRAL = "mixtral"


class NormKind(StrEnum):
    """Layer norm has a weight and a bias a channel, RMS norm a weight only."""

    LAYER = "layer"
    RMS = "rms"

    @property
    def parameters_per_channel(self) -> int:
        """Parameters of one normalisation for each channel."""
        return 2 if self is NormKind.LAYER else 1


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A transformer. Sizes are counts of elements; every switch says what the published model has.

    Attributes:
        embedding_size: width of the token table; differs from ``hidden_size`` only where OPT projects (opt-350m).
        ffn_size: width of one MLP, or of one expert.
        num_position_rows: rows of the learned position table, 0 with rotary positions.
        num_token_types: rows of BERT's token-type table, else 0.
        has_affine_norm: whether normalisations have parameters.
        is_pre_norm: normalise before attention and MLP (else after their residual).
        has_final_norm: a normalisation before the head.
        has_qkv_bias, has_attention_output_bias, has_mlp_bias: which matmuls of a block have a bias.
        is_qkv_combined: one matmul computes query, key and value (gpt2), else three.
        is_mlp_gated: three matmuls and a gated activation instead of two.
        has_relu: the activation is a ReLU, whose backward reads its output. Written only where it is set: files and
            digests of other models are those of versions that did not have it.
        is_tied: the head's matrix is the token table.
        has_pretraining_heads: BERT's masked-language transform, pooler and next-sentence head.
        has_hidden_dropout, has_attention_dropout: whether training drops activations, attention probabilities.
        num_experts, num_active_experts: 1 and 1 without mixture of experts.
    """

    name: str
    family: ModelFamily
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    vocab_size: int
    max_sequence_length: int
    embedding_size: int
    num_position_rows: int = 0
    num_token_types: int = 0
    norm: NormKind = NormKind.LAYER
    has_affine_norm: bool = True
    is_pre_norm: bool = True
    has_final_norm: bool = True
    has_qkv_bias: bool = True
    has_attention_output_bias: bool = True
    has_mlp_bias: bool = True
    is_qkv_combined: bool = False
    is_mlp_gated: bool = False
    is_tied: bool = True
    has_pretraining_heads: bool = False
    has_hidden_dropout: bool = False
    has_attention_dropout: bool = False
    num_experts: int = 1
    num_active_experts: int = 1
    source: str = ""
    has_relu: Annotated[bool, later(False)] = False

    def __post_init__(self) -> None:
        """Check the rules that join several sizes."""
        if self.num_heads % self.num_kv_heads:
            message = (
                f"{self.name}: {self.num_heads} attention heads must be a multiple of {self.num_kv_heads} "
                "key-value heads"
            )
            raise InputError(message)
        if self.num_active_experts > self.num_experts:
            message = f"{self.name}: {self.num_active_experts} active experts must not exceed {self.num_experts}"
            raise InputError(message)

    @property
    def chain(self) -> tuple[int, ...]:
        """Kind of every layer: the embedding is of kind 0, blocks are of kind 1, the head is of kind 2."""
        return (0, *[1] * self.num_layers, 2)

    @property
    def cut(self) -> ChainCut:
        """Embedding, blocks and head as front, units and back."""
        return cut_chain(self.chain)

    @property
    def num_units(self) -> int:
        """Units that pipeline stages share out."""
        return self.cut.num_units

    @property
    def layers_key(self) -> Hashable:
        """Equal for models that differ in depth alone."""
        return replace(self, num_layers=1, name="", source=""), self.cut.parts

    @property
    def own_sequence_length(self) -> int:
        """Its maximum, at most `MAX_DEFAULT_SEQUENCE_LENGTH`."""
        return min(self.max_sequence_length, MAX_DEFAULT_SEQUENCE_LENGTH)

    @property
    def sizes_sentence(self) -> str:
        """Layers, hidden size and experts in words."""
        experts = f", {self.num_active_experts} of {self.num_experts} experts" if self.has_experts else ""
        return f"{self.num_layers} layers, hidden size {self.hidden_size:,}{experts}"

    def length_obstacle(self, length: int) -> str | None:
        """Why it cannot be run on a sequence of ``length``; None if it can."""
        longest = self.max_sequence_length
        if length <= longest:
            return None
        return f"{length} exceeds the {longest} positions of {self.name}; give at most {longest}"

    def with_combined_qkv(self) -> "ModelSpec":
        """The same with one matmul for query, key and value."""
        return replace(self, is_qkv_combined=True)

    @property
    def has_experts(self) -> bool:
        """Whether the MLP is a mixture of experts with a router."""
        return self.family is ModelFamily.MIXTRAL

    @property
    def has_rotary_positions(self) -> bool:
        """Whether positions are rotations of query and key instead of a learned table."""
        return self.num_position_rows == 0

    @property
    def has_embedding_projection(self) -> bool:
        """Whether token embeddings are projected to the hidden size and back (opt-350m)."""
        return self.embedding_size != self.hidden_size

    @property
    def query_size(self) -> int:
        """Channels of the query: heads x head size (the hidden size for most models)."""
        return self.num_heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Channels of the key, and of the value."""
        return self.num_kv_heads * self.head_size

    @property
    def norm_parameters(self) -> int:
        """Parameters of one normalisation over the hidden size."""
        return self.norm.parameters_per_channel * self.hidden_size if self.has_affine_norm else 0

    @property
    def attention_matmul_parameters(self) -> int:
        """Weights of the query, key, value and output matmuls of one block."""
        return self.hidden_size * (self.query_size + 2 * self.kv_size) + self.query_size * self.hidden_size

    @property
    def mlp_matmul_parameters(self) -> int:
        """Weights of the matmuls of one MLP, or of one expert."""
        return (3 if self.is_mlp_gated else 2) * self.hidden_size * self.ffn_size

    @property
    def router_parameters(self) -> int:
        """Weights of the expert router of one block."""
        return self.hidden_size * self.num_experts if self.has_experts else 0

    @property
    def block_parameters(self) -> int:
        """All parameters of one block."""
        biases = 0
        if self.has_qkv_bias:
            biases += self.query_size + 2 * self.kv_size
        if self.has_attention_output_bias:
            biases += self.hidden_size
        if self.has_mlp_bias:
            biases += self.hidden_size + self.ffn_size * (2 if self.is_mlp_gated else 1)
        experts = self.num_experts * self.mlp_matmul_parameters
        return self.attention_matmul_parameters + experts + self.router_parameters + biases + 2 * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """All parameters before the first block."""
        tables = self.vocab_size * self.embedding_size
        tables += (self.num_position_rows + self.num_token_types) * self.hidden_size
        return tables + self.projection_parameters + (self.norm_parameters if self.has_embedding_norm else 0)

    @property
    def has_embedding_norm(self) -> bool:
        """Whether the embedding is normalised (BERT)."""
        return self.family is ModelFamily.BERT

    @property
    def projection_parameters(self) -> int:
        """Weights of OPT's projection in, and equally of its projection out."""
        return self.embedding_size * self.hidden_size if self.has_embedding_projection else 0

    @property
    def sequence_head_parameters(self) -> int:
        """Parameters of the heads that run once a sequence: BERT's pooler and next-sentence head."""
        if not self.has_pretraining_heads:
            return 0
        pooler = self.hidden_size * self.hidden_size + self.hidden_size
        return pooler + NEXT_SENTENCE_CLASSES * (self.hidden_size + 1)

    @property
    def head_parameters(self) -> int:
        """All parameters after the last block, without a tied output matrix."""
        count = self.norm_parameters if self.has_final_norm else 0
        count += self.projection_parameters + self.sequence_head_parameters
        if self.has_pretraining_heads:
            transform = self.hidden_size * self.hidden_size + self.hidden_size + self.norm_parameters
            count += transform + self.vocab_size
        return count if self.is_tied else count + self.vocab_size * self.embedding_size

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, exact to the unit; a tied output matrix counts once."""
        return self.embedding_parameters + self.num_layers * self.block_parameters + self.head_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets: all but the experts it is not routed to."""
        idle = (self.num_experts - self.num_active_experts) * self.mlp_matmul_parameters
        return self.num_parameters - self.num_layers * idle

    @property
    def matmul_parameters(self) -> int:
        """Weights that one token is multiplied with (active experts only; without the once-a-sequence heads)."""
        mlp = self.num_active_experts * self.mlp_matmul_parameters
        block = self.attention_matmul_parameters + mlp + self.router_parameters
        head = self.vocab_size * self.embedding_size + 2 * self.projection_parameters
        if self.has_pretraining_heads:
            head += self.hidden_size * self.hidden_size
        return self.num_layers * block + head
