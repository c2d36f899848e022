"""What stands before the blocks: a token table, patches of an image, or frames of sound; with exact counts."""

from dataclasses import dataclass

from phaze_opt.workload.block_spec import NormSpec

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
