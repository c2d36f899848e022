"""`DecoderConfig`: configs of decoders, each layer of which may be of its own kind."""

from dataclasses import replace
from typing import Any

from phaze_opt.workload.attention_spec import AttentionSpec, QueryKeyNorm
from phaze_opt.workload.block_spec import BlockSpec, NormKind, NormPlacement, NormSpec
from phaze_opt.workload.end_specs import HeadSpec, TokenFront, TokenOutputs
from phaze_opt.workload.family_config import (
    FamilyConfig,
    Heads,
    Layers,
    LayerTypes,
    Origin,
    Probability,
    Rows,
    Width,
    read_from,
    rotary_size,
    stack_of,
    token_head,
    with_window,
)
from phaze_opt.workload.mlp_spec import ExpertsSpec, MlpSpec
from phaze_opt.workload.transformer import TransformerSpec


class DecoderConfig(FamilyConfig):
    """A decoder: RMS norms before, rotary positions, grouped queries, gated MLPs, unless a family says otherwise."""

    vocab_size: Rows
    hidden_size: Width
    num_layers: Layers = read_from("num_hidden_layers")
    num_heads: Heads = read_from("num_attention_heads")
    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=None)
    head_size: Width | None = read_from("head_dim", default=None)
    ffn_size: Width = read_from("intermediate_size")
    max_sequence_length: Rows = read_from("max_position_embeddings")
    activation: str | None = read_from("hidden_act", default=None)
    is_tied: bool = read_from("tie_word_embeddings", default=False)
    attention_bias: bool = False
    attention_dropout: Probability = 0.0
    rope_parameters: dict[str, Any] | None = None
    layer_types: LayerTypes | None = None

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes."""
        blocks = [with_window(self.block(layer), window) for layer, window in enumerate(self.windows())]
        return TransformerSpec(
            name=origin.name,
            family=origin.family,
            architecture=origin.architecture,
            stack=stack_of(self.front(), blocks),
            head=token_head(self.head(), origin),
            max_sequence_length=self.max_sequence_length,
            source=origin.source,
            unread_keys=origin.unread_keys,
        )

    @property
    def kv_heads(self) -> int:
        """Key-value heads; as many as heads unless stated."""
        return self.num_kv_heads or self.num_heads

    @property
    def channels(self) -> int:
        """Channels of one head."""
        return self.head_size or self.hidden_size // self.num_heads

    @property
    def norm(self) -> NormSpec:
        """Every norm of the blocks and the head."""
        return NormSpec(NormKind.RMS, self.hidden_size)

    def windows(self) -> list[int]:
        """The window of each layer; 0 for all keys."""
        return [0] * self.num_layers

    def front(self) -> TokenFront:
        """The token table."""
        return TokenFront(self.vocab_size, self.hidden_size, self.hidden_size)

    def head(self) -> HeadSpec:
        """A norm and next tokens."""
        outputs = TokenOutputs(self.vocab_size, self.hidden_size, self.is_tied)
        return HeadSpec(self.hidden_size, self.norm, outputs)

    def block(self, layer: int) -> BlockSpec:
        """One block, its attention of all keys."""
        return BlockSpec(self.attention(layer), self.mlp(layer), self.norm, NormPlacement.BEFORE)

    def attention(self, _: int) -> AttentionSpec:
        """Its attention, of all keys."""
        return AttentionSpec(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.kv_heads,
            head_size=self.channels,
            value_size=self.channels,
            rotary_size=rotary_size(self.channels, 1.0, self.rope_parameters),
            qk_norm=QueryKeyNorm.NONE,
            has_qkv_bias=self.attention_bias,
            has_output_bias=self.attention_bias,
            has_dropout=self.attention_dropout > 0,
        )

    def mlp(self, _: int) -> MlpSpec | ExpertsSpec:
        """Its MLP; the same in every layer unless a family says otherwise."""
        return self.gated(self.ffn_size)

    def gated(self, width: int) -> MlpSpec:
        """A gated MLP of a width."""
        return MlpSpec(self.hidden_size, width, is_gated=True)

    def expert(self, width: int) -> MlpSpec:
        """A routed expert of a width: one product makes gate and values of all of them."""
        return replace(self.gated(width), is_gate_combined=True)
