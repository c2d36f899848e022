"""A block whose schedules were searched through: what no schedule undercuts on one set of latencies bounds all others.

Proof trees bound their leaves by vectors, which see neither how few cores are filled nor that work waits for one
operator. Where that leaves a gap, a search over partial schedules (`beam_search`) may end without a schedule below a
target. The latencies, the target and vectors that cut such a search are kept; whoever checks it searches again
(docs/certificate.md).
"""

import math
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.schedule.beam_search import BeamSearch, LevelStage
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.dual_program import best_dual
from phaze_opt.schedule.duals import TYPE_BITS, DualVector, work_vector
from phaze_opt.schedule.problem import Cores

MAX_OPERATORS = 40
"""Operators of a block at most: searches of more seldom end."""
MAX_WIDTH = 2_000
"""Partial schedules of a level; some 50 ms on 16 operators."""
MAX_STATES = 10_000
"""Partial schedules over all levels; a checker, which knows weaker bounds, looks at five times as many."""
SHORT = 1e-10
"""Relative distance by which the target is lowered once it is proved: who searches again may round otherwise."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchedBlock:
    """No schedule of a block with these latencies, on these many cores or fewer, is shorter than ``makespan``.

    Attributes:
        cores: of each type.
        one_core, spread: (n,) latencies of the operators, all positive, s.
        makespan: s.
        vectors: that cut the search.
    """

    cores: Cores
    one_core: Floats
    spread: Floats
    makespan: float
    vectors: tuple[DualVector, ...]

    def bounds(self, one_core_s: Floats, spread_s: Floats, cores: Ints) -> Floats:
        """Bounds of the makespan on many designs (the oracle of `DualPool.bounds_and_choices`).

        Where all latencies are at least r times these, a schedule with its starts divided by r is one for these, and it
        still is where there are more cores.

        Args:
            one_core_s: (num_architectures, n) L, s.
            spread_s: (num_architectures, n) I, s.
            cores: (num_architectures, 2) of each type.

        Returns:
            (num_architectures,) r times the makespan; 0 where there are more cores.
        """
        least = np.minimum((one_core_s / self.one_core).min(axis=1), (spread_s / self.spread).min(axis=1))
        bounds: Floats = np.where((cores <= np.array(self.cores)).all(axis=1), self.makespan * least, 0.0)
        return bounds


def search_block(problem: BlockProblem, *, target_s: float) -> SearchedBlock | None:
    """Search for a schedule shorter than a target.

    Args:
        problem: the block on one design.
        target_s: s.

    Returns:
        The proof that there is none; None if there is one, if an operator takes no time, or if the search is too long.
    """
    if min(problem.shortest) <= 0.0 or len(problem) > MAX_OPERATORS:
        return None
    prices = LevelStage(problem, deadline=math.inf).prices()
    # Operators that are alike are not merged: whoever searches again need not know how.
    search = BeamSearch(problem, prices, merges_alike=False)
    answer = search.run(cutoff=target_s, width=MAX_WIDTH, deadline=math.inf)
    if answer.start is not None or not answer.is_complete or answer.num_states > MAX_STATES:
        return None
    latencies = np.array(problem.one_core), np.array(problem.spread)
    works = [work_vector(problem.block, bit, problem.exclusivity) for bit in TYPE_BITS]
    return SearchedBlock(problem.cores, *latencies, target_s * (1.0 - SHORT), (best_dual(problem), *works))
