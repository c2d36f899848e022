"""Best-first search over modes and orders of a block under the set bound, with schedules on the way.

A relaxed schedule of sets runs some operators partly spread and partly not. A case is split by the mode of such an
operator. Where all modes of the relaxed schedule are whole, these modes are scheduled, and the case is split by which
of two operators comes first that cannot run at once: where one of them is spread, or a type that both need has one
core. A case without such a pair stays at its bound.
"""

import heapq
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import NamedTuple

import numpy as np

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.schedule.block_data import BlockProblem, BlockState
from phaze_opt.schedule.duals import TYPE_BITS
from phaze_opt.schedule.order_search import search_orders
from phaze_opt.schedule.proof_tree import FREE, ONE_CORE, SPREAD
from phaze_opt.schedule.set_program import SetAnswer, SetCase, SetProgram

WHOLE = 1e-6
"""Share of an operator below which it counts as not run in a mode."""
STEPS = 1e9
"""Scores and bounds are compared in so many steps, so that last digits decide nothing."""
MODES_TRIED = 400
"""Changes of the order that are tried for modes that a relaxed schedule proposes."""
PAIRS_TRIED = 4
"""Pairs of operators whose orders are bounded before one is chosen."""
PAIRS_BESIDE_A_MODE = 1
"""The same where a mode can be split as well."""
KNOWN_SPLITS = 8
"""Splits by modes before what they gained decides on the next."""
LEAST_GAIN = 1e-7
"""Gain, relative to the makespan, that a split without any is credited with when splits are compared."""
LATER_SHARE = 1e-3
"""Weight of the better of two cases beside the worse."""


class _Open(NamedTuple):
    """An open case; cases of equal bounds are taken in the order of their numbers."""

    steps: int
    number: int
    case: SetCase
    answer: SetAnswer


@dataclass(slots=True)
class _Gains:
    """What settling each operator unspread, or spread, gained a unit of its share."""

    total: Floats
    times: Floats

    def expected(self, length: Floats) -> Floats:
        """(2, n) gains; where none is known, the mean, longer operators first."""
        mean = self.total.sum(axis=1, keepdims=True) / np.maximum(1.0, self.times.sum(axis=1, keepdims=True))
        return np.where(self.times > 0.0, self.total / np.maximum(1.0, self.times), mean + 1e-9 * length)


