"""Configs of decoders whose MLPs are dense: Qwen3, Gemma, Phi-3, OLMo-2, Granite, GPT-NeoX, Falcon."""

from dataclasses import replace

from phaze_opt.workload.attention_spec import AttentionSpec, QueryKeyNorm, ScoreBias
from phaze_opt.workload.block_spec import BlockSpec, NormKind, NormPlacement, NormSpec
from phaze_opt.workload.decoder_config import DecoderConfig
from phaze_opt.workload.end_specs import HeadSpec, TokenFront, TokenOutputs
from phaze_opt.workload.family_config import Factor, Heads, Probability, Rows, Width, read_from, rotary_size, windows_of
from phaze_opt.workload.mlp_spec import MlpSpec


class Qwen3Config(DecoderConfig):
    """Qwen3: every query and key is normalised."""

    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=32)
    head_size: Width | None = read_from("head_dim", default=128)
    use_sliding_window: bool = False
    sliding_window: Rows | None = None
    max_window_layers: int = 28

    def windows(self) -> list[int]:
        """Layers from the stated one on have it, if windows are used at all."""
        window = self.sliding_window if self.use_sliding_window else None
        default = [layer >= self.max_window_layers for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=window, default=default)

    def attention(self, layer: int) -> AttentionSpec:
        """Norms of each head."""
        return replace(super().attention(layer), qk_norm=QueryKeyNorm.HEAD)


class GemmaConfig(DecoderConfig):
    """Gemma: scaled embeddings, tied tables, wide heads."""

    ignored_keys = frozenset({"layer_types"})
    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=16)
    head_size: Width | None = read_from("head_dim", default=256)
    is_tied: bool = read_from("tie_word_embeddings", default=True)

    def front(self) -> TokenFront:
        """Rows times the root of their width."""
        return replace(super().front(), has_scale=True)


class Gemma2Config(GemmaConfig):
    """Gemma 2: norms around attention and MLP, soft caps, every second layer with a window."""

    ignored_keys = frozenset()
    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=4)
    sliding_window: Rows | None = 4096
    final_logit_softcapping: Factor | None = 30.0
    attn_logit_softcapping: Factor | None = 50.0

    def windows(self) -> list[int]:
        """The first layer, and every second one."""
        default = [layer % 2 == 0 for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=self.sliding_window, default=default)

    def attention(self, layer: int) -> AttentionSpec:
        """Capped scores."""
        return replace(super().attention(layer), has_soft_cap=self.attn_logit_softcapping is not None)

    def block(self, layer: int) -> BlockSpec:
        """Four norms."""
        return replace(super().block(layer), placement=NormPlacement.AROUND)

    def head(self) -> HeadSpec:
        """Capped outputs."""
        head = super().head()
        outputs = TokenOutputs(
            self.vocab_size, self.hidden_size, self.is_tied, has_soft_cap=self.final_logit_softcapping is not None
        )
        return replace(head, tokens=outputs)


class Gemma3Config(Gemma2Config):
    """Gemma 3's language model: normalised queries and keys, no caps, five layers with a window and one without."""

    vocab_size: Rows = 262_208
    num_heads: Heads = read_from("num_attention_heads", default=8)
    max_sequence_length: Rows = read_from("max_position_embeddings", default=131_072)
    final_logit_softcapping: Factor | None = None
    attn_logit_softcapping: Factor | None = None
    sliding_window_pattern: Rows = 6

    def windows(self) -> list[int]:
        """All but every sixth."""
        default = [(layer + 1) % self.sliding_window_pattern > 0 for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=self.sliding_window, default=default)

    def attention(self, layer: int) -> AttentionSpec:
        """Norms of each head."""
        return replace(super().attention(layer), qk_norm=QueryKeyNorm.HEAD)


class Phi3Config(DecoderConfig):
    """Phi-3 and Phi-4: one matmul for query, key and value, one for gate and values."""

    ignored_keys = frozenset({"attention_bias"})
    sliding_window: Rows | None = None
    partial_rotary_factor: Factor = 1.0
    resid_pdrop: Probability = 0.0
    embd_pdrop: Probability = 0.0

    def windows(self) -> list[int]:
        """Every layer's."""
        default = [True] * self.num_layers
        return windows_of(self.layer_types, self.num_layers, window=self.sliding_window, default=default)

    def front(self) -> TokenFront:
        """Its dropout."""
        return replace(super().front(), has_dropout=self.embd_pdrop > 0)

    def attention(self, layer: int) -> AttentionSpec:
        """One matmul, a part of each head rotated."""
        rotated = rotary_size(self.channels, self.partial_rotary_factor, self.rope_parameters)
        return replace(super().attention(layer), is_qkv_combined=True, rotary_size=rotated)

    def mlp(self, layer: int) -> MlpSpec:
        """One matmul into it."""
        return replace(self.gated(self.ffn_size), is_gate_combined=True)

    def block(self, layer: int) -> BlockSpec:
        """Its dropout."""
        return replace(super().block(layer), has_dropout=self.resid_pdrop > 0)


class Olmo2Config(DecoderConfig):
    """OLMo 2: norms of what attention and MLP give, and of all queries and keys at once."""

    ignored_keys = frozenset({"layer_types"})

    def attention(self, layer: int) -> AttentionSpec:
        """Norms over all heads."""
        return replace(super().attention(layer), qk_norm=QueryKeyNorm.WHOLE)

    def block(self, layer: int) -> BlockSpec:
        """No norm of what enters."""
        return replace(super().block(layer), placement=NormPlacement.BRANCH_END)


