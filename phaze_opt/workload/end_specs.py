"""What stands before the blocks and behind them, with exact parameter counts.

Before: a token table, patches of an image, or frames of sound. Behind: a norm, outputs for every token, outputs once a
sequence.
"""

from dataclasses import dataclass

from phaze_opt.workload.block_spec import NormKind, NormSpec

FILTER_WIDTH = 3
"""Frames that a filter of an audio front sees."""
AUDIO_STRIDE = 2
"""Frames of sound that become one position, by the second convolution."""


@dataclass(frozen=True, slots=True)
class TokenFront:
    """A lookup in a token table, with what is added to it.

    Attributes:
        vocab_size: rows of the table.
        embedding_size: its width; differs from ``hidden_size`` only where a matmul widens it (opt-350m).
        hidden_size: channels that leave.
        num_position_rows: rows of the learned position table; 0 without one.
        num_token_types: rows of the token-type table; 0 without one.
        norm: of the sum, if there is one.
        has_dropout: whether training drops what leaves.
        has_scale: whether rows are scaled.
        is_shared: the table is another front's, where it is counted.
    """

    vocab_size: int
    embedding_size: int
    hidden_size: int
    num_position_rows: int = 0
    num_token_types: int = 0
    norm: NormSpec | None = None
    has_dropout: bool = False
    has_scale: bool = False
    is_shared: bool = False

    @property
    def table_parameters(self) -> int:
        """Parameters of the token table."""
        return self.vocab_size * self.embedding_size

    @property
    def projection_parameters(self) -> int:
        """Weights of the matmul that widens rows."""
        return self.embedding_size * self.hidden_size if self.embedding_size != self.hidden_size else 0

    @property
    def num_parameters(self) -> int:
        """All of them."""
        count = 0 if self.is_shared else self.table_parameters
        count += (self.num_position_rows + self.num_token_types) * self.hidden_size + self.projection_parameters
        return count + (0 if self.norm is None else self.norm.num_parameters)

    def forward_macs(self, tokens: int) -> int:
        """Multiply-accumulates of its matmuls on so many tokens."""
        return tokens * self.projection_parameters

    def input_macs(self, _: int) -> int:
        """Those that read the input itself: none, rows are looked up."""
        return 0


