"""Configs of decoders with experts: Qwen3-MoE, DeepSeek-V2 and V3, gpt-oss, Llama 4."""

from dataclasses import replace
from functools import cached_property

from phaze_opt.errors import InputError
from phaze_opt.workload.attention_spec import AttentionSpec, LatentProjection, QueryKeyNorm
from phaze_opt.workload.decoder_config import DecoderConfig
from phaze_opt.workload.decoder_families import Qwen3Config
from phaze_opt.workload.family_config import Experts, Heads, Layers, Origin, Rows, Width, read_from, windows_of
from phaze_opt.workload.mlp_spec import ExpertsSpec, MlpSpec
from phaze_opt.workload.transformer import TransformerSpec


class Qwen3MoeConfig(Qwen3Config):
    """Qwen3-MoE: Qwen3 whose MLPs are experts, in all layers or in every n-th."""

    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=4)
    head_size: Width | None = read_from("head_dim", default=None)
    num_experts: Experts | None = None
    num_local_experts: Experts | None = None
    num_active_experts: Experts = read_from("num_experts_per_tok", default=8)
    moe_intermediate_size: Width = 768
    decoder_sparse_step: Layers = 1
    mlp_only_layers: list[int] | None = None

    @cached_property
    def _dense_layers(self) -> frozenset[int]:
        return frozenset(self.mlp_only_layers or ())

    def windows(self) -> list[int]:
        """Every layer's, if windows are used at all."""
        window = self.sliding_window if self.use_sliding_window else None
        return windows_of(self.layer_types, self.num_layers, window=window, default=[True] * self.num_layers)

    def mlp(self, layer: int) -> MlpSpec | ExpertsSpec:
        """Experts, or a dense MLP."""
        is_dense = layer in self._dense_layers or (layer + 1) % self.decoder_sparse_step > 0
        if is_dense:
            return self.gated(self.ffn_size)
        number = self.num_experts or self.num_local_experts or 128
        return ExpertsSpec(self.expert(self.moe_intermediate_size), number, self.num_active_experts)


class DeepseekConfig(DecoderConfig):
    """DeepSeek-V3: latent attention; experts, shared and routed, behind the first dense layers."""

    ignored_keys = frozenset({"layer_types"})
    q_lora_rank: Width | None = 1536
    kv_lora_rank: Width = 512
    qk_nope_head_dim: Width = 128
    qk_rope_head_dim: Width = 64
    v_head_dim: Width = 128
    moe_intermediate_size: Width
    num_experts: Experts | None = read_from("n_routed_experts")
    num_active_experts: Experts | None = read_from("num_experts_per_tok", default=8)
    n_shared_experts: Experts | None = None
    first_k_dense_replace: int = 0
    n_group: Experts | None = None
    topk_group: Experts | None = None

    def attention(self, layer: int) -> AttentionSpec:
        """Latent; every head has a key and a value of its own, and all share the rotated part of keys."""
        latent = LatentProjection(
            self.q_lora_rank or 0, self.kv_lora_rank, self.qk_rope_head_dim, has_bias=self.attention_bias
        )
        return replace(
            super().attention(layer),
            num_kv_heads=self.num_heads,
            head_size=self.qk_nope_head_dim + self.qk_rope_head_dim,
            value_size=self.v_head_dim,
            rotary_size=self.qk_rope_head_dim,
            latent=latent,
            has_qkv_bias=False,
        )

    def mlp(self, layer: int) -> MlpSpec | ExpertsSpec:
        """Dense in the first layers, then experts."""
        if layer < self.first_k_dense_replace or self.num_experts is None:
            return self.unrouted(self.ffn_size)
        shared = self.unrouted(self.moe_intermediate_size * self.n_shared_experts) if self.n_shared_experts else None
        expert = self.expert(self.moe_intermediate_size)
        groups = (self.n_group, self.topk_group) if self.n_group and self.topk_group else (0, 0)
        return ExpertsSpec(
            expert,
            self.num_experts,
            self.num_active_experts or 1,
            shared=shared,
            num_groups=groups[0],
            num_active_groups=groups[1],
        )

    def unrouted(self, width: int) -> MlpSpec:
        """A dense MLP, or the shared expert."""
        return self.gated(width)


