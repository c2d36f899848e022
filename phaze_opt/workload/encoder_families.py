"""Configs of vision transformers, and the heads that classes of BERT's kind have."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from phaze_opt.errors import InputError
from phaze_opt.workload.attention_spec import AttentionSpec
from phaze_opt.workload.block_spec import BlockSpec, NormKind, NormSpec
from phaze_opt.workload.end_specs import HeadSpec, PatchFront, SequenceOutputs, TokenOutputs
from phaze_opt.workload.family_config import (
    NUM_ANSWERS,
    FamilyConfig,
    Heads,
    Layers,
    Origin,
    Probability,
    Width,
    read_from,
    stack_of,
)
from phaze_opt.workload.mlp_spec import MlpSpec
from phaze_opt.workload.model import next_sentence_outputs
from phaze_opt.workload.model_classes import HeadKind
from phaze_opt.workload.transformer import TransformerSpec

MOST_PATCHES_A_SIDE = 1 << 10
"""Patches along the side of an image that are accepted."""


def bert_head(head: HeadSpec, origin: Origin) -> HeadSpec:
    """What a class of BERT's kind has behind the blocks, of a head with the words of the masked language model."""
    hidden, kind = head.hidden_size, origin.head
    if kind in (HeadKind.MASKED_LM, HeadKind.LM_HEAD):
        return replace(head, sequence=None)
    if kind is HeadKind.PRETRAINING:
        return replace(head, sequence=next_sentence_outputs(hidden))
    if kind is HeadKind.NEXT_SENTENCE:
        return replace(head, tokens=None, sequence=next_sentence_outputs(hidden))
    if kind in (HeadKind.SEQUENCE_CLASSES, HeadKind.BASE):
        num_classes = 0 if kind is HeadKind.BASE else origin.num_labels
        return replace(head, tokens=None, sequence=SequenceOutputs(hidden, num_classes, has_pooler=True))
    num_outputs = NUM_ANSWERS if kind is HeadKind.ANSWERS else origin.num_labels
    outputs = TokenOutputs(num_outputs, hidden, is_tied=False, has_bias=True)
    return replace(head, tokens=outputs, sequence=None)


class VitConfig(FamilyConfig):
    """A vision transformer: patches of one image, norms before, classes of the first token."""

    hidden_size: Width
    num_layers: Layers = read_from("num_hidden_layers")
    num_heads: Heads = read_from("num_attention_heads")
    ffn_size: Width = read_from("intermediate_size")
    activation: str | None = read_from("hidden_act", default=None)
    image_size: Width | Annotated[list[Width], Field(min_length=2, max_length=2)] = 224
    patch_size: Width = 16
    num_channels: Heads = 3
    qkv_bias: bool = True
    hidden_dropout_prob: Probability = 0.0
    attention_probs_dropout_prob: Probability = 0.0

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes; a sequence is an image.

        Raises:
            InputError: an image has no patch, or too many.
        """
        side, *others = self.image_size if isinstance(self.image_size, list) else [self.image_size]
        if others not in ([], [side]):
            message = f"{self.image_size} is no square; only square images are priced by a config: extract the model"
            raise InputError(message, key="image_size")
        if not 1 <= side // self.patch_size <= MOST_PATCHES_A_SIDE:
            message = f"{side} must be 1 to {MOST_PATCHES_A_SIDE} times patch_size = {self.patch_size}"
            raise InputError(message, key="image_size")
        front = PatchFront(
            self.num_channels, side, self.patch_size, self.hidden_size, has_dropout=self.hidden_dropout_prob > 0
        )
        is_base = origin.head is HeadKind.BASE
        outputs = SequenceOutputs(self.hidden_size, 0 if is_base else origin.num_labels, has_pooler=is_base)
        stack, length = stack_of(front, [self._block()] * self.num_layers), front.num_positions
        head = HeadSpec(self.hidden_size, self._norm, sequence=outputs)
        return origin.model(stack, head, length, own_length=length, is_length_fixed=True)

    @property
    def _norm(self) -> NormSpec:
        return NormSpec(NormKind.LAYER, self.hidden_size)

    def _block(self) -> BlockSpec:
        sizes = self.hidden_size, self.num_heads, self.ffn_size
        has_dropout = self.attention_probs_dropout_prob > 0
        block = plain_block(*sizes, has_relu=self.activation == "relu", has_attention_dropout=has_dropout)
        attention = replace(block.attention, has_qkv_bias=self.qkv_bias)
        return replace(block, attention=attention, has_dropout=self.hidden_dropout_prob > 0)


def plain_block(hidden: int, heads: int, width: int, *, has_relu: bool, has_attention_dropout: bool) -> BlockSpec:
    """Every head with a key and a value of its own, biases everywhere, layer norms before."""
    attention = AttentionSpec(
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=heads,
        head_size=hidden // heads,
        value_size=hidden // heads,
        has_qkv_bias=True,
        has_output_bias=True,
        has_dropout=has_attention_dropout,
    )
    mlp = MlpSpec(hidden, width, has_bias=True, has_relu=has_relu)
    return BlockSpec(attention, mlp, NormSpec(NormKind.LAYER, hidden))
