"""The level search as a stage of closing a block: prices found once, then searches of any width."""

from __future__ import annotations

import numpy as np

from phaze_opt.schedule.beam_search import BeamSearch
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.block_state import BlockState
from phaze_opt.schedule.set_bound import SetBound, SetPrices
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, PackedBlocks

# Prices for what is left when these shares of the operators have started bound the deeper levels better.
LATER_SHARES = (0.25, 0.5, 0.75)
LATER_ROUNDS = 25


class LevelStage:
    """Set bound and level search of one block."""

    def __init__(self, problem: BlockProblem, packed: PackedBlocks, *, deadline: float) -> None:
        """Find the prices of the whole block.

        Args:
            problem: the block.
            packed: the same block as arrays.
            deadline: `time.monotonic` value at which to stop.
        """
        self._problem = problem
        self._packed = packed
        self._deadline = deadline
        self._sets = SetBound(problem, deadline=deadline)
        self._whole = self._sets.prices()
        self._search: BeamSearch | None = None

    @property
    def bound(self) -> float:
        """Time that the block needs by the set bound."""
        return self._whole.bound()

    def search(self, state: BlockState, *, width: int, gap: float) -> BlockState:
        """Look for schedules shorter than the state's by more than ``gap``, ``width`` partial ones on a level."""
        if self._search is None:
            self._search = BeamSearch(self._problem, self._packed, self._prices())
        answer = self._search.run(cutoff=state.upper * (1.0 - 0.999 * gap), width=width, deadline=self._deadline)
        if answer.start is not None and answer.is_spread is not None:
            length = np.where(answer.is_spread, self._problem.spread, self._problem.one_core)
            state = state.with_schedule(float((answer.start + length).max()), answer.start, answer.is_spread)
        return state.with_lower(answer.lower)

    def _prices(self) -> list[SetPrices]:
        heads = np.array(self._problem.heads)
        vectors = [self._whole]
        for share in LATER_SHARES:
            later = heads >= np.quantile(heads, share)
            vectors.append(self._sets.prices(later.astype(np.float64), max_rounds=LATER_ROUNDS))
        vectors.extend(work_prices(self._problem, bit) for bit in (TC_BIT, VC_BIT))
        return vectors


def work_prices(problem: BlockProblem, bit: int) -> SetPrices:
    """The work row of a type as prices."""
    has_bit = np.array(problem.block.masks) & bit > 0
    one_core, spread = np.array(problem.one_core), np.array(problem.spread)
    return SetPrices(np.where(has_bit, np.minimum(one_core / problem.cores_of(bit), spread), 0.0))
