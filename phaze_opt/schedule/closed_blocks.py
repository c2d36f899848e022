"""Closing blocks, each once a process: those that were closed before, equal to the last bit, are looked up.

An evaluation, its range, its reference machines and other software meet the same blocks again and again. Only nodes
may limit what is kept: then a state depends on the block and the options alone, and the one that is looked up is the
one that solving would give, the number of MIPs included.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from phaze_opt.schedule.block_data import BlockProblem, BlockState
from phaze_opt.schedule.block_solve import BlockSolver
from phaze_opt.schedule.options import ScheduleOptions

MAX_KEPT = 2048
"""Blocks of some kilobytes each."""


def close_block(problem: BlockProblem, known: BlockState, *, options: ScheduleOptions, deadline: float) -> BlockState:
    """The state of a block once its gap is accepted or the time is up.

    Args:
        problem: the block with its latencies.
        known: from the quick bounds.
        options: gap, multi-starts, nodes, seed.
        deadline: `time.monotonic` value at which to stop.
    """
    if not options.mip_nodes:
        return BlockSolver(problem, known, options=options, deadline=deadline).run()
    begun = _Begun(known.lower, known.upper, known.start.tobytes(), known.is_spread.tobytes())
    try:
        return _close(problem, begun, options, _Deadline(deadline))
    except _CutShortError as error:
        return error.state


@dataclass(frozen=True, slots=True)
class _Begun:
    """A state as a value that can be compared."""

    lower: float
    upper: float
    start: bytes
    is_spread: bytes

    def state(self) -> BlockState:
        return BlockState(
            self.lower,
            self.upper,
            np.frombuffer(self.start, dtype=np.float64).copy(),
            np.frombuffer(self.is_spread, dtype=np.bool_).copy(),
        )


@dataclass(frozen=True, slots=True)
class _Deadline:
    """When to stop; all are equal, as a state that was not cut short would be the same under any other."""

    at_s: float = field(compare=False)


class _CutShortError(Exception):
    """A block whose time ended: it is not kept."""

    def __init__(self, state: BlockState) -> None:
        super().__init__()
        self.state = state


@lru_cache(maxsize=MAX_KEPT)
def _close(problem: BlockProblem, begun: _Begun, options: ScheduleOptions, deadline: _Deadline) -> BlockState:
    state = BlockSolver(problem, begun.state(), options=options, deadline=deadline.at_s).run()
    if state.is_timed_out:
        raise _CutShortError(state)
    return state
