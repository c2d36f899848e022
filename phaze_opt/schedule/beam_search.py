"""Search over partial schedules level by level: all with k operators placed before any with k + 1.

As in `tree_search`, operators are placed in the order of their starts, each as early as it fits (decision 0042). Of
partial schedules that placed the same operators only those not dominated are kept, and of operators that are
interchangeable only one is tried. A level holds at most ``width`` partial schedules, the most promising by their bound;
where none had to be dropped, the search is a proof (decision 0146).

Operators that may be exchanged in any completion of a partial schedule: heads of attention, experts, copies.

Two operators not yet placed are interchangeable where swapping them, together with what belongs to each of them alone,
changes nothing: latencies and cores agree, what follows agrees, and so does what else it waits for. A successor belongs
to an operator alone where all else that it waits for has no copy in the block, as the softmax of a head belongs to its
scores, and the context of a head, which waits for the values of all heads as well, to its softmax.

A block whose schedules were searched through: what no schedule undercuts on one set of latencies bounds all others.

Proof trees bound their leaves by vectors, which see neither how few cores are filled nor that work waits for one
operator. Where that leaves a gap, a search over partial schedules (`beam_search`) may end without a schedule below a
target. The latencies, the target and vectors that cut such a search are kept; whoever checks it searches again
(docs/certificate.md).
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.schedule.beam_kernels import (
    BeamTables,
    Candidates,
    Level,
    Rates,
    count_ready,
    expand_level,
    select_level,
)
from phaze_opt.schedule.block_data import BlockProblem, BlockState
from phaze_opt.schedule.dual_program import best_dual
from phaze_opt.schedule.duals import TYPE_BITS, DualVector, work_vector
from phaze_opt.schedule.problem import Cores
from phaze_opt.schedule.set_bound import SetBound, SetPrices, work_prices
from phaze_opt.schedule.structure import TC_BIT, VC_BIT
from phaze_opt.schedule.tree_search import UNPLACED


@dataclass(frozen=True, slots=True)
class _Trees:
    """What belongs to each operator alone, for one rule of belonging.

    Attributes:
        classes: (n,) operators whose trees have the same shape, latencies, and other predecessors and successors.
        owned: operators of the tree of each, itself included.
        outside: other predecessors and successors of each tree, by which trees of a class agree.
    """

    classes: tuple[int, ...]
    owned: tuple[frozenset[int], ...]
    outside: tuple[frozenset[int], ...]


def interchangeable_classes(problem: BlockProblem) -> Ints:
    """(n,) classes of operators that may be exchanged once both may start."""
    predecessors, successors = _neighbours(problem)
    colours = refined_colours(problem)
    sizes = Counter(colours)

    def has_no_copy_beside(operator: int, successor: int) -> bool:
        return all(sizes[colours[other]] == 1 for other in predecessors[successor] if other != operator)

    def is_sole(operator: int, successor: int) -> bool:
        return predecessors[successor] == [operator]

    trees = _trees(problem, predecessors, successors, has_no_copy_beside)
    plain = _trees(problem, predecessors, successors, is_sole)
    sound = _sound_classes(trees)
    names = [(is_ok, trees.classes[i] if is_ok else plain.classes[i]) for i, is_ok in enumerate(sound)]
    known: dict[tuple[bool, int], int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.int64)


def refined_colours(problem: BlockProblem) -> list[int]:
    """Colours such that operators of one colour have the same latencies and the same colours before and after them."""
    predecessors, successors = _neighbours(problem)
    operators = range(len(problem))
    keys: list[Hashable] = [(problem.block.masks[i], problem.one_core[i], problem.spread[i]) for i in operators]
    colours = _numbered(keys)
    while True:
        keys = [
            (
                colours[i],
                tuple(sorted(colours[j] for j in predecessors[i])),
                tuple(sorted(colours[j] for j in successors[i])),
            )
            for i in operators
        ]
        refined = _numbered(keys)
        if len(set(refined)) == len(set(colours)):
            return refined
        colours = refined


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _neighbours(problem: BlockProblem) -> tuple[list[list[int]], list[list[int]]]:
    predecessors: list[list[int]] = [[] for _ in range(len(problem))]
    successors: list[list[int]] = [[] for _ in range(len(problem))]
    for before, after in problem.block.edges:
        predecessors[after].append(before)
        successors[before].append(after)
    return predecessors, successors


def _trees(
    problem: BlockProblem,
    predecessors: Sequence[Sequence[int]],
    successors: Sequence[Sequence[int]],
    is_own: Callable[[int, int], bool],
) -> _Trees:
    """Trees from the last operator to the first; ``is_own`` tells whether a successor belongs to an operator alone."""
    count = len(problem)
    known: dict[Hashable, int] = {}
    classes = [0] * count
    owned: list[frozenset[int]] = [frozenset()] * count
    outside: list[frozenset[int]] = [frozenset()] * count
    for i in range(count - 1, -1, -1):
        follow: list[tuple[bool, int, tuple[int, ...]]] = []
        mine, others = {i}, set[int]()
        for j in successors[i]:
            if is_own(i, j):
                beside = tuple(sorted(k for k in predecessors[j] if k != i))
                follow.append((True, classes[j], beside))
                mine |= owned[j]
                others |= outside[j] | set(beside)
            else:
                follow.append((False, j, ()))
                others.add(j)
        key = (problem.block.masks[i], problem.one_core[i], problem.spread[i], tuple(sorted(follow)))
        classes[i] = known.setdefault(key, len(known))
        owned[i], outside[i] = frozenset(mine), frozenset(others)
    return _Trees(tuple(classes), tuple(owned), tuple(outside))


def _sound_classes(trees: _Trees) -> list[bool]:
    """Whether the trees of each operator's class share nothing, and nothing beside them is in one of them.

    Then a swap of two of them moves each operator once and leaves all else where it was.
    """
    members: dict[int, list[int]] = {}
    for i, name in enumerate(trees.classes):
        members.setdefault(name, []).append(i)
    sound = [True] * len(trees.classes)
    for group in members.values():
        moved = frozenset[int]().union(*(trees.owned[i] for i in group))
        is_sound = len(moved) == sum(len(trees.owned[i]) for i in group)
        is_sound = is_sound and not any(trees.outside[i] & moved for i in group)
        for i in group:
            sound[i] = is_sound
    return sound


# Prices for what is left when these shares of the operators have started bound the deeper levels better.
LATER_SHARES = (0.25, 0.5, 0.75)
LATER_ROUNDS = 25


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

    start: Floats | None
    is_spread: Flags | None
    lower: float
    is_complete: bool
    num_states: int
    is_timed_out: bool = False


class BeamSearch:
    """Search on one block under given prices; holds what does not depend on the incumbent."""

    def __init__(self, problem: BlockProblem, prices: Sequence[SetPrices], *, merges_alike: bool = True) -> None:
        """Prepare tables.

        Args:
            problem: the block.
            prices: vectors of which the best bounds each partial schedule.
            merges_alike: of interchangeable operators try one.
        """
        lengths = np.array([problem.one_core, problem.spread, problem.shortest])
        values = np.array([vector.value_s for vector in prices])
        divisor = np.where(lengths[:2] > 0, lengths[:2], 1.0)
        a_second = np.where(lengths[:2] > 0, values[:, None, :] / divisor, 0.0)
        block = problem.arrays
        self._tables = BeamTables(
            pred_ptr=block.pred_ptr,
            pred_idx=block.pred_idx,
            lengths=lengths,
            classes=interchangeable_classes(problem) if merges_alike else np.arange(len(problem)),
            tails=price_tails(problem, prices),
            values=values,
            rates=Rates(
                prices=a_second,
                orders=np.argsort(-a_second[:, 0], axis=1, kind="stable"),
                after=problem.block.comes_after(),
                masks=block.masks,
                needs=block.needs,
                cores=block.cores,
                is_chip=block.is_chip,
            ),
        )
        self._words = np.random.default_rng(0).integers(0, 2**62, size=len(problem))

    def run(self, *, cutoff: float, width: int, deadline: float) -> BeamAnswer:
        """Look for a schedule shorter than ``cutoff``.

        Args:
            cutoff: makespan.
            width: partial schedules kept on a level.
            deadline: `time.monotonic` value at which to stop.
        """
        level = self._root()
        lower = cutoff
        num_states = 1
        for _ in self._words:
            if time.monotonic() >= deadline:
                return BeamAnswer(None, None, 0.0, False, num_states, is_timed_out=True)
            level, dropped = self._select(level, self._children(level, cutoff), width)
            lower = min(lower, dropped)
            num_states += len(level.keys)
            if not len(level.keys):
                return BeamAnswer(None, None, lower, lower == cutoff, num_states)
        best = int(np.argmin(level.ends.max(axis=1)))
        is_spread = level.modes[best] == 1
        start = level.ends[best] - np.where(is_spread, self._tables.lengths[1], self._tables.lengths[0])
        is_complete = lower == cutoff
        lower = min(lower, float(level.ends[best].max()))
        return BeamAnswer(np.maximum(start, 0.0), is_spread, lower, is_complete, num_states)

    def improved(self, state: BlockState, *, width: int, gap: float, deadline: float) -> BlockState:
        """The state after a search for schedules shorter than its own by more than ``gap``; the rest as `run`."""
        answer = self.run(cutoff=state.upper * (1.0 - 0.999 * gap), width=width, deadline=deadline)
        if answer.start is not None and answer.is_spread is not None:
            lengths = self._tables.lengths
            length = np.where(answer.is_spread, lengths[1], lengths[0])
            state = state.with_schedule(float((answer.start + length).max()), answer.start, answer.is_spread)
        return state.with_lower(answer.lower)

    def _root(self) -> Level:
        level = self._empty_level(1)
        level.modes[:], level.ends[:], level.lasts[:], level.keys[:] = UNPLACED, 0.0, 0.0, 0
        level.left[:] = self._tables.values.sum(axis=1)
        return level

    def _empty_level(self, size: int) -> Level:
        num_vectors, count = self._tables.values.shape
        return Level(
            modes=np.empty((size, count), dtype=np.int8),
            ends=np.empty((size, count)),
            lasts=np.empty(size),
            left=np.empty((size, num_vectors)),
            keys=np.empty(size, dtype=np.int64),
        )

    def _children(self, level: Level, cutoff: float) -> Candidates:
        room = 2 * int(count_ready(level.modes, self._tables.pred_ptr, self._tables.pred_idx))
        floats, integers = [np.empty(room) for _ in range(3)], [np.empty(room, dtype=np.int64) for _ in range(2)]
        out = Candidates._make([*floats, *integers])
        found = expand_level(self._tables, level, cutoff, out)
        return Candidates._make(column[:found] for column in out)

    def _select(self, level: Level, candidates: Candidates, width: int) -> tuple[Level, float]:
        """The next level, and the least bound of the children dropped, dominated ones apart."""
        size = min(width, len(candidates.ranks))
        kept = self._empty_level(size)
        heads = np.empty(1 << (2 * size + 1).bit_length(), dtype=np.int64)
        following = np.empty(size, dtype=np.int64)
        order = np.argsort(candidates.ranks, kind="stable")
        number, dropped = select_level(self._tables, level, candidates, order, self._words, heads, following, kept)
        return Level._make(column[:number] for column in kept), float(dropped)


class LevelStage:
    """The level search as a stage of closing a block: prices found once, then searches of any width."""

    def __init__(self, problem: BlockProblem, *, deadline: float) -> None:
        """Find the prices of the whole block.

        Args:
            problem: the block.
            deadline: `time.monotonic` value at which to stop.
        """
        self._problem = problem
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
            self._search = BeamSearch(self._problem, self.prices())
        return self._search.improved(state, width=width, gap=gap, deadline=self._deadline)

    def prices(self) -> list[SetPrices]:
        """Those of the whole block and of its later parts, and the work rows."""
        heads = np.array(self._problem.heads)
        vectors = [self._whole]
        for share in LATER_SHARES:
            later = heads >= np.quantile(heads, share)
            vectors.append(self._sets.prices(later.astype(np.float64), max_rounds=LATER_ROUNDS))
        vectors.extend(work_prices(self._problem, bit) for bit in (TC_BIT, VC_BIT))
        return vectors


def price_tails(problem: BlockProblem, prices: Sequence[SetPrices]) -> Floats:
    """(n,) least time that must follow the end of each operator: paths, and the price of all that comes after it."""
    tails, shortest, after = np.array(problem.tails), np.array(problem.shortest), problem.block.comes_after()
    values = np.array([vector.value_s for vector in prices])
    for i in range(len(problem) - 1, -1, -1):
        later = np.flatnonzero(after[i])
        if not len(later):
            continue
        tails[i] = max(tails[i], float((tails[later] + shortest[later]).max()))
        # Operators that have ``tail`` or more behind them are done that much before the end.
        ordered = later[np.argsort(-tails[later], kind="stable")]
        tails[i] = max(tails[i], float((values[:, ordered].cumsum(axis=1) + tails[ordered]).max()))
    return tails


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
