"""Hugging Face configs of the known families, as strict pydantic models that yield a `ModelSpec`.

Only keys that change sizes are read; the dozens of others in a real config.json are accepted and ignored. A key that is
read is checked strictly: an integer must be written as an integer. Defaults are those of the transformers library.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.workload.model import ModelFamily, ModelSpec, NormKind

Layers = Annotated[int, Field(gt=0, le=1 << 14)]
Heads = Annotated[int, Field(gt=0, le=1 << 14)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 27)]
Experts = Annotated[int, Field(gt=0, le=1 << 12)]
Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows that no token uses."""


class FamilyConfig(BaseModel):
    """What every family shares."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())

    vocab_size: Rows
    activation: str | None = Field(default=None, validation_alias="hidden_act")
    is_encoder_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False

    @property
    def has_relu(self) -> bool:
        """Whether the activation is a ReLU."""
        return self.activation == "relu"

    @abstractmethod
    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` this config describes."""


class BertConfig(FamilyConfig):
    """BERT with both pre-training heads (masked language model, pooler and next sentence)."""

    hidden_size: Width
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Width
    max_position_embeddings: Rows
    type_vocab_size: Rows = 2
    position_embedding_type: Literal["absolute"] | None = "absolute"
    hidden_dropout_prob: Probability = 0.1
    attention_probs_dropout_prob: Probability = 0.1
    tie_word_embeddings: bool = True

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this BERT."""
        return ModelSpec(
            name=name,
            family=ModelFamily.BERT,
            num_layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            num_heads=self.num_attention_heads,
            num_kv_heads=self.num_attention_heads,
            head_size=self.hidden_size // self.num_attention_heads,
            ffn_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_sequence_length=self.max_position_embeddings,
            embedding_size=self.hidden_size,
            num_position_rows=self.max_position_embeddings,
            num_token_types=self.type_vocab_size,
            is_pre_norm=False,
            has_final_norm=False,
            is_tied=self.tie_word_embeddings,
            has_pretraining_heads=True,
            has_hidden_dropout=self.hidden_dropout_prob > 0,
            has_attention_dropout=self.attention_probs_dropout_prob > 0,
            source=source,
            has_relu=self.has_relu,
        )


class Gpt2Config(FamilyConfig):
    """GPT-2, and every model of its shape (GPT-3, Megatron GPT-2)."""

    activation: str | None = Field(default=None, validation_alias="activation_function")
    n_embd: Width
    n_layer: Layers
    n_head: Heads
    n_positions: Rows
    n_inner: Width | None = None
    resid_pdrop: Probability = 0.1
    attn_pdrop: Probability = 0.1
    tie_word_embeddings: bool = True

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this GPT-2."""
        return ModelSpec(
            name=name,
            family=ModelFamily.GPT2,
            num_layers=self.n_layer,
            hidden_size=self.n_embd,
            num_heads=self.n_head,
            num_kv_heads=self.n_head,
            head_size=self.n_embd // self.n_head,
            ffn_size=4 * self.n_embd if self.n_inner is None else self.n_inner,
            vocab_size=self.vocab_size,
            max_sequence_length=self.n_positions,
            embedding_size=self.n_embd,
            num_position_rows=self.n_positions,
            is_qkv_combined=True,
            is_tied=self.tie_word_embeddings,
            has_hidden_dropout=self.resid_pdrop > 0,
            has_attention_dropout=self.attn_pdrop > 0,
            source=source,
            has_relu=self.has_relu,
        )