class DeepseekV2Config(DeepseekConfig):
    """DeepSeek-V2: V3's, with biases in the MLPs that every token meets, if it says so."""

    mlp_bias: bool = False

    def unrouted(self, width: int) -> MlpSpec:
        """With biases or without."""
        return replace(self.gated(width), has_bias=self.mlp_bias)


class GptOssConfig(DecoderConfig):
    """gpt-oss: experts with biases, learned sinks, every second layer with a narrow window."""

    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=8)
    head_size: Width | None = read_from("head_dim", default=64)
    attention_bias: bool = True
    num_experts: Experts = read_from("num_local_experts")
    num_active_experts: Experts = read_from("num_experts_per_tok", default=4)
    experts_per_token: Experts | None = None
    sliding_window: Rows | None = 128

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes.

        Raises:
            InputError: two keys give another number of experts.
        """
        if self.experts_per_token not in (None, self.num_active_experts):
            given = self.experts_per_token
            message = f"{given} is not num_experts_per_tok = {self.num_active_experts}; correct one of them"
            raise InputError(message, key="experts_per_token")
        return super().to_model(origin)

    def windows(self) -> list[int]:
        """The first layer, and every second one."""
        default = [layer % 2 == 0 for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=self.sliding_window, default=default)

    def attention(self, layer: int) -> AttentionSpec:
        """A sink a head."""
        return replace(super().attention(layer), has_sinks=True)

    def mlp(self, layer: int) -> ExpertsSpec:
        """Experts in every layer."""
        expert = replace(self.expert(self.ffn_size), has_bias=True)
        return ExpertsSpec(expert, self.num_experts, self.num_active_experts, has_router_bias=True)


class Llama4Config(DecoderConfig):
    """Llama 4's language model: a shared expert beside the routed, chunks in the layers that have rotary positions."""

    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=8)
    head_size: Width | None = read_from("head_dim", default=128)
    dense_size: Width = read_from("intermediate_size_mlp", default=16_384)
    num_experts: Experts = read_from("num_local_experts", default=16)
    num_active_experts: Experts = read_from("num_experts_per_tok", default=1)
    interleave_moe_layer_step: Layers = 1
    moe_layers: list[int] | None = None
    no_rope_layers: list[int] | None = None
    no_rope_layer_interval: Layers = 4
    attention_chunk_size: Rows | None = 8192
    use_qk_norm: bool = True

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes.

        Raises:
            InputError: a list of layers is not of the layers there are.
        """
        if self.no_rope_layers and len(self.no_rope_layers) != self.num_layers:
            given = len(self.no_rope_layers)
            message = f"lists {given} layers, not the {self.num_layers} there are; correct one of them"
            raise InputError(message, key="no_rope_layers")
        outside = self._expert_layers - set(range(self.num_layers))
        if outside:
            message = f"names layer {min(outside)}; give numbers from 0 to {self.num_layers - 1}"
            raise InputError(message, key="moe_layers")
        return super().to_model(origin)

    @cached_property
    def _expert_layers(self) -> frozenset[int]:
        return frozenset(self.moe_layers or ())

    def has_rotary(self, layer: int) -> bool:
        """Whether a layer has rotary positions; every fourth has none."""
        if self.no_rope_layers:
            return bool(self.no_rope_layers[layer])
        return (layer + 1) % self.no_rope_layer_interval > 0

    def windows(self) -> list[int]:
        """Chunks where positions are rotary."""
        default = [self.has_rotary(layer) for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=self.attention_chunk_size, default=default)

    def attention(self, layer: int) -> AttentionSpec:
        """Rotated and normalised without weights, or neither."""
        attention = super().attention(layer)
        if not self.has_rotary(layer):
            return replace(attention, rotary_size=0)
        return replace(attention, qk_norm=QueryKeyNorm.PLAIN if self.use_qk_norm else QueryKeyNorm.NONE)

    def mlp(self, layer: int) -> MlpSpec | ExpertsSpec:
        """Experts in every n-th layer, dense in the others."""
        step = self.interleave_moe_layer_step
        has_experts = (layer + 1) % step == 0 if self.moe_layers is None else layer in self._expert_layers
        if not has_experts:
            return self.gated(self.dense_size)
        expert = self.expert(self.ffn_size)
        return ExpertsSpec(expert, self.num_experts, self.num_active_experts, shared=self.gated(self.ffn_size))
