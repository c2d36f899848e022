"""Hugging Face configs of the known families, as strict pydantic models that yield a model.

Only keys that change sizes are read; those that are not read are listed, unless they are known to change no cost
(`workload.family_config`). A key that is read is checked strictly: an integer must be written as an integer. Defaults
are those of the transformers library.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from phaze_opt.workload.block_spec import NormKind
from phaze_opt.workload.decoder_families import (
    FalconConfig,
    Gemma2Config,
    Gemma3Config,
    GemmaConfig,
    GptNeoXConfig,
    GraniteConfig,
    Olmo2Config,
    Phi3Config,
    Qwen3Config,
)
from phaze_opt.workload.encoder_decoder_families import T5Config, WhisperConfig
from phaze_opt.workload.encoder_families import RobertaConfig, VitConfig, bert_head
from phaze_opt.workload.end_specs import HeadSpec
from phaze_opt.workload.expert_families import (
    DeepseekConfig,
    DeepseekV2Config,
    GptOssConfig,
    Llama4Config,
    Qwen3MoeConfig,
)
from phaze_opt.workload.family_config import (
    Experts,
    FamilyConfig,
    Heads,
    Layers,
    LayerTypes,
    Origin,
    Probability,
    Rows,
    Width,
    read_from,
    stack_of,
    token_head,
    windows_of,
    with_window,
)
from phaze_opt.workload.model import ModelSpec
from phaze_opt.workload.model_classes import ModelFamily
from phaze_opt.workload.transformer import TransformerSpec

OPT_POSITION_OFFSET = 2
"""OPT's position table has two rows that no token uses."""


class PlainConfig(FamilyConfig):
    """What the families of equal, plain blocks share. Fields have the names of `ModelSpec` where they mean the same."""

    vocab_size: Rows
    activation: str | None = read_from("hidden_act", default=None)
    is_encoder_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    hidden_size: Width
    num_layers: Layers = read_from("num_hidden_layers")
    num_heads: Heads = read_from("num_attention_heads")
    max_sequence_length: Rows = read_from("max_position_embeddings")
    is_tied: bool = read_from("tie_word_embeddings", default=True)

    def to_model(self, origin: Origin) -> ModelSpec | TransformerSpec:
        """The model that this config describes, in the short form where that says it all."""
        named = {field.name for field in fields(ModelSpec)}
        values: dict[str, Any] = {
            "num_kv_heads": self.num_heads,
            "head_size": self.hidden_size // self.num_heads,
            "embedding_size": self.hidden_size,
            "has_relu": self.activation == "relu",
        }
        # A key that is null stands for its default, which the line above or the model's own has.
        values |= {key: value for key, value in self if key in named and value is not None}
        values |= {"name": origin.name, "source": origin.source, "family": origin.family}
        windows = self.windows()
        is_even = len(set(windows)) == 1
        model = ModelSpec(
            **values | self.specifics(), window=windows[0] if is_even else 0, unread_keys=origin.unread_keys
        )
        head = self.head(model.transformer.head, origin)
        if is_even and head == model.transformer.head:
            return model
        stack, written = model.transformer.stack, model.transformer
        blocks = [with_window(block, window) for block, window in zip(stack.blocks, windows, strict=True)]
        return replace(written, stack=stack_of(stack.front, blocks), head=head, architecture=origin.architecture)

    def windows(self) -> Sequence[int]:
        """The window of each layer; 0 for all keys."""
        return [0] * self.num_layers

    def head(self, head: HeadSpec, origin: Origin) -> HeadSpec:
        """The head of the class that is named."""
        return token_head(head, origin)

    @abstractmethod
    def specifics(self) -> dict[str, Any]:
        """Fields of the `ModelSpec` that no key gives as they are."""


class BertConfig(PlainConfig):
    """BERT; with both pre-training heads (masked language model, pooler and next sentence) unless a class is named."""

    ffn_size: Width = read_from("intermediate_size")
    num_token_types: Rows = read_from("type_vocab_size", default=2)
    position_embedding_type: Literal["absolute"] | None = "absolute"
    hidden_dropout_prob: Probability = 0.1
    attention_probs_dropout_prob: Probability = 0.1

    def head(self, head: HeadSpec, origin: Origin) -> HeadSpec:
        """The head of the class that is named."""
        return bert_head(head, origin)

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


