"""Arrays for N:M sparse weights: what they skip, what that takes of area and ports, and which patterns they run.

Every multiplier of such an array takes the inputs of a block of M and chooses the N that meet a weight which is not
zero, as the sparse tensor cores of A100 do with 2:4 (Mishra et al., arXiv 2104.08378). Arrays of kind ``any:M`` run
every N of M at N/M of the folds (as VEGETA's 1:4, 2:4 and 4:4, arXiv 2302.08687). All run dense weights as ever.
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.constants import Constants
from phaze_opt.record.arrays import Floats, Ints

CHOICE_SHARE = "arrays.choice_share"
"""Key of the area and energy of one more input that a multiplier chooses from, over its own: 2:4 adds three of them.

Wider ports of the memory beside the array come on top, at what the die model says of ports."""
BLOCKS = (2, 4, 8, 16, 32)
"""M of the arrays that a design may have; N is a power of two."""


@dataclass(frozen=True, slots=True)
class SparseArray:
    """An array that takes blocks of ``of`` inputs and keeps ``kept`` of each; ``kept`` is 0 where it is any number."""

    kept: int
    of: int

    @property
    def key(self) -> str:
        """What files call it: ``dense``, ``2:4``, ``any:8``."""
        return "dense" if self.of == 1 else f"{self.kept or 'any'}:{self.of}"

    @property
    def inputs_per_multiplier(self) -> int:
        """Inputs that arrive for each multiplier down the array, at most."""
        return self.of // max(1, self.kept)

    def kept_of(self, kept: int, of: int) -> int:
        """How many inputs of a block it keeps for weights of which at most ``kept`` of every ``of`` are not zero."""
        if of % self.of == 0:
            most = min(kept, self.of)
        else:
            # So many blocks of the weights a block of the array reaches into.
            reached = self.of // of if self.of % of == 0 else -(-self.of // of) + 1
            most = min(kept * reached, self.of)
        if not self.kept:
            return most
        return self.kept if most <= self.kept else self.of

    def inner(self, extent: int, kept: int) -> int:
        """Steps along an inner dimension of ``extent`` where it keeps ``kept`` of a block."""
        whole, rest = divmod(extent, self.of)
        return whole * kept + min(kept, rest)


DENSE = SparseArray(1, 1)
SPARSE_ARRAYS = (
    DENSE,
    *(
        SparseArray(kept, of)
        for of in BLOCKS
        for kept in [*(of >> step for step in range(1, of.bit_length())), *([0] if of > BLOCKS[0] else [])]
    ),
)
"""By number, from 1; what no design states is dense."""
KEYS = tuple(each.key for each in SPARSE_ARRAYS)
NO_SLOWER = tuple((1, code) for code in range(2, len(KEYS) + 1))
"""Kinds, and others on which no product takes longer: all run dense ones as ever, and what is as fast so as well."""


def sparse_array_of(code: int) -> SparseArray:
    """What a design's number means; 0 is dense.

    Raises:
        InputError: there is none of that number.
    """
    if not 0 <= code <= len(KEYS):
        message = (
            f"sparse_array = {code} must be from 0 to {len(KEYS)}, for what a design does not state, {', '.join(KEYS)}"
        )
        raise InputError(message, key="sparse_array")
    return SPARSE_ARRAYS[max(1, code) - 1]


def choice_scale(codes: Ints, constants: Constants) -> Floats:
    """Area and energy of a multiply-accumulate with its choice of inputs over those without; of the codes' shape."""
    share = constants.value(CHOICE_SHARE)
    return np.array([1.0, *(1.0 + share * (each.of - 1) for each in SPARSE_ARRAYS)])[codes]


def ports_down(depth: Ints, codes: Ints) -> Ints:
    """Inputs that an array takes down its depth in a cycle; of the shape of both."""
    return np.asarray(depth * np.array([1, *(each.inputs_per_multiplier for each in SPARSE_ARRAYS)])[codes])
