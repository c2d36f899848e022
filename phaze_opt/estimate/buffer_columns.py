"""What operators have to do with the buffer, as columns that kernels read."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from phaze_opt.graph.buffer_use import Operand
from phaze_opt.graph.operator import Operator
from phaze_opt.record.arrays import Ints

OPERANDS = tuple(Operand)
"""Order of what `BufferColumns.held` calls an operand."""


class BufferColumns(NamedTuple):
    """`BufferUse` of operators; operator o has rows starts[o] to starts[o + 1] of a table.

    Attributes:
        held_starts: of ``held``, shape (num_operators + 1,).
        held: address, size, bytes moved otherwise and place in `OPERANDS`, shape (num_held, 4).
        taken_starts: of ``taken``, shape (num_operators + 1,).
        taken: first address and the one behind the last, shape (num_ranges, 2).
        operand_bytes: of the left and the right operand of the matmul, shape (num_operators, 2).
    """

    held_starts: Ints
    held: Ints
    taken_starts: Ints
    taken: Ints
    operand_bytes: Ints


def compile_buffer_use(operators: Sequence[Operator]) -> BufferColumns:
    """Columns of a sequence of operators, in its order."""
    uses = [operator.buffer for operator in operators]
    held = [(one.address, one.size, one.num_bytes, OPERANDS.index(one.operand)) for use in uses for one in use.held]
    return BufferColumns(
        held_starts=_starts([len(use.held) for use in uses]),
        held=np.array(held, np.int64).reshape(-1, 4),
        taken_starts=_starts([len(use.taken) for use in uses]),
        taken=np.array([span for use in uses for span in use.taken], np.int64).reshape(-1, 2),
        operand_bytes=np.array([(use.left_bytes, use.right_bytes) for use in uses], np.int64).reshape(-1, 2),
    )


def _starts(counts: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
