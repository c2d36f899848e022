"""`BlockSpec`: one kind of transformer block: attentions, an MLP, and where it normalises."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.workload.attention_spec import AttentionSpec
from phaze_opt.workload.mlp_spec import ExpertsSpec, MlpSpec


class NormKind(StrEnum):
    """Layer norm has a weight and a bias a channel, RMS norm a weight only."""

    LAYER = "layer"
    RMS = "rms"

    @property
    def parameters_per_channel(self) -> int:
        """Parameters of one normalisation for each channel."""
        return 2 if self is NormKind.LAYER else 1


class NormPlacement(StrEnum):
    """Where a block normalises.

    BEFORE: what enters attention and MLP. AFTER: each residual sum. AROUND: what enters them and what leaves them.
    BRANCH_END: what leaves them alone. SHARED: one norm feeds attention and MLP, which run side by side. SEPARATE: they
    run side by side behind a norm each.
    """

    BEFORE = "before"
    AFTER = "after"
    AROUND = "around"
    BRANCH_END = "branch_end"
    SHARED = "shared"
    SEPARATE = "separate"

    @property
    def is_parallel(self) -> bool:
        """Whether attention and MLP run side by side and their results are added at once."""
        return self in (NormPlacement.SHARED, NormPlacement.SEPARATE)

    @property
    def has_first(self) -> bool:
        """Whether what enters attention and MLP is normalised."""
        return self not in (NormPlacement.AFTER, NormPlacement.BRANCH_END)

    @property
    def has_branch_end(self) -> bool:
        """Whether what leaves them is normalised before it is added."""
        return self in (NormPlacement.AROUND, NormPlacement.BRANCH_END)

    def num_norms(self, num_halves: int) -> int:
        """Normalisations of a block of so many attentions and MLPs."""
        if self is NormPlacement.SHARED:
            return 1
        return num_halves * (2 if self is NormPlacement.AROUND else 1)


@dataclass(frozen=True, slots=True)
class NormSpec:
    """A normalisation over the hidden size: its kind, and whether it has parameters."""

    kind: NormKind
    hidden_size: int
    has_parameters: bool = True

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.kind.parameters_per_channel * self.hidden_size if self.has_parameters else 0


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """One kind of block.

    Attributes:
        attention: of the block's own sequence.
        mlp: dense, or experts.
        norm: of the block.
        placement: where it normalises.
        cross_attention: to the encoder's output.
        has_dropout: whether training drops what attention and MLP add.
        has_branch_scale: whether what they add is scaled first.
    """

    attention: AttentionSpec
    mlp: MlpSpec | ExpertsSpec
    norm: NormSpec
    placement: NormPlacement = NormPlacement.BEFORE
    cross_attention: AttentionSpec | None = None
    has_dropout: bool = False
    has_branch_scale: bool = False

    @property
    def hidden_size(self) -> int:
        """Channels that enter and leave."""
        return self.norm.hidden_size

    @property
    def attentions(self) -> Iterator[AttentionSpec]:
        """Its attentions, in their order."""
        yield self.attention
        if self.cross_attention is not None:
            yield self.cross_attention

    @property
    def experts(self) -> ExpertsSpec | None:
        """Its experts, if it has any."""
        return self.mlp if isinstance(self.mlp, ExpertsSpec) else None

    @property
    def dense_mlps(self) -> tuple[MlpSpec, ...]:
        """What of its MLP every token meets, the router apart."""
        if isinstance(self.mlp, MlpSpec):
            return (self.mlp,)
        return () if self.mlp.shared is None else (self.mlp.shared,)

    @property
    def num_parameters(self) -> int:
        """All of them."""
        attentions = list(self.attentions)
        norms = self.placement.num_norms(len(attentions) + 1) * self.norm.num_parameters
        return sum(each.num_parameters for each in attentions) + self.mlp.num_parameters + norms
