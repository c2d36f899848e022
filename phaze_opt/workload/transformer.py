"""`TransformerSpec`: a transformer as a front, blocks of one or more kinds and a head, perhaps behind an encoder."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from phaze_opt.errors import InputError
from phaze_opt.workload.block_spec import BlockSpec, ExpertRouting, ExpertsSpec, NormSpec
from phaze_opt.workload.chain import ChainCut, cut_between_layers, cut_chain
from phaze_opt.workload.end_specs import Front, HeadSpec, TokenFront
from phaze_opt.workload.model_classes import ModelFamily

MAX_DEFAULT_SEQUENCE_LENGTH = 4096
"""A model that admits longer sequences is still run at this length unless told otherwise."""


@dataclass(frozen=True, slots=True)
class Stack:
    """A front and blocks: ``kinds`` of them, and for every block, first to last, the index of its kind."""

    front: Front
    kinds: tuple[BlockSpec, ...]
    pattern: tuple[int, ...]

    def __post_init__(self) -> None:
        """Every block has a kind and every kind a block."""
        if set(self.pattern) != set(range(len(self.kinds))):
            message = f"pattern {self.pattern} must name each of the {len(self.kinds)} kinds of blocks, and no other"
            raise InputError(message)

    @property
    def blocks(self) -> Iterator[BlockSpec]:
        """Every block, first to last."""
        return (self.kinds[index] for index in self.pattern)

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.front.num_parameters + sum(block.num_parameters for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Encoder:
    """What the blocks' cross-attentions read.

    Attributes:
        stack: its front and blocks.
        norm: behind its last block.
        sequence_length: its own; 0 where it is as long as the decoder's.
        has_dropout: whether training drops what the norm gives.
    """

    stack: Stack
    norm: NormSpec
    sequence_length: int = 0
    has_dropout: bool = False

    def length_beside(self, sequence_length: int) -> int:
        """Positions of the encoder beside a decoder of so many."""
        return self.sequence_length or sequence_length

    @property
    def num_parameters(self) -> int:
        """All of them."""
        return self.stack.num_parameters + self.norm.num_parameters


@dataclass(frozen=True, slots=True)
class TransformerSpec:
    """A transformer whose blocks may differ.

    Attributes:
        name: of the model.
        family: that its config is of.
        architecture: the class of transformers that has these parameters.
        stack: front and blocks; of the decoder, where there is an encoder.
        head: behind them.
        max_sequence_length: longest sequence.
        source: where the sizes come from.
        encoder: what cross-attentions read.
        own_length: sequence length of training unless another is asked for; 0 for the usual rule.
        is_length_fixed: whether it has no other length (images).
        unread_keys: keys of its config that were not read and are not known to change nothing.
        notes: how its config was read, a sentence each.
    """

    name: str
    family: ModelFamily
    architecture: str
    stack: Stack
    head: HeadSpec
    max_sequence_length: int
    source: str = ""
    encoder: Encoder | None = None
    own_length: int = 0
    is_length_fixed: bool = False
    unread_keys: tuple[str, ...] = ()
    is_cut_by_layers: bool = False
    notes: tuple[str, ...] = ()

    @property
    def transformer(self) -> "TransformerSpec":
        """Itself: what graphs are built of."""
        return self

    @property
    def blocks(self) -> Iterator[BlockSpec]:
        """Every block, an encoder's first."""
        if self.encoder is not None:
            yield from self.encoder.stack.blocks
        yield from self.stack.blocks

    @property
    def kinds(self) -> tuple[BlockSpec, ...]:
        """Every kind of block, an encoder's first."""
        return (*(() if self.encoder is None else self.encoder.stack.kinds), *self.stack.kinds)

    @property
    def chain(self) -> tuple[int, ...]:
        """Kind of every layer, first to last: fronts, kinds of blocks, the encoder's end and the head, as they come."""
        chain = self._chain_of_kinds
        if not self.has_end_apart:
            return chain
        *others, _, head = chain
        return (*others, head, head + 1)

    @property
    def _chain_of_kinds(self) -> tuple[int, ...]:
        """The chain with all blocks of a kind alike."""
        chain: tuple[int, ...] = ()
        if self.encoder is not None:
            chain = _numbered(self.encoder.stack, 0)
            chain = (*chain, max(chain) + 1)
        chain = (*chain, *_numbered(self.stack, len(set(chain))))
        return (*chain, max(chain) + 1)

    @property
    def hands_on_nothing(self) -> bool:
        """Whether the last block that reads the encoder's output is told from those that hand it on.

        So it is where pipelines are cut between all layers; elsewhere blocks that a stage may end with are alike.
        """
        between = self.encoder is not None and self.is_cut_by_layers
        return between and cut_between_layers(self._chain_of_kinds).is_joined

    @property
    def has_end_apart(self) -> bool:
        """Whether that makes it a kind of its own: others are of its kind."""
        return self.hands_on_nothing and self.stack.pattern.count(self.stack.pattern[-1]) > 1

    @property
    def cut(self) -> ChainCut:
        """Its layers as front, equal units and back."""
        return cut_between_layers(self.chain) if self.is_cut_by_layers else cut_chain(self.chain)

    @property
    def num_units(self) -> int:
        """Units that pipeline stages share out."""
        return self.cut.num_units

    @property
    def layers_key(self) -> Hashable:
        """Equal for models of the same kinds of layers and the same front, unit and back."""
        encoder = self.encoder and replace(self.encoder, stack=_each_kind_once(self.encoder.stack))
        alone = replace(
            self, name="", source="", unread_keys=(), notes=(), stack=_each_kind_once(self.stack), encoder=encoder
        )
        return alone, self.cut.graphs_key

    @property
    def num_layers(self) -> int:
        """Blocks, an encoder's with them."""
        return sum(1 for _ in self.blocks)

    @property
    def hidden_size(self) -> int:
        """Channels between blocks."""
        return self.stack.kinds[0].hidden_size

    @property
    def experts(self) -> ExpertsSpec | None:
        """The experts of the first kind of block that has any; all have as many."""
        return next((kind.experts for kind in self.kinds if kind.experts is not None), None)

    @property
    def has_experts(self) -> bool:
        """Whether any block has experts."""
        return self.experts is not None

    @property
    def num_experts(self) -> int:
        """Routed experts of a block that has any, else 1."""
        return 1 if self.experts is None else self.experts.num_experts

    @property
    def num_active_experts(self) -> int:
        """Routed experts that one token meets in a block that has any, else 1."""
        return 1 if self.experts is None else self.experts.num_active

    @property
    def expert_routing(self) -> ExpertRouting | None:
        """Which of them a token meets; None without any."""
        return None if self.experts is None else self.experts.routing

    @property
    def has_learned_positions(self) -> bool:
        """Whether a table limits the length of sequences."""
        front = self.stack.front
        return not isinstance(front, TokenFront) or front.num_position_rows > 0

    @property
    def own_sequence_length(self) -> int:
        """Its own where it has one, else its maximum, at most `MAX_DEFAULT_SEQUENCE_LENGTH`."""
        return self.own_length or min(self.max_sequence_length, MAX_DEFAULT_SEQUENCE_LENGTH)

    @property
    def sizes_sentence(self) -> str:
        """Layers, hidden size and experts in words."""
        experts = f", {self.num_active_experts} of {self.num_experts} experts" if self.has_experts else ""
        return f"{self.num_layers} layers, hidden size {self.hidden_size:,}{experts}"

    def length_obstacle(self, length: int) -> str | None:
        """Why it cannot be run on a sequence of ``length``; None if it can."""
        longest = self.max_sequence_length
        if self.is_length_fixed and length != longest:
            return f"{length} is not the {longest} positions of an input of {self.name}, which has no other length"
        if length > longest:
            return f"{length} exceeds the {longest} positions of {self.name}; give at most {longest}"
        return None

    def with_combined_qkv(self) -> "TransformerSpec":
        """The same with one matmul for query, key and value wherever an attention has three of its own sequence."""
        encoder = self.encoder and replace(self.encoder, stack=_with_combined_qkv(self.encoder.stack))
        return replace(self, stack=_with_combined_qkv(self.stack), encoder=encoder)

    def cut_by_layers(self) -> "TransformerSpec":
        """The same with pipelines cut between any two layers."""
        return replace(self, is_cut_by_layers=True)

    def cut_by_branches(self) -> "TransformerSpec":
        """The same: its layers are a chain."""
        return self.cut_by_layers()

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model, exact to the unit; a tied matrix counts once."""
        encoder = 0 if self.encoder is None else self.encoder.num_parameters
        return encoder + self.stack.num_parameters + self.head.num_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token meets: all but the experts it is not routed to."""
        return self.num_parameters - sum(block.mlp.idle_parameters for block in self.blocks)


def _numbered(stack: Stack, first: int) -> tuple[int, ...]:
    """Front and blocks of a stack, their kinds numbered from ``first`` on."""
    return (first, *(first + 1 + index for index in stack.pattern))


def _each_kind_once(stack: Stack) -> Stack:
    """A stack of one block of each kind."""
    return replace(stack, pattern=tuple(range(len(stack.kinds))))


def _with_combined_qkv(stack: Stack) -> Stack:
    """A stack whose attentions of their own sequence make query, key and value by one matmul, but latent ones."""
    kinds = tuple(
        kind if kind.attention.latent else replace(kind, attention=replace(kind.attention, is_qkv_combined=True))
        for kind in stack.kinds
    )
    return replace(stack, kinds=kinds)
