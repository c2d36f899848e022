"""Blocks that a MIP has solved before, by topology, clipped core counts and normalised latencies."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np

from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.block_state import BlockState

# Latencies equal to this many significant digits count as the same problem; far below any solver's tolerance.
_DIGITS = 13
_Key = tuple[object, ...]


class ScheduleCache:
    """Bounded least-recently-used store, owned by whoever solves many problems; not shared between processes."""

    def __init__(self, *, max_entries: int = 4096) -> None:
        """Hold at most ``max_entries`` blocks."""
        self._entries: OrderedDict[_Key, BlockState] = OrderedDict()
        self._max_entries = max_entries
        self.num_hits = 0
        self.num_misses = 0

    def __len__(self) -> int:
        """Number of blocks held."""
        return len(self._entries)

    def find(self, problem: BlockProblem, *, target_gap: float) -> BlockState | None:
        """The solved block in the problem's unit of time, if one is held whose gap is accepted."""
        key, scale = _normalise(problem)
        state = self._entries.get(key)
        if state is None or not state.is_closed(target_gap):
            self.num_misses += 1
            return None
        self.num_hits += 1
        self._entries.move_to_end(key)
        return _rescaled(state, scale)

    def store(self, problem: BlockProblem, state: BlockState) -> None:
        """Hold a solved block; one cut short by its time limit is not held."""
        if state.is_timed_out:
            return
        key, scale = _normalise(problem)
        self._entries[key] = _rescaled(state, 1.0 / scale)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def _normalise(problem: BlockProblem) -> tuple[_Key, float]:
    block = problem.block
    scale = max(problem.one_core)
    latencies = np.array((problem.one_core, problem.spread)) / scale
    # More cores than operators of a type that can ever run at once change nothing.
    cores = (min(problem.cores.tc, max(1, block.width_tc)), min(problem.cores.vc, max(1, block.width_vc)))
    key = (block.masks, block.edges, cores, problem.exclusivity, np.round(latencies, _DIGITS).tobytes())
    return key, scale


def _rescaled(state: BlockState, scale: float) -> BlockState:
    return replace(
        state,
        lower=state.lower * scale,
        upper=state.upper * scale,
        start=state.start * scale,
        is_spread=state.is_spread.copy(),
        num_ilp_solves=0,
    )
