"""`HeadSpec`: what stands behind the blocks: a norm, outputs for every token, outputs once a sequence."""

from dataclasses import dataclass
from typing import Annotated

from phaze_opt.record.plain_data import later
from phaze_opt.workload.block_spec import NormKind, NormSpec


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
    projected_size: Annotated[int, later(0)] = 0

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
