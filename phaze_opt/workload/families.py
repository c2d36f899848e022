"""Hugging Face configs of the known families, as strict pydantic models that yield a `ModelSpec`.

Only keys that change sizes are read; the dozens of others in a real config.json are accepted and ignored. A key that is
read is checked strictly: an integer must be written as an integer. Defaults are those of the transformers library.
"""

from abc import abstractmethod
from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from phaze_opt.workload.block_spec import NormKind
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_family import ModelFamily

Layers = Annotated[int, Field(gt=0, le=1 << 14)]
Heads = Annotated[int, Field(gt=0, le=1 << 14)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 27)]
Experts = Annotated[int, Field(gt=0, le=1 << 12)]
Probability = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]

OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows that no token uses."""


def _read_from(key: str, **rules: Any) -> Any:
    """A field under the name that configs have for it."""
    return Field(validation_alias=key, **rules)


class FamilyConfig(BaseModel):
    """What every family shares. Fields have the names of `ModelSpec` where they mean the same."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, protected_namespaces=())

    vocab_size: Rows
    activation: str | None = _read_from("hidden_act", default=None)
    is_encoder_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    hidden_size: Width
    num_layers: Layers = _read_from("num_hidden_layers")
    num_heads: Heads = _read_from("num_attention_heads")
    max_sequence_length: Rows = _read_from("max_position_embeddings")
    is_tied: bool = _read_from("tie_word_embeddings", default=True)

    def to_spec(self, name: str, source: str, *, family: ModelFamily) -> ModelSpec:
        """The `ModelSpec` this config describes.

        Raises:
            InputError: sizes that do not go together.
        """
        named = {field.name for field in fields(ModelSpec)}
        values: dict[str, Any] = {
            "num_kv_heads": self.num_heads,
            "head_size": self.hidden_size // self.num_heads,
            "embedding_size": self.hidden_size,
            "has_relu": self.activation == "relu",
        }
        # A key that is null stands for its default, which the line above or the model's own has.
        values |= {key: value for key, value in self if key in named and value is not None}
        return ModelSpec(name=name, source=source, family=family, **values | self.specifics())

    @classmethod
    def fields_by_key(cls) -> dict[str, str]:
        """Names of the fields by the keys of a config that they are read from."""
        return {str(info.validation_alias or field): field for field, info in cls.model_fields.items()}

    @abstractmethod
    def specifics(self) -> dict[str, Any]:
        """Fields of the `ModelSpec` that no key gives as they are."""


class BertConfig(FamilyConfig):
    """BERT with both pre-training heads (masked language model, pooler and next sentence)."""

    ffn_size: Width = _read_from("intermediate_size")
    num_token_types: Rows = _read_from("type_vocab_size", default=2)
    position_embedding_type: Literal["absolute"] | None = "absolute"
    hidden_dropout_prob: Probability = 0.1
    attention_probs_dropout_prob: Probability = 0.1

    def specifics(self) -> dict[str, Any]:
        """Norms after the residuals, both heads."""
        return {
            "num_position_rows": self.max_sequence_length,
            "is_pre_norm": False,
            "has_final_norm": False,
            "has_pretraining_heads": True,
            "has_hidden_dropout": self.hidden_dropout_prob > 0,
            "has_attention_dropout": self.attention_probs_dropout_prob > 0,
        }


class Gpt2Config(FamilyConfig):
    """GPT-2, and every model of its shape (GPT-3, Megatron GPT-2)."""

    activation: str | None = _read_from("activation_function", default=None)
    hidden_size: Width = _read_from("n_embd")
    num_layers: Layers = _read_from("n_layer")
    num_heads: Heads = _read_from("n_head")
    max_sequence_length: Rows = _read_from("n_positions")
    n_inner: Width | None = None
    resid_pdrop: Probability = 0.1
    attn_pdrop: Probability = 0.1

    def specifics(self) -> dict[str, Any]:
        """An MLP of four times the width unless it says otherwise; one matmul for query, key and value."""
        return {
            "ffn_size": 4 * self.hidden_size if self.n_inner is None else self.n_inner,
            "num_position_rows": self.max_sequence_length,
            "is_qkv_combined": True,
            "has_hidden_dropout": self.resid_pdrop > 0,
            "has_attention_dropout": self.attn_pdrop > 0,
        }


