"""`DecoderConfig`: configs of decoders of every family, and of BERT's kind, whose blocks are theirs but for the mask.

Which keys a family reads is its row of ``families.json``.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import (
    AttentionSpec,
    BlockSpec,
    ExpertsSpec,
    LatentProjection,
    MlpSpec,
    NormKind,
    NormPlacement,
    NormSpec,
    QueryKeyNorm,
    ScoreBias,
)
from phaze_opt.workload.encoder_families import bert_head
from phaze_opt.workload.end_specs import HeadSpec, TokenFront, TokenOutputs
from phaze_opt.workload.family_config import (
    MAX_LAYERS,
    Experts,
    Factor,
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
    windows_of,
    with_window,
)
from phaze_opt.workload.model import ModelSpec, short_form
from phaze_opt.workload.transformer import TransformerSpec

LayerList = Annotated[list[int], Field(max_length=MAX_LAYERS)]


class WindowRule(StrEnum):
    """Layers that have the window where a config does not list them.

    EVEN: the first and every second one. PATTERN: all but every n-th. LATE: from ``max_window_layers`` on. ROTATED and
    UNROTATED: those with rotary positions, those without.
    """

    NONE = "none"
    ALL = "all"
    EVEN = "even"
    PATTERN = "pattern"
    LATE = "late"
    ROTATED = "rotated"
    UNROTATED = "unrotated"


class DecoderConfig(FamilyConfig):
    """A decoder: RMS norms before, rotary positions, grouped queries, gated MLPs, unless its family says otherwise.

    A family reads `COMMON` keys and those of its row, and no others; all other fields have the values of the row, or
    the defaults that stand here.
    """

    COMMON: ClassVar[tuple[str, ...]] = (
        *("vocab_size", "hidden_size", "num_layers", "num_heads", "ffn_size", "max_sequence_length"),
        *("num_kv_heads", "head_size", "activation", "is_tied", "attention_bias", "attention_dropout"),
        *("rope_parameters", "layer_types", "is_encoder_decoder", "add_cross_attention"),
    )
    vocab_size: Rows
    hidden_size: Width
    num_layers: Layers = read_from("num_hidden_layers")
    num_heads: Heads = read_from("num_attention_heads")
    ffn_size: Width = read_from("intermediate_size")
    max_sequence_length: Rows = read_from("max_position_embeddings")
    num_kv_heads: Heads | None = read_from("num_key_value_heads", default=None)
    head_size: Width | None = read_from("head_dim", default=None)
    activation: str | None = read_from("hidden_act", default=None)
    is_tied: bool = read_from("tie_word_embeddings", default=False)
    attention_bias: bool = False
    attention_dropout: Probability = 0.0
    rope_parameters: dict[str, Any] | None = None
    layer_types: LayerTypes | None = None
    is_encoder_decoder: Literal[False] = False
    add_cross_attention: Literal[False] = False
    # Front and head.
    num_token_types: Annotated[int, Field(ge=0, le=1 << 27)] = 0
    has_embedding_norm: bool = False
    position_embedding_type: Literal["absolute"] | None = "absolute"
    pads_positions: bool = False
    """Whether rows of the position table up to the padding's are no token's."""
    pad_token_id: int | None = None
    is_bert: bool = False
    """Whether words come behind a transform, and heads are those of BERT's classes."""
    embedding_size: Width | None = None
    position_offset: int | None = None
    """Rows of a learned position table that no token uses; None without such a table."""
    embedding_dropout: Probability = 0.0
    drops_embedding: bool = False
    has_embedding_scale: bool = False
    embedding_multiplier: Factor = 1.0
    logits_scaling: Factor = 1.0
    final_logit_softcapping: Factor | None = None
    has_head_bias: bool = False
    # Blocks.
    norm_kind: NormKind = NormKind.RMS
    has_affine_norm: bool = True
    placement: NormPlacement = NormPlacement.BEFORE
    is_pre_norm: bool = True
    remove_final_layer_norm: bool = False
    use_parallel_residual: bool = False
    parallel_attn: bool = False
    new_decoder_architecture: bool = False
    num_ln_in_parallel_attn: Heads | None = None
    hidden_dropout: Probability = 0.0
    residual_multiplier: Factor = 1.0
    # Attention.
    has_bias: bool = False
    attention_out_bias: bool | None = None
    is_qkv_combined: bool = False
    multi_query: bool = False
    qk_norm: QueryKeyNorm = QueryKeyNorm.NONE
    use_qk_norm: bool = True
    attn_logit_softcapping: Factor | None = None
    has_sinks: bool = False
    alibi: bool = False
    rotary_share: Factor = 1.0
    rotary_dim: Width | None = None
    no_rope_layers: LayerList | None = None
    no_rope_layer_interval: Annotated[int, Field(ge=0)] = 0
    is_rotated_in_windows: bool = False
    window_rule: WindowRule = WindowRule.NONE
    sliding_window: Rows | None = None
    use_sliding_window: bool = True
    max_window_layers: int = 28
    sliding_window_pattern: Annotated[int, Field(ge=0)] | Annotated[str, Field(max_length=100)] | None = None
    q_lora_rank: Width | None = None
    kv_lora_rank: Width | None = None
    qk_nope_head_dim: Width = 128
    qk_rope_head_dim: Width = 64
    v_head_dim: Width = 128
    # MLPs and experts.
    is_mlp_gated: bool = True
    is_gate_combined: bool = False
    mlp_bias: bool = False
    num_experts: Experts | None = None
    also_num_experts: Experts | None = None
    num_active_experts: Experts = 1
    also_num_active_experts: Experts | None = None
    expert_size: Width | None = None
    dense_size: Width | None = None
    num_shared_experts: Annotated[int, Field(ge=0, le=1 << 12)] = 0
    has_expert_bias: bool = False
    has_router_bias: bool = False
    first_expert_layer: Annotated[int, Field(ge=0)] = 0
    last_expert_layer: int = -1
    expert_interval: Layers = 1
    expert_layers: LayerList | None = None
    dense_layers: LayerList | None = None
    n_group: Experts | None = None
    topk_group: Experts | None = None
    is_short: bool = False
    """Whether the short form is given where it says all."""

    def to_model(self, origin: Origin) -> ModelSpec | TransformerSpec:
        """The model that this config describes.

        Raises:
            InputError: two keys contradict one another, or lists are not of the layers there are.
        """
        self._check_twins()
        self._check_lists()
        unused = (self.pad_token_id or 0) + 1 if self.pads_positions else 0
        if self.max_sequence_length <= unused:
            message = f"{self.max_sequence_length} must exceed the {unused} rows of padding"
            raise InputError(message, key="max_position_embeddings")
        blocks = [with_window(self._block(layer), window) for layer, window in enumerate(self.windows)]
        head = bert_head(self._head(), origin) if self.is_bert else token_head(self._head(), origin)
        model = origin.model(stack_of(self._front(), blocks), head, self.max_sequence_length - unused)
        return short_form(model) if self.is_short else model

    def _check_twins(self) -> None:
        """Of two keys that give one number, both may be there if they agree."""
        for field in ("num_experts", "num_active_experts"):
            given, other = getattr(self, field), getattr(self, f"also_{field}")
            if {field, f"also_{field}"} <= self.model_fields_set and None not in (given, other) and given != other:
                message = f"{other} is not {self._key(field)} = {given}; correct one of them"
                raise InputError(message, key=self._key(f"also_{field}"))

    def _check_lists(self) -> None:
        """Lists of layers are of the layers there are."""
        if self.no_rope_layers and len(self.no_rope_layers) != self.num_layers:
            given = len(self.no_rope_layers)
            message = f"lists {given} layers, not the {self.num_layers} there are; correct one of them"
            raise InputError(message, key=self._key("no_rope_layers"))
        outside = self._expert_layers - set(range(self.num_layers))
        if outside:
            message = f"names layer {min(outside)}; give numbers from 0 to {self.num_layers - 1}"
            raise InputError(message, key=self._key("expert_layers"))

    def _key(self, field: str) -> str:
        return next(key for key, each in self.fields_by_key().items() if each == field)

    @cached_property
    def _expert_layers(self) -> frozenset[int]:
        return frozenset(self.expert_layers or ())

    @cached_property
    def _dense_layers(self) -> frozenset[int]:
        return frozenset(self.dense_layers or ())

    @cached_property
    def windows(self) -> Sequence[int]:
        """The window of each layer; 0 for all keys."""
        window = self.sliding_window if self.use_sliding_window else None
        default = [self._has_window(layer) for layer in range(self.num_layers)]
        return windows_of(self.layer_types, self.num_layers, window=window, default=default)

    def _has_window(self, layer: int) -> bool:
        """Whether a layer has the window unless the config lists them."""
        pattern = self.sliding_window_pattern or 1
        if isinstance(pattern, str):
            # Letters, one a layer: L for a window, G for all keys.
            return pattern[layer % len(pattern)] == "L"
        rules = {
            WindowRule.NONE: False,
            WindowRule.ALL: True,
            WindowRule.EVEN: layer % 2 == 0,
            WindowRule.PATTERN: (layer + 1) % pattern > 0,
            WindowRule.LATE: layer >= self.max_window_layers,
            WindowRule.ROTATED: self._is_listed_rotary(layer),
            WindowRule.UNROTATED: not self._is_listed_rotary(layer),
        }
        return rules[self.window_rule]

    def _is_listed_rotary(self, layer: int) -> bool:
        """Whether a layer has rotary positions by the list, or by the interval, of those that have none."""
        if self.no_rope_layers:
            return bool(self.no_rope_layers[layer])
        return not self.no_rope_layer_interval or (layer + 1) % self.no_rope_layer_interval > 0

    def _rotated(self, layer: int) -> int:
        """Rotated channels of a head."""
        if self.position_offset is not None or self.alibi or not self._is_listed_rotary(layer):
            return 0
        if self.is_rotated_in_windows and self.sliding_window is not None and not self.windows[layer]:
            return 0
        return self.rotary_dim or rotary_size(self.channels, self.rotary_share, self.rope_parameters)

    @property
    def kv_heads(self) -> int:
        """Key-value heads; as many as heads unless stated, one where all queries share it."""
        is_shared = self.multi_query and not self.new_decoder_architecture
        return 1 if is_shared else self.num_kv_heads or self.num_heads

    @property
    def channels(self) -> int:
        """Channels of one head."""
        return self.head_size or self.hidden_size // self.num_heads

    @property
    def _norm(self) -> NormSpec:
        """Every norm of the blocks and the head."""
        return NormSpec(self.norm_kind, self.hidden_size, self.has_affine_norm)

    @property
    def _has_relu(self) -> bool:
        return self.activation == "relu"

    def _front(self) -> TokenFront:
        """Tables of tokens and positions."""
        offset, dropout = self.position_offset, max(self.embedding_dropout, self.hidden_dropout * self.drops_embedding)
        return TokenFront(
            self.vocab_size,
            self.embedding_size or self.hidden_size,
            self.hidden_size,
            num_position_rows=0 if offset is None else self.max_sequence_length + offset,
            num_token_types=self.num_token_types,
            norm=self._norm if self.has_embedding_norm else None,
            has_dropout=dropout > 0,
            has_scale=self.has_embedding_scale or self.embedding_multiplier != 1,
        )

    def _head(self) -> HeadSpec:
        """A norm and next tokens."""
        outputs = TokenOutputs(
            self.vocab_size,
            self.embedding_size or self.hidden_size,
            self.is_tied,
            has_bias=self.has_head_bias and self.has_bias,
            has_transform=self.is_bert,
            has_soft_cap=self.final_logit_softcapping is not None,
            has_scale=self.logits_scaling != 1,
        )
        has_norm = self.is_pre_norm and not self.remove_final_layer_norm
        has_relu = self.is_bert and self._has_relu
        return HeadSpec(self.hidden_size, self._norm if has_norm else None, outputs, has_relu=has_relu)

    def _block(self, layer: int) -> BlockSpec:
        """One block, its attention of all keys."""
        return BlockSpec(
            self._attention(layer),
            self._mlp(layer),
            self._norm,
            self._placement,
            has_dropout=self.hidden_dropout > 0,
            has_branch_scale=self.residual_multiplier != 1,
        )

    @property
    def _placement(self) -> NormPlacement:
        """Where a block normalises; attention and MLP side by side stand behind one norm or two."""
        if not self.is_pre_norm:
            return NormPlacement.AFTER
        if self.use_parallel_residual:
            return NormPlacement.SEPARATE
        if self.parallel_attn or self.new_decoder_architecture:
            num_norms = self.num_ln_in_parallel_attn or (2 if self.new_decoder_architecture else 1)
            return NormPlacement.SEPARATE if num_norms > 1 else NormPlacement.SHARED
        return self.placement

    def _attention(self, layer: int) -> AttentionSpec:
        """Its attention, of all keys."""
        out_bias = self.attention_bias if self.attention_out_bias is None else self.attention_out_bias
        rotated = self._rotated(layer)
        # What is normalised without weights is so where it is rotated.
        has_norm = self.use_qk_norm and (rotated or self.qk_norm is not QueryKeyNorm.PLAIN)
        attention = AttentionSpec(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.kv_heads,
            head_size=self.channels,
            value_size=self.channels,
            rotary_size=rotated,
            qk_norm=self.qk_norm if has_norm else QueryKeyNorm.NONE,
            has_qkv_bias=self.attention_bias or self.has_bias,
            has_output_bias=out_bias or self.has_bias,
            is_qkv_combined=self.is_qkv_combined,
            score_bias=ScoreBias.SLOPES if self.alibi else ScoreBias.NONE,
            has_soft_cap=self.attn_logit_softcapping is not None,
            has_sinks=self.has_sinks,
            has_dropout=self.attention_dropout > 0,
        )
        return attention if self.kv_lora_rank is None else self._latent(attention, self.kv_lora_rank)

    def _latent(self, attention: AttentionSpec, kv_rank: int) -> AttentionSpec:
        """By way of narrow vectors; every head has a key and a value, and all share the rotated part of keys."""
        rotated = self.qk_rope_head_dim
        return replace(
            attention,
            num_kv_heads=self.num_heads,
            head_size=self.qk_nope_head_dim + rotated,
            value_size=self.v_head_dim,
            rotary_size=rotated,
            latent=LatentProjection(self.q_lora_rank or 0, kv_rank, rotated, has_bias=self.attention_bias),
            has_qkv_bias=False,
        )

    def _mlp(self, layer: int) -> MlpSpec | ExpertsSpec:
        """Its MLP, or its experts."""
        is_given = "num_experts" in self.model_fields_set and self.num_experts
        number = self.num_experts if is_given else self.also_num_experts or self.num_experts
        if number is None or not self._has_experts(layer):
            return self._dense(self.dense_size or self.ffn_size or 4 * self.hidden_size)
        width = self.expert_size or self.ffn_size
        expert = MlpSpec(
            self.hidden_size,
            width,
            is_gated=True,
            has_bias=self.has_expert_bias,
            has_relu=self._has_relu,
            is_gate_combined=True,
        )
        groups = (self.n_group, self.topk_group) if self.n_group and self.topk_group else (0, 0)
        return ExpertsSpec(
            expert,
            number,
            self.num_active_experts,
            shared=self._dense(width * self.num_shared_experts) if self.num_shared_experts else None,
            has_router_bias=self.has_router_bias,
            num_groups=groups[0],
            num_active_groups=groups[1],
        )

    def _has_experts(self, layer: int) -> bool:
        """Whether a layer of a model with experts has them."""
        if self.expert_layers is not None:
            return layer in self._expert_layers
        last = self.num_layers - 1 if self.last_expert_layer == -1 else self.last_expert_layer
        is_within = self.first_expert_layer <= layer <= last and layer not in self._dense_layers
        return is_within and (layer + 1) % self.expert_interval == 0

    def _dense(self, width: int) -> MlpSpec:
        """An MLP that every token meets."""
        return MlpSpec(
            self.hidden_size,
            width,
            is_gated=self.is_mlp_gated,
            has_bias=self.mlp_bias or self.has_bias,
            has_relu=self._has_relu,
            is_gate_combined=self.is_gate_combined,
        )
