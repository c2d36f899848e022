"""Search over partial schedules level by level: all with k operators placed before any with k + 1.

As in `tree_search`, operators are placed in the order of their starts, each as early as it fits (decision 0042). Of
partial schedules that placed the same operators only those not dominated are kept, and of operators that are
interchangeable only one is tried. A level holds at most ``width`` partial schedules, the most promising by their bound;
where none had to be dropped, the search is a proof (decision 0146).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.schedule.beam_bounds import UNPLACED
from phaze_opt.schedule.beam_kernels import count_ready, expand_level, select_level
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.interchange import interchangeable_classes
from phaze_opt.schedule.precedence import members
from phaze_opt.schedule.set_bound import SetPrices
from phaze_opt.schedule.structure import PackedBlocks

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
_Level = tuple[NDArray[np.int8], FloatArray, FloatArray, FloatArray]
_Children = tuple[FloatArray, FloatArray, FloatArray, IntArray, IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class BeamAnswer:
    """What a search ended with.

    Attributes:
        start, is_spread: (n,) best schedule found; None where none is shorter than the cutoff.
        lower: no schedule is shorter than this.
        is_complete: no schedule shorter than the cutoff exists, but those found.
        num_states: partial schedules kept over all levels.
        is_timed_out: the deadline ended the search.
    """

    start: FloatArray | None
    is_spread: NDArray[np.bool_] | None
    lower: float
    is_complete: bool
    num_states: int
    is_timed_out: bool = False


class BeamSearch:
    """Search on one block under given prices; holds what does not depend on the incumbent."""

    def __init__(self, problem: BlockProblem, packed: PackedBlocks, prices: Sequence[SetPrices]) -> None:
        """Prepare tables.

        Args:
            problem: the block.
            packed: the same block as arrays.
            prices: vectors of which the best bounds each partial schedule.
        """
        count = len(problem)
        after = [[bits >> j & 1 for j in range(count)] for bits in problem.block.after]
        self._graph = (packed.pred_ptr, packed.pred_idx, np.array(after, dtype=np.bool_))
        self._masks = packed.masks
        self._is_chip = problem.is_chip
        self._cores = np.array(problem.cores)
        self._lengths = np.array([problem.one_core, problem.spread, problem.shortest])
        self._needs = _cores_taken(problem)
        self._classes = interchangeable_classes(problem)
        self._values = np.array([vector.value_s for vector in prices])
        divisor = np.where(self._lengths[:2] > 0, self._lengths[:2], 1.0)
        self._prices = np.where(self._lengths[:2] > 0, self._values[:, None, :] / divisor, 0.0)
        self._orders = np.argsort(-self._prices[:, 0], axis=1, kind="stable")
        self._tails = price_tails(problem, prices)
        self._words = np.random.default_rng(0).integers(0, 2**62, size=count)

    def run(self, *, cutoff: float, width: int, deadline: float) -> BeamAnswer:
        """Look for a schedule shorter than ``cutoff``.

        Args:
            cutoff: makespan.
            width: partial schedules kept on a level.
            deadline: `time.monotonic` value at which to stop.
        """
        level = self._root()
        keys = np.zeros(1, dtype=np.int64)
        lower = cutoff
        num_states = 1
        for _ in range(self._lengths.shape[1]):
            if time.monotonic() >= deadline:
                return BeamAnswer(None, None, 0.0, False, num_states, is_timed_out=True)
            out = self._children(level, cutoff)
            level, keys, dropped = self._select(level, keys, out, width)
            lower = min(lower, dropped)
            num_states += len(keys)
            if not len(keys):
                return BeamAnswer(None, None, lower, lower == cutoff, num_states)
        modes, ends, _, _ = level
        best = int(np.argmin(ends.max(axis=1)))
        is_spread = modes[best] == 1
        start = ends[best] - np.where(is_spread, self._lengths[1], self._lengths[0])
        is_complete = lower == cutoff
        lower = min(lower, float(ends[best].max()))
        return BeamAnswer(np.maximum(start, 0.0), is_spread, lower, is_complete, num_states)

    def _root(self) -> _Level:
        count = self._lengths.shape[1]
        modes = np.full((1, count), UNPLACED, dtype=np.int8)
        return modes, np.zeros((1, count)), np.zeros(1), self._values.sum(axis=1)[None, :].copy()

    def _children(self, level: _Level, cutoff: float) -> _Children:
        room = 2 * int(count_ready(level[0], *self._graph[:2]))
        ranks, bounds, begins = (np.empty(room) for _ in range(3))
        codes, parents = (np.empty(room, dtype=np.int64) for _ in range(2))
        tables = (self._lengths, self._needs, self._masks)
        found = expand_level(
            level,
            self._graph,
            tables,
            self._classes,
            self._cores,
            self._is_chip,
            self._tails,
            self._prices,
            self._orders,
            cutoff,
            (ranks, bounds, begins, codes, parents),
        )
        return ranks[:found], bounds[:found], begins[:found], codes[:found], parents[:found]

    def _select(self, level: _Level, keys: IntArray, out: _Children, width: int) -> tuple[_Level, IntArray, float]:
        """The next level, its keys, and the least bound of the children dropped, dominated ones apart."""
        size, count = min(width, len(out[0])), self._lengths.shape[1]
        kept = (
            np.empty((size, count), dtype=np.int8),
            np.empty((size, count)),
            np.empty(size),
            np.empty((size, len(self._values))),
        )
        kept_keys = np.empty(size, dtype=np.int64)
        heads = np.empty(1 << (2 * size + 1).bit_length(), dtype=np.int64)
        order = np.argsort(out[0], kind="stable")
        following = np.empty(size, dtype=np.int64)
        tables = (self._lengths, self._needs)
        number, dropped = select_level(
            level, keys, self._words, order, out, tables, self._values, heads, kept, kept_keys, following
        )
        modes, ends, lasts, left = kept
        level = (modes[:number], ends[:number], lasts[:number], left[:number])
        return level, kept_keys[:number], float(dropped)


def price_tails(problem: BlockProblem, prices: Sequence[SetPrices]) -> FloatArray:
    """(n,) least time that must follow the end of each operator: paths, and the price of all that comes after it."""
    tails = np.array(problem.tails)
    values = np.array([vector.value_s for vector in prices])
    for i in range(len(problem) - 1, -1, -1):
        later = np.array(list(members(problem.block.after[i])), dtype=np.int64)
        if not len(later):
            continue
        tails[i] = max(tails[i], float((tails[later] + np.array(problem.shortest)[later]).max()))
        # Operators that have ``tail`` or more behind them are done that much before the end.
        ordered = later[np.argsort(-tails[later], kind="stable")]
        tails[i] = max(tails[i], float((values[:, ordered].cumsum(axis=1) + tails[ordered]).max()))
    return tails


def _cores_taken(problem: BlockProblem) -> IntArray:
    """(2, n, 2) tensor and vector cores that each operator takes in each mode."""
    needs = np.zeros((2, len(problem), 2), dtype=np.int64)
    for i, mask in enumerate(problem.block.masks):
        needs[0, i] = (mask & 1, mask >> 1)
        needs[1, i] = [problem.cores[k] if problem.is_chip or mask >> k & 1 else 0 for k in range(2)]
    return needs