class Gpt2Config(PlainConfig):
    """GPT-2, and every model of its shape (GPT-3, Megatron GPT-2)."""

    activation: str | None = read_from("activation_function", default=None)
    hidden_size: Width = read_from("n_embd")
    num_layers: Layers = read_from("n_layer")
    num_heads: Heads = read_from("n_head")
    max_sequence_length: Rows = read_from("n_positions")
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


class OptConfig(PlainConfig):
    """OPT; its 350M model is post-norm and projects narrower embeddings."""

    activation: str | None = read_from("activation_function", default="relu")
    ffn_size: Width = read_from("ffn_dim")
    embedding_size: Width | None = read_from("word_embed_proj_dim", default=None)
    is_pre_norm: bool = read_from("do_layer_norm_before", default=True)
    remove_final_layer_norm: bool = read_from("_remove_final_layer_norm", default=False)
    has_affine_norm: bool = read_from("layer_norm_elementwise_affine", default=True)
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


class RotaryDecoderConfig(PlainConfig):
    """What Llama, Mistral, Qwen2 and Mixtral share: RMS norms, rotary positions, gated MLPs, grouped queries."""

    ffn_size: Width = read_from("intermediate_size")
    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=None)
    head_size: Width | None = read_from("head_dim", default=None)
    attention_dropout: Probability = 0.0
    is_tied: bool = read_from("tie_word_embeddings", default=False)

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
    """Mistral: grouped-query by default, a sliding window in every layer."""

    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=8)
    sliding_window: Rows | None = 4096
    layer_types: LayerTypes | None = None

    def windows(self) -> Sequence[int]:
        """Every layer's."""
        default = [True] * self.num_layers
        return windows_of(self.layer_types, self.num_layers, window=self.sliding_window, default=default)


class Qwen2Config(RotaryDecoderConfig):
    """Qwen2: biases on query, key and value only; a sliding window if its use is switched on."""

    use_sliding_window: bool = False
    sliding_window: Rows | None = 4096
    max_window_layers: int = 28
    layer_types: LayerTypes | None = None

    def windows(self) -> Sequence[int]:
        """Layers from the stated one on have it."""
        window = self.sliding_window if self.use_sliding_window else None
        default = [layer >= self.max_window_layers for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=window, default=default)

    def specifics(self) -> dict[str, Any]:
        """No other bias."""
        return super().specifics() | {"has_qkv_bias": True}


class MixtralConfig(MistralConfig):
    """Mixtral: Mistral whose MLPs are experts behind a router; no window unless it says so."""

    sliding_window: Rows | None = None
    num_experts: Experts = read_from("num_local_experts")
    num_active_experts: Experts = read_from("num_experts_per_tok")


FAMILY_CONFIGS: dict[ModelFamily, type[FamilyConfig]] = {
    ModelFamily.BERT: BertConfig,
    ModelFamily.GPT2: Gpt2Config,
    ModelFamily.OPT: OptConfig,
    ModelFamily.LLAMA: LlamaConfig,
    ModelFamily.MISTRAL: MistralConfig,
    ModelFamily.QWEN2: Qwen2Config,
    ModelFamily.MIXTRAL: MixtralConfig,
    ModelFamily.QWEN3: Qwen3Config,
    ModelFamily.QWEN3_MOE: Qwen3MoeConfig,
    ModelFamily.GEMMA: GemmaConfig,
    ModelFamily.GEMMA2: Gemma2Config,
    ModelFamily.GEMMA3: Gemma3Config,
    ModelFamily.GEMMA3_TEXT: Gemma3Config,
    ModelFamily.PHI3: Phi3Config,
    ModelFamily.GPT_NEOX: GptNeoXConfig,
    ModelFamily.FALCON: FalconConfig,
    ModelFamily.ROBERTA: RobertaConfig,
    ModelFamily.DEEPSEEK_V2: DeepseekV2Config,
    ModelFamily.DEEPSEEK_V3: DeepseekConfig,
    ModelFamily.GPT_OSS: GptOssConfig,
    ModelFamily.LLAMA4: Llama4Config,
    ModelFamily.LLAMA4_TEXT: Llama4Config,
    ModelFamily.OLMO2: Olmo2Config,
    ModelFamily.GRANITE: GraniteConfig,
    ModelFamily.T5: T5Config,
    ModelFamily.VIT: VitConfig,
    ModelFamily.WHISPER: WhisperConfig,
}