class OptConfig(FamilyConfig):
    """OPT; its 350M model is post-norm and projects narrower embeddings."""

    activation: str | None = Field(default="relu", validation_alias="activation_function")
    hidden_size: Width
    num_hidden_layers: Layers
    num_attention_heads: Heads
    ffn_dim: Width
    max_position_embeddings: Rows
    word_embed_proj_dim: Width | None = None
    do_layer_norm_before: bool = True
    remove_final_layer_norm: bool = Field(default=False, validation_alias="_remove_final_layer_norm")
    layer_norm_elementwise_affine: bool = True
    enable_bias: bool = True
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    tie_word_embeddings: bool = True

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this OPT."""
        return ModelSpec(
            name=name,
            family=ModelFamily.OPT,
            num_layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            num_heads=self.num_attention_heads,
            num_kv_heads=self.num_attention_heads,
            head_size=self.hidden_size // self.num_attention_heads,
            ffn_size=self.ffn_dim,
            vocab_size=self.vocab_size,
            max_sequence_length=self.max_position_embeddings,
            embedding_size=self.hidden_size if self.word_embed_proj_dim is None else self.word_embed_proj_dim,
            num_position_rows=self.max_position_embeddings + OPT_POSITION_OFFSET,
            has_affine_norm=self.layer_norm_elementwise_affine,
            is_pre_norm=self.do_layer_norm_before,
            has_final_norm=self.do_layer_norm_before and not self.remove_final_layer_norm,
            has_qkv_bias=self.enable_bias,
            has_attention_output_bias=self.enable_bias,
            has_mlp_bias=self.enable_bias,
            is_tied=self.tie_word_embeddings,
            has_hidden_dropout=self.dropout > 0,
            has_attention_dropout=self.attention_dropout > 0,
            source=source,
            has_relu=self.has_relu,
        )


class RotaryDecoderConfig(FamilyConfig):
    """What Llama, Mistral, Qwen2 and Mixtral share: RMS norms, rotary positions, gated MLPs, grouped queries."""

    hidden_size: Width
    num_hidden_layers: Layers
    num_attention_heads: Heads
    intermediate_size: Width
    max_position_embeddings: Rows
    num_key_value_heads: Heads | None = None
    head_dim: Width | None = None
    attention_dropout: Probability = 0.0
    tie_word_embeddings: bool = False

    def rotary_spec(self, name: str, source: str, *, family: ModelFamily) -> ModelSpec:
        """The `ModelSpec` without any bias and without experts."""
        heads = self.num_attention_heads
        return ModelSpec(
            name=name,
            family=family,
            num_layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            num_heads=heads,
            num_kv_heads=heads if self.num_key_value_heads is None else self.num_key_value_heads,
            head_size=self.hidden_size // heads if self.head_dim is None else self.head_dim,
            ffn_size=self.intermediate_size,
            vocab_size=self.vocab_size,
            max_sequence_length=self.max_position_embeddings,
            embedding_size=self.hidden_size,
            norm=NormKind.RMS,
            has_qkv_bias=False,
            has_attention_output_bias=False,
            has_mlp_bias=False,
            is_mlp_gated=True,
            is_tied=self.tie_word_embeddings,
            has_attention_dropout=self.attention_dropout > 0,
            source=source,
            has_relu=self.has_relu,
        )


class LlamaConfig(RotaryDecoderConfig):
    """Llama 1, 2 and 3."""

    attention_bias: bool = False
    mlp_bias: bool = False

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this Llama."""
        spec = self.rotary_spec(name, source, family=ModelFamily.LLAMA)
        attention = self.attention_bias
        return replace(spec, has_qkv_bias=attention, has_attention_output_bias=attention, has_mlp_bias=self.mlp_bias)


class MistralConfig(RotaryDecoderConfig):
    """Mistral: grouped-query by default (its sliding window is not modelled: attention counts in full)."""

    num_key_value_heads: Heads | None = 8

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this Mistral."""
        return self.rotary_spec(name, source, family=ModelFamily.MISTRAL)


class Qwen2Config(RotaryDecoderConfig):
    """Qwen2: biases on query, key and value only."""

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this Qwen2."""
        return replace(self.rotary_spec(name, source, family=ModelFamily.QWEN2), has_qkv_bias=True)


class MixtralConfig(RotaryDecoderConfig):
    """Mixtral: Mistral whose MLPs are experts behind a router."""

    num_key_value_heads: Heads | None = 8
    num_local_experts: Experts
    num_experts_per_tok: Experts

    def to_spec(self, name: str, source: str) -> ModelSpec:
        """The `ModelSpec` of this Mixtral."""
        return replace(
            self.rotary_spec(name, source, family=ModelFamily.MIXTRAL),
            num_experts=self.num_local_experts,
            num_active_experts=self.num_experts_per_tok,
        )


FAMILY_CONFIGS: dict[ModelFamily, type[FamilyConfig]] = {
    ModelFamily.BERT: BertConfig,
    ModelFamily.GPT2: Gpt2Config,
    ModelFamily.OPT: OptConfig,
    ModelFamily.LLAMA: LlamaConfig,
    ModelFamily.MISTRAL: MistralConfig,
    ModelFamily.QWEN2: Qwen2Config,
    ModelFamily.MIXTRAL: MixtralConfig,
}
