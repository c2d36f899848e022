"""Closing one block, each once: multi-start list schedules, the crash MIP, the ordering model with lazy core rows."""

import math
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.schedule.beam_search import BeamSearch, LevelStage
from phaze_opt.schedule.block_data import MIP_TOLERANCE, BlockProblem, BlockState
from phaze_opt.schedule.dual_program import best_dual, relaxed_spread
from phaze_opt.schedule.duals import TYPE_BITS, dual_bound, one_core_prices, work_vector
from phaze_opt.schedule.highs import HighsSolver, MipAnswer
from phaze_opt.schedule.list_schedules import multi_start, schedule_modes
from phaze_opt.schedule.mip_models import (
    MAX_SECOND_ROWS,
    SCALE,
    antichain_rows,
    broken_core_rows,
    build_ordering_model,
    solve_crash_bound,
)
from phaze_opt.schedule.order_search import search_orders
from phaze_opt.schedule.problem import MAX_ROUNDS, ScheduleOptions
from phaze_opt.schedule.quick import MAX_NARROW
from phaze_opt.schedule.set_bound import SetPrices, work_prices
from phaze_opt.schedule.set_tree import SetTree
from phaze_opt.schedule.structure import TC_BIT, VC_BIT
from phaze_opt.schedule.tree_search import MAX_OPERATORS, tree_search

# The first round goes without most core rows, which is quick where they do not bind and hopeless where they do.
FIRST_ROUND_S = 1.0
# Further rounds of multi-starts before the first MIP; some 8 microseconds a start on 24 operators.
LONG_TURNS = 10
# Widest level, some 100 MB on 100 operators.
MAX_WIDTH = 60_000
# How much wider each search is than the one before.
WIDENING = 3
# Blocks of more operators than this are searched by levels rather than by MIPs, which do not get far on them.
MAX_MIP_OPERATORS = 30
# Where nodes are the limit, so are smaller blocks of more operators than this, of whose pairs precedence leaves more
# than this share without an order. None of a transformer has both; of Inception's branches some do.
MIN_DENSE = 20
DENSE_SHARE = 0.7
DENSE_TURNS = 2
# Local searches before each turn of the tree: how far the walk may rise at first, and what is pushed both ways.
RISES = ((0.03, 0.05), (0.01, -1.0), (0.005, 0.005), (0.01, 0.01))
SEARCHES = 8
# Where time is the limit: changes of a local search and cases of the tree in a turn, and in the first, on so many
# operators.
TURN_TRIES = 3_000
TURN_CASES = 500
FIRST_CASES = 300
FIRST_SHARE = 0.15
TURN_SIZE = 60
MAX_ROUNDS_OF_SETS = 200
# Where nodes are the limit: local searches as above, the tries of each, the width of the level search and the cases of
# the tree that a node of a MIP stands for, and rounds of adding sets to a case. Cases are those of `MAX_NARROW`
# operators: their work grows faster.
NODE_RISES = ((0.005, 0.005), (0.01, -1.0))
TRIES_OF_A_NODE = 10
WIDTH_OF_A_NODE = 0.5
# Walks begin where operators run spread of which the relaxed crash bound spreads more than this. No share is between
# these and the next hundredth by chance: a vertex of the program has them at nothing, or at a ratio of latencies.
RELAXED_SHARES = (0.05, 0.5)
CASES_OF_A_NODE = 0.01
NODE_ROUNDS = 30
# Closed blocks that a process keeps, of some kilobytes each.
MAX_KEPT = 2048