class OptConfig(FamilyConfig):
    """OPT; its 350M model is post-norm and projects narrower embeddings."""

    activation: str | None = _read_from("activation_function", default="relu")
    ffn_size: Width = _read_from("ffn_dim")
    embedding_size: Width | None = _read_from("word_embed_proj_dim", default=None)
    is_pre_norm: bool = _read_from("do_layer_norm_before", default=True)
    remove_final_layer_norm: bool = _read_from("_remove_final_layer_norm", default=False)
    has_affine_norm: bool = _read_from("layer_norm_elementwise_affine", default=True)
    enable_bias: bool = True
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0

    def specifics(self) -> dict[str, Any]:
        """One switch for all biases."""
        return {
            "num_position_rows": self.max_sequence_length + OPT_POSITION_OFFSET,
            "has_final_norm": self.is_pre_norm and not self.remove_final_layer_norm,
            **dict.fromkeys(("has_qkv_bias", "has_attention_output_bias", "has_mlp_bias"), self.enable_bias),
            "has_hidden_dropout": self.dropout > 0,
            "has_attention_dropout": self.attention_dropout > 0,
        }


class RotaryDecoderConfig(FamilyConfig):
    """What Llama, Mistral, Qwen2 and Mixtral share: RMS norms, rotary positions, gated MLPs, grouped queries."""

    ffn_size: Width = _read_from("intermediate_size")
    num_kv_heads: Heads | None = _read_from("num_key_value_heads", default=None)
    head_size: Width | None = _read_from("head_dim", default=None)
    attention_dropout: Probability = 0.0
    is_tied: bool = _read_from("tie_word_embeddings", default=False)

    def specifics(self) -> dict[str, Any]:
        """No bias and no experts."""
        return {
            "norm": NormKind.RMS,
            **dict.fromkeys(("has_qkv_bias", "has_attention_output_bias", "has_mlp_bias"), False),
            "is_mlp_gated": True,
            "has_attention_dropout": self.attention_dropout > 0,
        }


class LlamaConfig(RotaryDecoderConfig):
    """Llama 1, 2 and 3."""

    attention_bias: bool = False
    mlp_bias: bool = False

    def specifics(self) -> dict[str, Any]:
        """Biases as it says."""
        attention = self.attention_bias
        biases = {"has_qkv_bias": attention, "has_attention_output_bias": attention, "has_mlp_bias": self.mlp_bias}
        return super().specifics() | biases


class MistralConfig(RotaryDecoderConfig):
    """Mistral: grouped-query by default (its sliding window is not modelled: attention counts in full)."""

    num_kv_heads: Heads | None = _read_from("num_key_value_heads", default=8)


class Qwen2Config(RotaryDecoderConfig):
    """Qwen2: biases on query, key and value only."""

    def specifics(self) -> dict[str, Any]:
        """No other bias."""
        return super().specifics() | {"has_qkv_bias": True}


class MixtralConfig(MistralConfig):
    """Mixtral: Mistral whose MLPs are experts behind a router."""

    num_experts: Experts = _read_from("num_local_experts")
    num_active_experts: Experts = _read_from("num_experts_per_tok")


FAMILY_CONFIGS: dict[ModelFamily, type[FamilyConfig]] = {
    ModelFamily.BERT: BertConfig,
    ModelFamily.GPT2: Gpt2Config,
    ModelFamily.OPT: OptConfig,
    ModelFamily.LLAMA: LlamaConfig,
    ModelFamily.MISTRAL: MistralConfig,
    ModelFamily.QWEN2: Qwen2Config,
    ModelFamily.MIXTRAL: MixtralConfig,
}