@dataclass(frozen=True, slots=True)
class PatchFront:
    """An image cut into square patches, one matmul for all, a class token before them and a table of positions."""

    num_channels: int
    image_size: int
    patch_size: int
    hidden_size: int
    has_dropout: bool = False

    @property
    def num_patches(self) -> int:
        """Of one image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def patch_elements(self) -> int:
        """Of one patch."""
        return self.num_channels * self.patch_size**2

    @property
    def num_positions(self) -> int:
        """Patches and the class token."""
        return self.num_patches + 1

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.hidden_size * (self.patch_elements + 1 + 1 + self.num_positions)

    def forward_macs(self, tokens: int) -> int:
        """Multiply-accumulates of one image; its length is its own."""
        return (tokens - 1) * self.patch_elements * self.hidden_size

    def input_macs(self, tokens: int) -> int:
        """Those that read the image itself, of which nothing needs the gradient."""
        return self.forward_macs(tokens)


@dataclass(frozen=True, slots=True)
class AudioFront:
    """Two convolutions over frames of sound, the second with a stride of two, and a table of positions (Whisper)."""

    num_bins: int
    hidden_size: int
    num_positions: int
    has_dropout: bool = False

    @property
    def filter_parameters(self) -> tuple[int, int]:
        """Weights of the two convolutions."""
        return FILTER_WIDTH * self.num_bins * self.hidden_size, FILTER_WIDTH * self.hidden_size**2

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return sum(self.filter_parameters) + (2 + self.num_positions) * self.hidden_size

    def forward_macs(self, tokens: int) -> int:
        """Multiply-accumulates of so many positions."""
        first, second = self.filter_parameters
        return tokens * (AUDIO_STRIDE * first + second)

    def input_macs(self, tokens: int) -> int:
        """Those that read the sound itself, of which nothing needs the gradient."""
        return tokens * AUDIO_STRIDE * self.filter_parameters[0]


Front = TokenFront | PatchFront | AudioFront


@dataclass(frozen=True, slots=True)
class TokenOutputs:
    """One matmul to outputs for every token: words of the vocabulary, or classes.

    Attributes:
        num_outputs: columns.
        input_size: channels that it reads: the embedding size.
        is_tied: the matrix is the token table.
        has_bias: whether it has a bias.
        has_transform: a square matmul, an activation and a layer norm come first (BERT).
        has_soft_cap: outputs go through a scaled tanh.
        has_scale: outputs are scaled.
    """

    num_outputs: int
    input_size: int
    is_tied: bool
    has_bias: bool = False
    has_transform: bool = False
    has_soft_cap: bool = False
    has_scale: bool = False

    @property
    def transform_norm(self) -> NormSpec:
        """The norm of the transform."""
        return NormSpec(NormKind.LAYER, self.input_size)

    @property
    def matmul_parameters(self) -> int:
        """Weights that one token is multiplied with, tied ones too."""
        return self.input_size * self.num_outputs + (self.input_size**2 if self.has_transform else 0)

    @property
    def idle_parameters(self) -> int:
        """A second bias that BERT's classes hold, and nothing reads, where the matrix is not the token table."""
        return self.num_outputs if self.has_bias and self.has_transform and not self.is_tied else 0

    @property
    def num_parameters(self) -> int:
        """All of them, but a tied matrix."""
        count = self.idle_parameters + (self.num_outputs if self.has_bias else 0)
        if self.has_transform:
            count += self.input_size * (self.input_size + 1) + self.transform_norm.num_parameters
        return count if self.is_tied else count + self.input_size * self.num_outputs


@dataclass(frozen=True, slots=True)
class SequenceOutputs:
    """Outputs once a sequence, of its first token: a pooler (matmul and tanh) or not, classes or not; their name."""

    hidden_size: int
    num_classes: int
    has_pooler: bool
    name: str = "classes"

    @property
    def matmul_parameters(self) -> int:
        """Weights that one sequence is multiplied with."""
        return self.hidden_size * (self.num_classes + (self.hidden_size if self.has_pooler else 0))

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.matmul_parameters + self.num_classes + (self.hidden_size if self.has_pooler else 0)


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """Behind the last block.

    Attributes:
        hidden_size: channels that enter.
        norm: of them, if there is one.
        tokens: outputs for every token; None for a model without them.
        sequence: outputs once a sequence.
        has_dropout: whether training drops what the norm gives.
        has_relu: the activation of the transform is a ReLU.
        projected_size: channels that a model without outputs for tokens ends with, if not those that enter.
    """

    hidden_size: int
    norm: NormSpec | None = None
    tokens: TokenOutputs | None = None
    sequence: SequenceOutputs | None = None
    has_dropout: bool = False
    has_relu: bool = False
    projected_size: int = 0

    @property
    def output_size(self) -> int:
        """Channels that outputs for tokens read, or would."""
        return (self.projected_size or self.hidden_size) if self.tokens is None else self.tokens.input_size

    @property
    def projection_parameters(self) -> int:
        """Weights of the matmul to the width of the outputs' matrix (opt-350m)."""
        return 0 if self.output_size == self.hidden_size else self.hidden_size * self.output_size

    @property
    def token_matmul_parameters(self) -> int:
        """Weights that one token is multiplied with."""
        return self.projection_parameters + (0 if self.tokens is None else self.tokens.matmul_parameters)

    @property
    def sequence_matmul_parameters(self) -> int:
        """Weights that one sequence is multiplied with."""
        return 0 if self.sequence is None else self.sequence.matmul_parameters

    @property
    def num_parameters(self) -> int:
        """All of them, but a tied matrix."""
        parts = (self.norm, self.tokens, self.sequence)
        return self.projection_parameters + sum(each.num_parameters for each in parts if each is not None)
