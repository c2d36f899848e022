"""What operators share through the chip's buffer: tensors that may be held between them, and where these lie.

Sizes and addresses are whole bytes, and none depends on a chip: addresses lie in a buffer without end, of which a chip
has the first so many bytes (`graph.residency`).
"""

from dataclasses import dataclass
from enum import StrEnum


class Operand(StrEnum):
    """What a tensor is to the product of an operator: its left or right operand, or anything else, its result too."""

    LEFT = "left"
    RIGHT = "right"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes that one operator of a graph need not move to or from HBM where a tensor is held."""

    operator: int
    num_bytes: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class Hold:
    """A tensor that may be held from one operator of a graph to a later one, both included.

    A hold of one operator alone is no tensor but room that its tiles can use.

    Attributes:
        tensor: its name; holds of one tensor may follow one another.
        first, last: the operators, by their places in the graph.
        num_bytes: its size.
        savings: what holding all of it saves.
    """

    tensor: str
    first: int
    last: int
    num_bytes: int
    savings: tuple[Saving, ...]

    @property
    def is_room(self) -> bool:
        """Whether it is room for tiles."""
        return self.first == self.last


@dataclass(frozen=True, slots=True)
class PhaseBorder:
    """What operators of a phase move of the tensors at their layer's border, and of its weights.

    Attributes:
        entering: every read of the tensor that comes from the layer run before; None where none is one tensor alone.
        leaving: the write of the one that goes to the layer run after.
        weights: the first read of every weight: later ones may be held anyway.
    """

    entering: Hold | None = None
    leaving: Hold | None = None
    weights: tuple[Saving, ...] = ()


NO_BORDER = PhaseBorder()
"""Of phases that have nothing to do with neighbours."""


@dataclass(frozen=True, slots=True)
class HeldOperand:
    """Bytes that an operator need not move where a hold is on chip; in part where only a part of it is.

    Attributes:
        address: of the hold's first byte.
        size: bytes of the hold.
        num_bytes: that the operator moves of it otherwise.
        operand: what it is to the operator.
    """

    address: int
    size: int
    num_bytes: int
    operand: Operand


@dataclass(frozen=True, slots=True)
class BufferUse:
    """What an operator has to do with the buffer.

    Attributes:
        left_bytes, right_bytes: of the operands of its matmul; 0 without one.
        held: what it need not move.
        taken: addresses that held tensors have while it runs: ranges (start, stop), apart and increasing.
    """

    left_bytes: int = 0
    right_bytes: int = 0
    held: tuple[HeldOperand, ...] = ()
    taken: tuple[tuple[int, int], ...] = ()


NO_BUFFER_USE = BufferUse()
"""Of operators that hold nothing."""
