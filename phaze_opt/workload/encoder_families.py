"""What transformers with encoders have: BERT's heads, ViT, T5 and Whisper."""

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import AttentionSpec, BlockSpec, MlpSpec, NormKind, NormSpec, ScoreBias, SelfOrCross
from phaze_opt.workload.end_specs import AudioFront, HeadSpec, PatchFront, SequenceOutputs, TokenFront, TokenOutputs
from phaze_opt.workload.family_config import (
    NUM_ANSWERS,
    FamilyConfig,
    Heads,
    Layers,
    Origin,
    Probability,
    Rows,
    Width,
    read_from,
    stack_of,
)
from phaze_opt.workload.model import next_sentence_outputs
from phaze_opt.workload.model_classes import HeadKind
from phaze_opt.workload.training import MAX_SAMPLES
from phaze_opt.workload.transformer import Encoder, TransformerSpec

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


T5_LENGTH = 512
"""Tokens that T5 was trained on, of text and of targets; its relative positions have no end."""


class T5Config(FamilyConfig):
    """T5: relative positions that all blocks of a side share, RMS norms, no biases, one token table for both sides."""

    vocab_size: Rows
    hidden_size: Width = read_from("d_model")
    head_size: Width = read_from("d_kv")
    ffn_size: Width = read_from("d_ff")
    num_layers: Layers
    num_decoder_layers: Layers | None = None
    num_heads: Heads
    num_table_rows: Heads = read_from("relative_attention_num_buckets", default=32)
    feed_forward_proj: str = "relu"
    dropout_rate: Probability = 0.1
    is_tied: bool = read_from("tie_word_embeddings", default=True)
    own_length: Rows | None = read_from("n_positions", default=None)
    is_encoder_decoder: Literal[True] = True

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes; text and targets are of one length."""
        encoder = stack_of(self._front(), [self._block(layer) for layer in range(self.num_layers)])
        layers = range(self.num_decoder_layers or self.num_layers)
        decoder = stack_of(replace(self._front(), is_shared=True), [self._decoding(layer) for layer in layers])
        outputs = TokenOutputs(self.vocab_size, self.hidden_size, self.is_tied, has_scale=self.is_tied)
        return origin.model(
            decoder,
            HeadSpec(self.hidden_size, self._norm, outputs, has_dropout=self._has_dropout),
            MAX_SAMPLES,
            encoder=Encoder(encoder, self._norm, has_dropout=self._has_dropout),
            own_length=self.own_length or T5_LENGTH,
        )

    @property
    def _norm(self) -> NormSpec:
        return NormSpec(NormKind.RMS, self.hidden_size)

    @property
    def _has_dropout(self) -> bool:
        return self.dropout_rate > 0

    def _front(self) -> TokenFront:
        return TokenFront(self.vocab_size, self.hidden_size, self.hidden_size, has_dropout=self._has_dropout)

    def _block(self, layer: int) -> BlockSpec:
        """A block of the encoder; the first one has the table of positions."""
        attention = AttentionSpec(
            hidden_size=self.hidden_size,
            num_heads=self.num_heads,
            num_kv_heads=self.num_heads,
            head_size=self.head_size,
            value_size=self.head_size,
            score_bias=ScoreBias.TABLE,
            num_table_rows=0 if layer else self.num_table_rows,
            has_dropout=self._has_dropout,
        )
        words = self.feed_forward_proj.split("-")
        mlp = MlpSpec(
            self.hidden_size,
            self.ffn_size,
            is_gated=words[0] == "gated",
            has_relu=words == ["relu"],
            has_dropout=self._has_dropout,
        )
        return BlockSpec(attention, mlp, self._norm, has_dropout=self._has_dropout)

    def _decoding(self, layer: int) -> BlockSpec:
        """A block of the decoder."""
        block = self._block(layer)
        cross = replace(block.attention, source=SelfOrCross.CROSS, score_bias=ScoreBias.NONE, num_table_rows=0)
        return replace(block, cross_attention=cross)


class WhisperConfig(FamilyConfig):
    """Whisper: frames of sound in, text out; layer norms before, biases but of keys."""

    head_fields: ClassVar[tuple[str, ...]] = ("encoder_attention_heads", "decoder_attention_heads")
    vocab_size: Rows
    hidden_size: Width = read_from("d_model")
    num_bins: Width = read_from("num_mel_bins", default=80)
    encoder_layers: Layers
    decoder_layers: Layers
    encoder_attention_heads: Heads
    decoder_attention_heads: Heads
    encoder_ffn_dim: Width
    activation: str | None = read_from("activation_function", default=None)
    decoder_ffn_dim: Width
    max_source_positions: Rows = 1500
    max_target_positions: Rows = 448
    dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    activation_dropout: Probability = 0.0
    is_tied: bool = read_from("tie_word_embeddings", default=True)
    scale_embedding: bool = False
    is_encoder_decoder: Literal[True] = True

    def to_model(self, origin: Origin) -> TransformerSpec:
        """The model that this config describes; sounds are of one length."""
        sound = AudioFront(self.num_bins, self.hidden_size, self.max_source_positions, has_dropout=self.dropout > 0)
        block = self._block(self.encoder_attention_heads, self.encoder_ffn_dim)
        tokens = TokenFront(
            self.vocab_size,
            self.hidden_size,
            self.hidden_size,
            num_position_rows=self.max_target_positions,
            has_dropout=self.dropout > 0,
            has_scale=self.scale_embedding,
        )
        decoding = self._block(self.decoder_attention_heads, self.decoder_ffn_dim)
        decoding = replace(decoding, cross_attention=replace(decoding.attention, source=SelfOrCross.CROSS))
        return origin.model(
            stack_of(tokens, [decoding] * self.decoder_layers),
            HeadSpec(self.hidden_size, self._norm, TokenOutputs(self.vocab_size, self.hidden_size, self.is_tied)),
            self.max_target_positions,
            encoder=Encoder(
                stack_of(sound, [block] * self.encoder_layers), self._norm, sequence_length=self.max_source_positions
            ),
            own_length=self.max_target_positions,
        )

    @property
    def _norm(self) -> NormSpec:
        return NormSpec(NormKind.LAYER, self.hidden_size)

    def _block(self, num_heads: int, width: int) -> BlockSpec:
        has_relu, has_dropout = self.activation == "relu", self.attention_dropout > 0
        block = plain_block(self.hidden_size, num_heads, width, has_relu=has_relu, has_attention_dropout=has_dropout)
        attention = replace(block.attention, has_key_bias=False)
        mlp = replace(block.dense_mlps[0], has_dropout=self.activation_dropout > 0)
        return replace(block, attention=attention, mlp=mlp, has_dropout=self.dropout > 0)
