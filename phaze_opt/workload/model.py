"""`ModelSpec`: the short form of a transformer of equal blocks, as sizes and switches.

What it means is stated once, by the `TransformerSpec` that it is written out to.
"""

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from functools import cache

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import (
    AttentionSpec,
    BlockSpec,
    ExpertRouting,
    ExpertsSpec,
    MlpSpec,
    NormKind,
    NormPlacement,
    NormSpec,
)
from phaze_opt.workload.chain import ChainCut
from phaze_opt.workload.end_specs import HeadSpec, SequenceOutputs, TokenFront, TokenOutputs
from phaze_opt.workload.model_classes import ModelFamily, class_name, row_of
from phaze_opt.workload.transformer import Stack, TransformerSpec
from phaze_opt.workload.workload import Workload

NEXT_SENTENCE_CLASSES = 2
"""Outputs of BERT's next-sentence head."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A transformer of equal blocks. Sizes are counts of elements; every switch says what the published model has.

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
        window: keys that a query meets at most; 0 for all. Written only where it is set, as are the unread keys.
        unread_keys: keys of its config that were not read and are not known to change nothing.
        notes: how its config was read, a sentence each.
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
    has_relu: bool = False
    window: int = 0
    unread_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
    def transformer(self) -> TransformerSpec:
        """The same model written out."""
        return _written_out(self)

    @property
    def cut(self) -> ChainCut:
        """Embedding, blocks and head as front, units and back."""
        return self.transformer.cut

    @property
    def num_units(self) -> int:
        """Units that pipeline stages share out."""
        return self.cut.num_units

    @property
    def layers_key(self) -> Hashable:
        """Equal for models that differ in depth alone."""
        return replace(self, num_layers=1, name="", source="", unread_keys=(), notes=()), self.cut.graphs_key

    @property
    def own_sequence_length(self) -> int:
        """Its maximum within reason."""
        return self.transformer.own_sequence_length

    @property
    def sizes_sentence(self) -> str:
        """Layers, hidden size and experts in words."""
        return self.transformer.sizes_sentence

    def length_obstacle(self, length: int) -> str | None:
        """Why it cannot be run on a sequence of ``length``; None if it can."""
        return self.transformer.length_obstacle(length)

    def cut_by_layers(self) -> "ModelSpec":
        """Itself: its blocks are equal."""
        return self

    def cut_by_branches(self) -> "ModelSpec":
        """Itself: its blocks are a chain."""
        return self

    def with_combined_qkv(self) -> "ModelSpec":
        """The same with one matmul for query, key and value."""
        return replace(self, is_qkv_combined=True)

    @property
    def has_experts(self) -> bool:
        """Whether the MLP is a mixture of experts with a router."""
        return self.family is ModelFamily.MIXTRAL

    @property
    def expert_routing(self) -> ExpertRouting | None:
        """Which experts of a layer a token meets; None without any."""
        return ExpertRouting(self.num_active_experts) if self.has_experts else None

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, exact to the unit; a tied output matrix counts once."""
        return self.transformer.num_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets: all but the experts it is not routed to."""
        return self.transformer.num_active_parameters


def transformer_of(model: Workload) -> TransformerSpec | None:
    """A model written out as a transformer; None if it is none."""
    return model.transformer if isinstance(model, ModelSpec | TransformerSpec) else None


def _norm(model: ModelSpec) -> NormSpec:
    return NormSpec(model.norm, model.hidden_size, model.has_affine_norm)


@cache
def _written_out(model: ModelSpec) -> TransformerSpec:
    """The transformer that the switches describe."""
    return TransformerSpec(
        name=model.name,
        family=model.family,
        architecture=class_name(model.family, row_of(model.family).heads[0]),
        stack=Stack(_front(model), (_block(model),), (0,) * model.num_layers),
        head=_head(model),
        max_sequence_length=model.max_sequence_length,
        source=model.source,
        unread_keys=model.unread_keys,
        notes=model.notes,
    )


def short_form(spec: TransformerSpec) -> ModelSpec | TransformerSpec:
    """The short form of a transformer where that says all of it, else the transformer itself."""
    front, block, outputs = spec.stack.front, spec.stack.kinds[0], spec.head.tokens
    attention, experts = block.attention, block.experts
    mlp = block.mlp if isinstance(block.mlp, MlpSpec) else block.mlp.expert
    if outputs is None:
        return spec
    # Of the parts, first to last, what has the same name.
    names = [field.name for field in fields(ModelSpec)]
    parts = (outputs, mlp, front, attention, block, spec)
    values = {name: getattr(part, name) for part in parts for name in names if hasattr(part, name)}
    values |= {
        "ffn_size": mlp.width,
        "norm": block.norm.kind,
        "has_affine_norm": block.norm.has_parameters,
        "is_pre_norm": block.placement is NormPlacement.BEFORE,
        "has_final_norm": spec.head.norm is not None,
        "has_attention_output_bias": attention.has_output_bias,
        "has_mlp_bias": mlp.has_bias,
        "is_mlp_gated": mlp.is_gated,
        "has_pretraining_heads": spec.head.sequence is not None,
        "has_hidden_dropout": block.has_dropout,
        "has_attention_dropout": attention.has_dropout,
        "num_experts": 1 if experts is None else experts.num_experts,
        "num_active_experts": 1 if experts is None else experts.num_active,
    }
    model = ModelSpec(**values)
    return model if model.transformer == spec else spec


def _front(model: ModelSpec) -> TokenFront:
    return TokenFront(
        vocab_size=model.vocab_size,
        embedding_size=model.embedding_size,
        hidden_size=model.hidden_size,
        num_position_rows=model.num_position_rows,
        num_token_types=model.num_token_types,
        norm=_norm(model) if model.family is ModelFamily.BERT else None,
        has_dropout=model.has_hidden_dropout and model.family is not ModelFamily.OPT,
    )


def _block(model: ModelSpec) -> BlockSpec:
    attention = AttentionSpec(
        hidden_size=model.hidden_size,
        num_heads=model.num_heads,
        num_kv_heads=model.num_kv_heads,
        head_size=model.head_size,
        value_size=model.head_size,
        rotary_size=0 if model.num_position_rows else model.head_size,
        window=model.window,
        has_qkv_bias=model.has_qkv_bias,
        has_output_bias=model.has_attention_output_bias,
        is_qkv_combined=model.is_qkv_combined,
        has_dropout=model.has_attention_dropout,
    )
    mlp = MlpSpec(
        hidden_size=model.hidden_size,
        width=model.ffn_size,
        is_gated=model.is_mlp_gated,
        has_bias=model.has_mlp_bias,
        has_relu=model.has_relu,
    )
    return BlockSpec(
        attention=attention,
        mlp=_experts(model, mlp) if model.has_experts else mlp,
        norm=_norm(model),
        placement=NormPlacement.BEFORE if model.is_pre_norm else NormPlacement.AFTER,
        has_dropout=model.has_hidden_dropout,
    )


def _experts(model: ModelSpec, expert: MlpSpec) -> ExpertsSpec:
    """One product makes gate and values of all experts, as transformers and Megatron-LM have it."""
    return ExpertsSpec(replace(expert, is_gate_combined=True), model.num_experts, model.num_active_experts)


def next_sentence_outputs(hidden_size: int) -> SequenceOutputs:
    """BERT's pooler and next-sentence head."""
    return SequenceOutputs(hidden_size, NEXT_SENTENCE_CLASSES, has_pooler=True, name="next_sentence")


def _head(model: ModelSpec) -> HeadSpec:
    has_heads = model.has_pretraining_heads
    return HeadSpec(
        hidden_size=model.hidden_size,
        norm=_norm(model) if model.has_final_norm else None,
        tokens=TokenOutputs(
            model.vocab_size, model.embedding_size, model.is_tied, has_bias=has_heads, has_transform=has_heads
        ),
        sequence=next_sentence_outputs(model.hidden_size) if has_heads else None,
        has_relu=model.has_relu and has_heads,
    )