class GraniteConfig(DecoderConfig):
    """Granite: Llama with scales of embedding, residual and outputs."""

    ignored_keys = frozenset({"layer_types"})
    mlp_bias: bool = False
    embedding_multiplier: Factor = 1.0
    residual_multiplier: Factor = 1.0
    logits_scaling: Factor = 1.0

    def front(self) -> TokenFront:
        """Scaled rows."""
        return replace(super().front(), has_scale=self.embedding_multiplier != 1)

    def mlp(self, layer: int) -> MlpSpec:
        """With biases or without."""
        return replace(self.gated(self.ffn_size), has_bias=self.mlp_bias)

    def block(self, layer: int) -> BlockSpec:
        """Scaled residuals."""
        return replace(super().block(layer), has_branch_scale=self.residual_multiplier != 1)

    def head(self) -> HeadSpec:
        """Scaled outputs."""
        outputs = TokenOutputs(self.vocab_size, self.hidden_size, self.is_tied, has_scale=self.logits_scaling != 1)
        return replace(super().head(), tokens=outputs)


class GptNeoXConfig(DecoderConfig):
    """GPT-NeoX and Pythia: attention and MLP side by side, layer norms, biases, a quarter of each head rotated."""

    ignored_keys = frozenset({"layer_types", "head_dim", "num_key_value_heads"})
    attention_bias: bool = True
    use_parallel_residual: bool = True
    rotary_pct: Factor = 0.25
    hidden_dropout: Probability = 0.0

    @property
    def norm(self) -> NormSpec:
        """Layer norms."""
        return NormSpec(NormKind.LAYER, self.hidden_size)

    def attention(self, layer: int) -> AttentionSpec:
        """One matmul, a part of each head rotated."""
        rotated = rotary_size(self.channels, self.rotary_pct, self.rope_parameters)
        return replace(super().attention(layer), is_qkv_combined=True, rotary_size=rotated)

    def mlp(self, layer: int) -> MlpSpec:
        """A plain one with biases."""
        has_relu = self.activation == "relu"
        return MlpSpec(self.hidden_size, self.ffn_size, has_bias=True, has_relu=has_relu)

    def block(self, layer: int) -> BlockSpec:
        """Side by side, or one after the other."""
        placement = NormPlacement.SEPARATE if self.use_parallel_residual else NormPlacement.BEFORE
        return replace(super().block(layer), placement=placement, has_dropout=self.hidden_dropout > 0)

    def front(self) -> TokenFront:
        """Its dropout."""
        return replace(super().front(), has_dropout=self.hidden_dropout > 0)


class FalconConfig(DecoderConfig):
    """Falcon: one key-value head or a few, attention and MLP side by side behind one norm or two."""

    ignored_keys = frozenset({"layer_types", "head_dim", "attention_bias"})
    activation: str | None = None
    num_kv_heads: Heads | None = read_from("num_kv_heads", default=None)
    ffn_size: Width | None = read_from("ffn_hidden_size", default=None)  # type: ignore[assignment]
    max_sequence_length: Rows = read_from("max_position_embeddings", default=2048)
    is_tied: bool = read_from("tie_word_embeddings", default=True)
    alibi: bool = False
    new_decoder_architecture: bool = False
    multi_query: bool = True
    parallel_attn: bool = True
    bias: bool = False
    num_ln_in_parallel_attn: Heads | None = None
    hidden_dropout: Probability = 0.0

    @property
    def norm(self) -> NormSpec:
        """Layer norms."""
        return NormSpec(NormKind.LAYER, self.hidden_size)

    @property
    def kv_heads(self) -> int:
        """As many as stated in the new form; else one, or one a head."""
        if self.new_decoder_architecture:
            return self.num_kv_heads or self.num_heads
        return 1 if self.multi_query else self.num_heads

    def attention(self, layer: int) -> AttentionSpec:
        """One matmul; slopes of positions, or rotated heads."""
        return replace(
            super().attention(layer),
            is_qkv_combined=True,
            rotary_size=0 if self.alibi else self.channels,
            score_bias=ScoreBias.SLOPES if self.alibi else ScoreBias.NONE,
            has_qkv_bias=self.bias,
            has_output_bias=self.bias,
        )

    def mlp(self, layer: int) -> MlpSpec:
        """A plain one, four times as wide unless it says otherwise."""
        width, has_relu = self.ffn_size or 4 * self.hidden_size, self.activation == "relu"
        return MlpSpec(self.hidden_size, width, has_bias=self.bias, has_relu=has_relu)

    def block(self, layer: int) -> BlockSpec:
        """Side by side behind one norm or two, or one after the other."""
        num_norms = self.num_ln_in_parallel_attn or (2 if self.new_decoder_architecture else 1)
        side_by_side = NormPlacement.SEPARATE if num_norms > 1 else NormPlacement.SHARED
        has_sides = self.parallel_attn or self.new_decoder_architecture
        placement = side_by_side if has_sides else NormPlacement.BEFORE
        return replace(super().block(layer), placement=placement, has_dropout=self.hidden_dropout > 0)