class SetTree:
    """The search on one block; it may be stopped and continued.

    Attributes:
        state: best known.
        num_cases: that were bounded.
        value_s: (n,) what each operator adds to the bound of the whole block.
    """

    def __init__(
        self, problem: BlockProblem, state: BlockState, *, gap: float, max_rounds: int, deadline: float
    ) -> None:
        """Bound the block as a whole.

        Args:
            problem: the block; all its operators have a length.
            state: best known.
            gap: relative gap that is accepted.
            max_rounds: of adding sets to the bound of a case.
            deadline: `time.monotonic` value at which to stop.
        """
        self.state = state
        self.num_cases = 0
        self._problem = problem
        self._gap = gap
        self._max_rounds = max_rounds
        self._program = SetProgram(problem, deadline=deadline)
        self._open: list[_Open] = []
        self._numbers = count()
        # The least bound of the cases that cannot be split.
        self._ended = math.inf
        self._gains = _Gains(*np.zeros((2, 2, len(problem))))
        self._scheduled: set[bytes] = set()
        root = self._bound(self._program.root, 0.0)
        self.value_s = root.value_s
        self._push(self._program.root, root)
        self._raise_lower()

    @property
    def is_ended(self) -> bool:
        """Whether no case is left that could be split."""
        return not self._open

    def take(self, state: BlockState) -> None:
        """Take a state of the same block that others may have improved."""
        lower = self.state.lower
        self.state = state.with_lower(lower)

    def run(self, *, max_cases: int, deadline: float) -> None:
        """Split the case of least bound, until the gap is accepted or nothing is left to split."""
        while self._open and not self.state.is_closed(self._gap):
            if self.num_cases >= max_cases or time.monotonic() >= deadline:
                break
            opened = heapq.heappop(self._open)
            for case, answer in self._children(opened.case, opened.answer):
                self._push(case, answer)
            self._raise_lower()

    @property
    def _cutoff(self) -> float:
        """A case of this bound holds no schedule worth finding."""
        return self.state.upper * (1.0 - 0.999 * self._gap)

    def _bound(self, case: SetCase, least: float) -> SetAnswer:
        self.num_cases += 1
        answer = self._program.bound(case, enough=self._cutoff, max_rounds=self._max_rounds)
        return replace(answer, bound=max(answer.bound, least))

    def _push(self, case: SetCase, answer: SetAnswer) -> None:
        if answer.bound < self._cutoff:
            steps = round(answer.bound / self.state.upper * STEPS)
            heapq.heappush(self._open, _Open(steps, next(self._numbers), case, answer))

    def _raise_lower(self) -> None:
        opened = min((each.answer.bound for each in self._open), default=math.inf)
        self.state = self.state.with_lower(min(opened, self._ended, self._cutoff))

    def _children(self, case: SetCase, answer: SetAnswer) -> list[tuple[SetCase, SetAnswer]]:
        """The cases of the split whose least bound is largest, of those tried; none where there is nothing to split."""
        share = np.where(case.modes == FREE, answer.spread_share, 0.0)
        is_split = (share > WHOLE) & (share < 1.0 - WHOLE)
        is_spread = (case.modes == SPREAD) | (share > 0.5)
        tried = []
        if is_split.any():
            tried.append(self._by_mode(case, answer, is_split))
        else:
            self._schedule(is_spread)
        if not tried or self._worth(tried[0])[0] < self._cutoff:
            tried.extend(self._by_order(case, answer, is_spread, limit=PAIRS_BESIDE_A_MODE if tried else PAIRS_TRIED))
        if not tried:
            self._ended = min(self._ended, answer.bound)
            return []
        steps = [tuple(round(part / self.state.upper * STEPS) for part in self._worth(split)) for split in tried]
        return tried[steps.index(max(steps))]

    @staticmethod
    def _worth(split: list[tuple[SetCase, SetAnswer]]) -> tuple[float, float]:
        """The two least bounds."""
        first, second, *_ = sorted(answer.bound for _, answer in split)
        return first, second

    def _by_mode(self, case: SetCase, answer: SetAnswer, is_split: Flags) -> list[tuple[SetCase, SetAnswer]]:
        share = answer.spread_share
        length = np.array(self._problem.one_core)
        if self._gains.times.sum() < KNOWN_SPLITS:
            score = np.minimum(share, 1.0 - share) * length
        else:
            gains = self._gains.expected(length) * np.array((share, 1.0 - share))
            score = np.maximum(gains, LEAST_GAIN * self.state.upper).prod(axis=0)
        operator = _first_best(np.where(is_split, score, 0.0))
        children = []
        for row, mode in enumerate((ONE_CORE, SPREAD)):
            child = self._settled(case, operator, mode)
            bounded = self._bound(child, answer.bound)
            moved = share[operator] if mode == ONE_CORE else 1.0 - share[operator]
            self._gains.total[row, operator] += (bounded.bound - answer.bound) / moved
            self._gains.times[row, operator] += 1.0
            children.append((child, bounded))
        return children

    def _by_order(
        self, case: SetCase, answer: SetAnswer, is_spread: Flags, *, limit: int
    ) -> Iterator[list[tuple[SetCase, SetAnswer]]]:
        """Splits by the pairs whose orders forbid the relaxed schedule for longest, until one ends the case."""
        saved = self._program.time_saved(case, answer.running)
        worse, better = np.minimum(saved, saved.T), np.maximum(saved, saved.T)
        score = np.where(self._never_at_once(case, is_spread), worse + LATER_SHARE * better, 0.0)
        for _ in range(limit):
            first, second = divmod(_first_best(score.ravel()), len(is_spread))
            if score[first, second] <= 1.0 / STEPS * self.state.upper:
                return
            score[first, second] = 0.0
            cases = self._ordered(case, first, second, is_spread)
            split = [(child, self._bound(child, answer.bound)) for child in cases]
            yield split
            if self._worth(split)[0] >= self._cutoff:
                return

    def _ordered(self, case: SetCase, first: int, second: int, is_spread: Flags) -> list[SetCase]:
        """Both orders of two operators; and, where what keeps them apart is a mode that is open, its other mode."""
        orders = [replace(case, after=_ordered(case.after, *pair)) for pair in ((first, second), (second, first))]
        if self._share_a_core(first, second):
            return orders
        spread = first if is_spread[first] else second
        if case.modes[spread] == SPREAD:
            return orders
        return [*(self._settled(each, spread, SPREAD) for each in orders), self._settled(case, spread, ONE_CORE)]

    def _never_at_once(self, case: SetCase, is_spread: Flags) -> Flags:
        """(n, n) pairs, the lower index first, that have no order yet and cannot run at once."""
        masks = np.array(self._problem.block.masks)
        shared = masks[:, None] & masks
        apart = is_spread[:, None] | is_spread
        if not self._problem.is_chip:
            apart = apart & (shared > 0)
        for bit, cores in zip(TYPE_BITS, self._problem.cores, strict=True):
            if cores == 1:
                apart = apart | (shared & bit > 0)
        return np.triu(apart & ~(case.after | case.after.T), 1)

    def _share_a_core(self, first: int, second: int) -> bool:
        shared = self._problem.block.masks[first] & self._problem.block.masks[second]
        return any(shared & bit and cores == 1 for bit, cores in zip(TYPE_BITS, self._problem.cores, strict=True))

    @staticmethod
    def _settled(case: SetCase, operator: int, mode: int) -> SetCase:
        modes = case.modes.copy()
        modes[operator] = mode
        return replace(case, modes=modes)

    def _schedule(self, is_spread: Flags) -> None:
        """Schedule modes that were not met before, from the order of the best schedule."""
        if is_spread.tobytes() in self._scheduled:
            return
        self._scheduled.add(is_spread.tobytes())
        start, modes = self.state.start.copy(), is_spread.copy()
        seed = len(self._scheduled)
        upper = search_orders(self._problem.arrays, math.inf, start, modes, MODES_TRIED, 0.01, 0.01, False, seed)
        self.state = self.state.with_schedule(float(upper), start, modes)


def _first_best(score: Floats) -> int:
    """Index of the largest score, the first of those that are alike."""
    largest = float(score.max())
    return int(np.argmax(np.round(score / largest * STEPS))) if largest > 0.0 else 0


def _ordered(after: Flags, first: int, second: int) -> Flags:
    """The closed order with one more pair in it."""
    ordered = after.copy()
    before, behind = after[:, first].copy(), after[second].copy()
    before[first] = behind[second] = True
    ordered[np.ix_(before, behind)] = True
    return ordered