def close_block(problem: BlockProblem, known: BlockState, *, options: ScheduleOptions, deadline: float) -> BlockState:
    """The state of a block once its gap is accepted or the time is up.

    An evaluation, its range, its reference machines and other software meet the same blocks again and again: those
    equal to the last bit are looked up. Only nodes may limit what is kept: then a state depends on the block and the
    options alone, and the one that is looked up is the one that solving would give, the number of MIPs included.

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


class BlockSolver:
    """Closes the gap of one block; ``state`` is the best known at any time."""

    def __init__(self, problem: BlockProblem, state: BlockState, *, options: ScheduleOptions, deadline: float) -> None:
        """Hold the block.

        Args:
            problem: the block with its latencies.
            state: from the quick bounds.
            options: gap, multi-starts, seed.
            deadline: `time.monotonic` value at which to stop.
        """
        self.problem = problem
        self.state = state
        self._options = options
        self._deadline = deadline
        self._levels: LevelStage | None = None
        self._tree: SetTree | None = None
        self._num_walks = 0

    def run(self) -> BlockState:
        """Run the stages until the gap is accepted or the time is up."""
        if self._is_wide and self._options.mip_nodes:
            return self._run_wide()
        for stage in (self.try_multi_start, self.try_tree_search):
            if self._is_done():
                break
            stage()
        has_mips = not (self._options.mip_nodes and self._is_dense)
        for stage in (
            self.try_set_tree,
            self.try_set_bound,
            self.try_beam_search,
            self.try_long_multi_start if has_mips else self.try_wider_levels,
            self.try_wide_search,
            *((self.try_crash_bound, self.try_ordering_model) if has_mips else ()),
        ):
            if self._is_done(self._options.target_mip_gap):
                break
            stage()
        if not self.state.is_closed(self._options.target_mip_gap) and self._remaining_s() <= 0:
            self.state = replace(self.state, is_timed_out=True)
        return self.state

    def _run_wide(self) -> BlockState:
        """Of a wide block where nodes are the limit, the stages that its size does not make slow, and no others."""
        gap, size, nodes = self._options.target_mip_gap, len(self.problem), self._options.mip_nodes
        if self._is_done(gap):
            return self.state
        width = min(self._options.beam_width, math.ceil(WIDTH_OF_A_NODE * nodes))
        tree = self._begin_tree(max_rounds=NODE_ROUNDS)
        if size > TURN_SIZE:
            # The walks alone begin too far off; closing the gap by levels would take too long.
            self._search_narrow(tree, width=width // 3, gap=0.0)
        for rise in NODE_RISES:
            if not self._is_done(gap):
                self._search_orders(TRIES_OF_A_NODE * nodes, *rise)
        if not self._is_done(gap):
            self._search_from_relaxed(TRIES_OF_A_NODE * nodes, gap=gap)
        if size <= TURN_SIZE:
            self._search_narrow(tree, width=width, gap=gap)
        self._run_tree(tree, cases=int(CASES_OF_A_NODE * nodes * (MAX_NARROW / size) ** 2), deadline=self._deadline)
        if not self.state.is_closed(gap) and self._remaining_s() <= 0:
            self.state = replace(self.state, is_timed_out=True)
        return self.state

    def _search_from_relaxed(self, tries: int, *, gap: float) -> None:
        """Local searches from the modes that the relaxed crash bound has, longest paths first; on from what helps.

        A list schedule spreads nearly all of a block, one operator after the other; the crash bound knows which of them
        had better run beside each other, and what is left to a walk is their order.
        """
        problem, known, shares = self.problem, self.state.upper, relaxed_spread(self.problem)
        for share in RELAXED_SHARES:
            is_spread = shares > share
            start = -paths_behind(problem, np.where(is_spread, problem.spread, problem.one_core))
            seed = self._options.seed + self._num_walks
            upper = search_orders(problem.arrays, math.inf, start, is_spread, tries, *NODE_RISES[0], True, seed)
            self._num_walks += 1
            self.state = self.state.with_schedule(float(upper), start, is_spread)
        if self.state.upper < known and not self._is_done(gap):
            self._search_orders(tries, *NODE_RISES[1])

    def _search_narrow(self, tree: SetTree, *, width: int, gap: float) -> None:
        """One level search of a wide block, cut by the values of its tree, for schedules shorter by more than a gap."""
        if width > 0 and not self._is_done(self._options.target_mip_gap):
            works = (work_prices(self.problem, bit) for bit in TYPE_BITS)
            search = BeamSearch(self.problem, [SetPrices(tree.value_s), *works])
            self.state = search.improved(self.state, width=width, gap=gap, deadline=self._deadline)

    def try_multi_start(self) -> None:
        """Randomised serial list schedules."""
        self._multi_start(self._options.multi_starts)

    def try_long_multi_start(self) -> None:
        """More of them, where a MIP would otherwise follow: few-core designs need them."""
        for turn in range(1, LONG_TURNS + 1):
            if not self._is_done():
                self._multi_start(self._options.multi_starts, seed=turn)

    def _multi_start(self, num_starts: int, *, seed: int = 0) -> None:
        state = self.state
        start, is_spread = state.start.copy(), state.is_spread.copy()
        enough = state.lower * (1.0 + self._options.target_gap)
        upper = multi_start(
            self.problem.arrays, enough, state.upper, start, is_spread, num_starts, self._options.seed + 1000 * seed
        )
        self.state = state.with_schedule(float(upper), start, is_spread)

    def try_tree_search(self) -> None:
        """Depth-first search priced by dual vectors; closes small blocks."""
        problem, target = self.problem, self._options.target_gap
        if self._options.tree_nodes == 0 or len(problem) > MAX_OPERATORS:
            return
        vectors = [
            best_dual(problem),
            *(work_vector(problem.block, bit, problem.exclusivity) for bit in (TC_BIT, VC_BIT)),
        ]
        self.state = self.state.with_lower(dual_bound(problem, vectors[0]))
        if self._is_done():
            return
        start, is_spread = self.state.start.copy(), self.state.is_spread.copy()
        prices = np.array([(one_core_prices(problem, vector), vector.spread_price) for vector in vectors])
        upper, is_complete, _ = tree_search(
            self.problem.arrays, prices, target, self.state.upper, start, is_spread, self._options.tree_nodes
        )
        self.state = self.state.with_schedule(float(upper), start, is_spread)
        if is_complete:
            self.state = self.state.with_lower(self.state.upper / (1.0 + target))

    @property
    def _is_wide(self) -> bool:
        return len(self.problem) > MAX_NARROW and min(self.problem.shortest) > 0.0

    @property
    def _is_dense(self) -> bool:
        size = len(self.problem)
        return size > MIN_DENSE and len(self.problem.block.incomparable_pairs()) > DENSE_SHARE * math.comb(size, 2)

    def try_set_tree(self) -> None:
        """Local search over orders and modes, and a tree of set bounds; not where nodes are the limit."""
        if not self._options.mip_nodes and min(self.problem.shortest) > 0.0:
            self._tree = self._begin_tree(max_rounds=MAX_ROUNDS_OF_SETS)
            self._turn_tree(tries=TURN_TRIES, cases=FIRST_CASES, time_share=FIRST_SHARE)

    def _begin_tree(self, *, max_rounds: int) -> SetTree:
        gap = self._options.target_mip_gap
        tree = SetTree(self.problem, self.state, gap=gap, max_rounds=max_rounds, deadline=self._deadline)
        self.state = tree.state
        return tree

    def _turn_tree(self, *, tries: int, cases: float, time_share: float = 1.0) -> None:
        """Local searches, then cases of the tree; as many of both as a block of `TURN_SIZE` operators has time for."""
        tree, gap = self._tree, self._options.target_mip_gap
        if tree is None:
            return
        share = TURN_SIZE / len(self.problem)
        deadline = time.monotonic() + time_share * self._remaining_s()
        for _ in range(SEARCHES):
            if not self._is_done(gap):
                self._search_orders(math.ceil(share * tries), *RISES[self._num_walks % len(RISES)])
        self._run_tree(tree, cases=math.ceil(share * cases), deadline=deadline)

    def _run_tree(self, tree: SetTree, *, cases: int, deadline: float) -> None:
        tree.take(self.state)
        tree.run(max_cases=tree.num_cases + cases, deadline=deadline)
        self.state = tree.state

    def _search_orders(self, tries: int, rise: float, within: float) -> None:
        start, is_spread = self.state.start.copy(), self.state.is_spread.copy()
        seed = self._options.seed + self._num_walks
        upper = search_orders(self.problem.arrays, self.state.upper, start, is_spread, tries, rise, within, True, seed)
        self._num_walks += 1
        self.state = self.state.with_schedule(float(upper), start, is_spread)

    def try_set_bound(self) -> None:
        """Prices by feasible sets: a bound, and what the level search is cut by."""
        if self._options.beam_width == 0:
            return
        levels = LevelStage(self.problem, deadline=self._deadline)
        self.state = self.state.with_lower(levels.bound)
        if not self._is_done(self._options.target_mip_gap):
            self._levels = levels

    def try_beam_search(self) -> None:
        """Level search of small widths: closes narrow blocks, finds good schedules of others."""
        for width in (self._options.beam_width // 10, self._options.beam_width):
            self._search_levels(width)

    def try_wider_levels(self) -> None:
        """Level search of larger widths, in place of MIPs on a dense block where nodes are the limit."""
        for turn in range(1, DENSE_TURNS + 1):
            self._search_levels(self._options.beam_width * WIDENING**turn)

    def try_wide_search(self) -> None:
        """More of the tree and wider and wider level search, in turn until the time is up.

        Nothing where nodes are the limit: how far this gets depends on the machine.
        """
        if self._options.mip_nodes:
            return
        gap = self._options.target_mip_gap
        ends = time.monotonic() + self._remaining_s() * (1.0 if len(self.problem) > MAX_MIP_OPERATORS else 0.5)
        width = self._options.beam_width
        while not self._is_done(gap) and time.monotonic() < ends:
            self._turn_tree(tries=TURN_TRIES, cases=TURN_CASES)
            if self._levels is None or width >= MAX_WIDTH:
                if self._tree is None or self._tree.is_ended:
                    return
                continue
            width *= WIDENING
            self._search_levels(width)

    def _search_levels(self, width: int) -> None:
        gap = self._options.target_mip_gap
        if self._levels is not None and width > 0 and not self._is_done(gap):
            self.state = self._levels.search(self.state, width=width, gap=gap)

    def try_crash_bound(self) -> None:
        """The crash MIP: a bound, and modes to schedule."""
        factor = SCALE / self.state.upper
        answer = solve_crash_bound(
            self.problem.scaled(factor), time_limit_s=self._remaining_s(), max_nodes=self._options.mip_nodes
        )
        self.state = replace(self.state.with_lower(answer.lower / factor), num_ilp_solves=self.state.num_ilp_solves + 1)
        if answer.is_spread is not None and not self._is_done():
            modes = np.array(answer.is_spread)
            self._schedule(modes, priority=np.array(self.problem.tails) + np.array(self.problem.shortest))
            self._schedule(modes, priority=-self.state.start)

    def try_ordering_model(self) -> None:
        """The ordering model; solved again with the core rows that its answer breaks, until it breaks none."""
        factor = SCALE / self.state.upper
        problem = self.problem.scaled(factor)
        cutoff = self._cutoff()
        model = build_ordering_model(problem, cutoff)
        solver = HighsSolver(model)
        is_complete = False
        for turn in range(MAX_ROUNDS) if self._options.mip_nodes else count():
            if self._is_done(self._options.target_mip_gap):
                break
            answer = solver.solve(
                time_limit_s=self._round_limit_s(turn, is_complete=is_complete),
                relative_gap=0.5 * max(self._options.accept_gap, self._options.mip_gap),
                max_nodes=self._options.mip_nodes,
            )
            bound = (cutoff if answer.is_infeasible else min(cutoff, answer.bound)) / factor
            self.state = replace(self.state.with_lower(bound), num_ilp_solves=self.state.num_ilp_solves + 1)
            if answer.is_infeasible or self._is_done(self._options.target_mip_gap):
                break
            rows = antichain_rows(model, problem, limit=MAX_SECOND_ROWS) if turn == 0 else []
            if answer.has_solution:
                self._adopt(model, answer)
                rows.extend(broken_core_rows(model, problem, answer))
            self._multi_start(LONG_TURNS * self._options.multi_starts, seed=LONG_TURNS + 1 + turn)
            if rows:
                solver.add_rows([model.core_rows.add(row) for row in rows])
            elif answer.is_optimal or self._options.mip_nodes:
                break
            is_complete = not rows

    def _round_limit_s(self, turn: int, *, is_complete: bool) -> float:
        """Half of what is left, so that a slow round leaves time for another; all where no row was missing."""
        limit = self._remaining_s() * (1.0 if is_complete else 0.5)
        return limit if turn > 0 or self._options.mip_nodes else min(limit, FIRST_ROUND_S)

    def _cutoff(self) -> float:
        """Makespan, scaled, that the ordering model must attain: only schedules worth finding are left in it.

        Where a gap is accepted, none below UB (1 - gap) is all that has to be shown, and the fixings and big-M of the
        model are as much tighter.
        """
        gap = self._options.target_mip_gap
        return SCALE * (1.0 - 0.9 * gap) if gap > 10 * MIP_TOLERANCE else SCALE * (1.0 + 1e-9)

    def _adopt(self, model: Any, answer: MipAnswer) -> None:
        operators = range(len(self.problem))
        modes = np.array(
            [i in self.problem.spreadable and answer.value(model.spread[i]) > 0.5 for i in operators], dtype=np.bool_
        )
        self._schedule(modes, priority=-np.array([answer.value(model.start[i]) for i in operators]))
        self.state = self.state.with_lower(self.state.lower)

    def _schedule(self, modes: Flags, *, priority: Floats) -> None:
        start = np.zeros(len(self.problem))
        upper = schedule_modes(self.problem.arrays, modes, priority, start)
        self.state = self.state.with_schedule(float(upper), start, modes)

    def _remaining_s(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def _is_done(self, gap: float | None = None) -> bool:
        return self.state.is_closed(self._options.target_gap if gap is None else gap) or self._remaining_s() <= 0


def paths_behind(problem: BlockProblem, duration: Floats) -> Floats:
    """(n,) longest path from the begin of each operator to the end of the block."""
    after = problem.block.comes_after()
    longest = duration.copy()
    # With fewer operators behind it first: those behind an operator come before it.
    for i in np.argsort(after.sum(axis=1), kind="stable").tolist():
        longest[i] += max(longest[after[i]], default=0.0)
    return longest


@lru_cache(maxsize=MAX_KEPT)
def _close(problem: BlockProblem, begun: _Begun, options: ScheduleOptions, deadline: _Deadline) -> BlockState:
    state = BlockSolver(problem, begun.state(), options=options, deadline=deadline.at_s).run()
    if state.is_timed_out:
        raise _CutShortError(state)
    return state
