"""Solving a scheduling problem: quick bounds first, MIPs only on the blocks that stay open."""

import hashlib
import time
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.schedule.block_data import (
    BlockProblem,
    BlockState,
    ScheduleCache,
    gap_of_grid,
    latency_grid,
    raised_to_grid,
)
from phaze_opt.schedule.block_solve import close_block
from phaze_opt.schedule.problem import (
    Cores,
    Exactness,
    Exclusivity,
    ScheduleOptions,
    ScheduleProblem,
    ScheduleResult,
    ScheduleStatus,
)
from phaze_opt.schedule.quick import MAX_NARROW, WIDE_NODES, quick_block, quick_blocks
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure

__all__ = ["ScheduleBounds", "ScheduleOptions", "bound_compiled", "solve_compiled", "solve_schedule"]

DEFAULT_OPTIONS = ScheduleOptions()
# Nodes of the mode search per block: without MIPs behind it, and with.
QUICK_NODES = 64
PROVE_NODES = 400
# Quick bounds of wide blocks that a process keeps, of some kilobytes each.
KEPT_WIDE = 256


@dataclass(frozen=True, slots=True)
class ScheduleBounds:
    """Bounds of the optimal makespan, floor included; ``upper_s`` is attained by a schedule."""

    lower_s: float
    upper_s: float


@dataclass(slots=True)
class _Solve:
    """Working state of one solve; positions as in `structure.PackedBlocks`."""

    structure: ScheduleStructure
    one_core_s: Floats
    spread_s: Floats
    cores: Cores
    exclusivity: Exclusivity
    floor_s: float
    bounds: Floats
    start: Floats
    is_spread: Flags
    grids: Floats
    mips: set[tuple[str, int]] = field(default_factory=set)
    is_timed_out: bool = False

    @property
    def lower_s(self) -> float:
        """Sum of the blocks' bounds, or the floor."""
        return max(float(self.bounds[:, 0].sum()), self.floor_s)

    @property
    def upper_s(self) -> float:
        """Sum of the blocks' makespans, or the floor."""
        return max(float(self.bounds[:, 1].sum()), self.floor_s)

    @property
    def gap(self) -> float:
        """Relative gap of the whole problem."""
        return 0.0 if self.upper_s <= 0 else max(0.0, 1.0 - self.lower_s / self.upper_s)


def solve_schedule(problem: ScheduleProblem, *, options: ScheduleOptions = DEFAULT_OPTIONS) -> ScheduleResult:
    """Solve one problem from scratch; see `solve_compiled`.

    Raises:
        InputError: the graph has a cycle.
    """
    return solve_compiled(
        compile_structure(problem.core_types, problem.edges),
        np.array(problem.one_core_s, dtype=np.float64),
        np.array(problem.spread_s, dtype=np.float64),
        cores=problem.cores,
        exclusivity=problem.exclusivity,
        floor_s=problem.floor_s,
        options=options,
    )


def bound_compiled(
    structure: ScheduleStructure,
    one_core_s: Floats,
    spread_s: Floats,
    *,
    cores: Cores,
    exclusivity: Exclusivity = Exclusivity.CHIP,
    floor_s: float = 0.0,
    options: ScheduleOptions = DEFAULT_OPTIONS,
) -> ScheduleBounds:
    """Closed-form lower bound and list-schedule upper bound, no MIP; arguments as `solve_compiled`."""
    solve = _start(structure, one_core_s, spread_s, cores=cores, exclusivity=exclusivity, floor_s=floor_s)
    _run_quick(solve, target_gap=options.target_gap, max_nodes=QUICK_NODES)
    return ScheduleBounds(min(solve.lower_s, solve.upper_s), solve.upper_s)


def solve_compiled(
    structure: ScheduleStructure,
    one_core_s: Floats,
    spread_s: Floats,
    *,
    cores: Cores,
    exclusivity: Exclusivity = Exclusivity.CHIP,
    floor_s: float = 0.0,
    options: ScheduleOptions = DEFAULT_OPTIONS,
    cache: ScheduleCache | None = None,
) -> ScheduleResult:
    """Solve one problem on a compiled structure.

    Args:
        structure: from `compile_structure`.
        one_core_s: (num_operators,) latency L on one core, s; ignored where contracted.
        spread_s: (num_operators,) latency I spread over all cores, s.
        cores: of each type.
        exclusivity: what a spread operator excludes.
        floor_s: lower bound of the whole problem from HBM traffic, s.
        options: how far to go.
        cache: blocks solved by MIP before.

    Returns:
        A schedule with a proven lower bound; OPTIMAL within ``options.tolerance``, TIME_LIMIT when the budget ended
        first, else FEASIBLE.
    """
    deadline = time.monotonic() + options.time_limit_s
    solve = _start(structure, one_core_s, spread_s, cores=cores, exclusivity=exclusivity, floor_s=floor_s)
    is_proving = options.exactness is Exactness.PROVE
    _run_quick(solve, target_gap=options.target_gap, max_nodes=PROVE_NODES if is_proving else QUICK_NODES)
    _raise_bounds(solve)
    if is_proving and solve.gap > options.target_gap:
        _close_blocks(solve, options, deadline, cache)
    return _result(solve, options)


def _start(
    structure: ScheduleStructure,
    one_core_s: Floats,
    spread_s: Floats,
    *,
    cores: Cores,
    exclusivity: Exclusivity,
    floor_s: float,
) -> _Solve:
    shape = (structure.num_operators,)
    if one_core_s.shape != shape or spread_s.shape != shape:
        message = f"{shape[0]} operators need as many latencies, got {one_core_s.shape} and {spread_s.shape}"
        raise InputError(message)
    size = len(structure.positions)
    return _Solve(
        structure=structure,
        one_core_s=one_core_s[structure.positions],
        spread_s=spread_s[structure.positions],
        cores=cores,
        exclusivity=exclusivity,
        floor_s=floor_s,
        bounds=np.zeros((len(structure.blocks), 2)),
        start=np.zeros(size),
        is_spread=np.zeros(size, dtype=np.bool_),
        grids=np.zeros(len(structure.blocks)),
    )


def _run_quick(solve: _Solve, *, target_gap: float, max_nodes: int) -> None:
    solve.bounds = quick_blocks(
        solve.structure.packed,
        solve.one_core_s,
        solve.spread_s,
        np.array(solve.cores),
        solve.exclusivity is Exclusivity.CHIP,
        target_gap,
        max_nodes,
        solve.start,
        solve.is_spread,
    )
    for index in np.flatnonzero(np.diff(solve.structure.packed.offsets) > MAX_NARROW).tolist():
        known = _quick_wide(_block_problem(solve, index), target_gap, min(max_nodes, WIDE_NODES))
        low, high = _range_of(solve, index)
        solve.bounds[index] = known.lower, known.upper
        solve.start[low:high] = known.start
        solve.is_spread[low:high] = known.is_spread


@lru_cache(maxsize=KEPT_WIDE)
def _quick_wide(problem: BlockProblem, target_gap: float, max_nodes: int) -> BlockState:
    """Quick bounds of a wide block, which an evaluation asks for before it solves the block and then again."""
    start, is_spread = np.zeros(len(problem)), np.zeros(len(problem), dtype=np.bool_)
    lower, upper = quick_block(problem.arrays, target_gap, max_nodes, start, is_spread)
    return BlockState(min(lower, upper), upper, start, is_spread)


def _raise_bounds(solve: _Solve) -> None:
    """Round the open blocks' bounds up to the grids of their latencies."""
    for index, (lower, upper) in enumerate(solve.bounds.tolist()):
        if lower < upper:
            solve.grids[index] = latency_grid(_block_problem(solve, index), upper)
            solve.bounds[index, 0] = raised_to_grid(lower, upper, float(solve.grids[index]))


def _close_blocks(solve: _Solve, options: ScheduleOptions, deadline: float, cache: ScheduleCache | None) -> None:
    """Close the widest block first, until the whole problem's gap is accepted or the time is up."""
    widths = solve.bounds[:, 1] - solve.bounds[:, 0]
    for index in np.argsort(-widths, kind="stable"):
        if solve.gap <= options.target_gap:
            return
        if widths[index] <= 0:
            continue
        if time.monotonic() >= deadline:
            solve.is_timed_out = True
            return
        _close_block(solve, int(index), options, deadline, cache)


def _close_block(
    solve: _Solve, index: int, options: ScheduleOptions, deadline: float, cache: ScheduleCache | None
) -> None:
    low, high = _range_of(solve, index)
    problem, grid = _block_problem(solve, index), float(solve.grids[index])
    state = None if cache is None else cache.find(problem, target_gap=options.target_gap)
    if state is None:
        lower, upper = solve.bounds[index].tolist()
        known = BlockState(lower, upper, solve.start[low:high], solve.is_spread[low:high])
        accepted = max(_accepted_gap(solve, index, options), gap_of_grid(grid, upper))
        options = replace(options, accept_gap=accepted)
        state = close_block(problem, known, options=options, deadline=deadline)
        state = replace(state, lower=raised_to_grid(state.lower, state.upper, grid))
        if state.num_ilp_solves:
            solve.mips.add((_digest(problem, lower, upper, options), state.num_ilp_solves))
        if cache is not None:
            cache.store(problem, state)
    solve.bounds[index] = (state.lower, state.upper)
    solve.start[low:high] = state.start
    solve.is_spread[low:high] = state.is_spread
    solve.is_timed_out = solve.is_timed_out or state.is_timed_out


def _digest(*asked: object) -> str:
    """What tells a block that was solved from others, in every process."""
    return hashlib.sha256(repr(asked).encode()).hexdigest()[:16]


def _range_of(solve: _Solve, index: int) -> tuple[int, int]:
    """Positions of a block's operators: the first, and the one after the last."""
    low, high = solve.structure.packed.offsets[index : index + 2].tolist()
    return low, high


def _block_problem(solve: _Solve, index: int) -> BlockProblem:
    low, high = _range_of(solve, index)
    return BlockProblem(
        solve.structure.blocks[index],
        tuple(solve.one_core_s[low:high].tolist()),
        tuple(solve.spread_s[low:high].tolist()),
        solve.cores,
        solve.exclusivity,
    )


def _accepted_gap(solve: _Solve, index: int, options: ScheduleOptions) -> float:
    """Gap at which a block may be left: as wide as the whole problem's allows beside the gaps of the other blocks."""
    if options.accept_gap <= 0:
        return options.accept_gap
    widths = solve.bounds[:, 1] - solve.bounds[:, 0]
    others = float(widths.sum() - widths[index])
    allowed = 0.999 * options.accept_gap * float(solve.bounds[:, 1].sum()) - others
    return max(options.accept_gap, allowed / float(solve.bounds[index, 1]))


def _result(solve: _Solve, options: ScheduleOptions) -> ScheduleResult:
    structure = solve.structure
    shifts = np.concatenate(([0.0], np.cumsum(solve.bounds[:, 1])))
    begin = np.zeros(structure.num_operators)
    modes = np.zeros(structure.num_operators, dtype=np.bool_)
    begin[structure.positions] = solve.start + np.repeat(shifts[:-1], np.diff(structure.packed.offsets))
    modes[structure.positions] = solve.is_spread
    if structure.contracted:
        duration = np.zeros(structure.num_operators)
        duration[structure.positions] = np.where(solve.is_spread, solve.spread_s, solve.one_core_s)
        for operator, predecessors in structure.contracted:
            begin[operator] = max((begin[p] + duration[p] for p in predecessors), default=0.0)
    return ScheduleResult(
        makespan_s=solve.upper_s,
        lower_bound_s=min(solve.lower_s, solve.upper_s),
        status=_status(solve, options),
        start_s=tuple(begin.tolist()),
        is_spread=tuple(modes.tolist()),
        mips=frozenset(solve.mips),
    )


def _status(solve: _Solve, options: ScheduleOptions) -> ScheduleStatus:
    if solve.gap <= options.tolerance:
        return ScheduleStatus.OPTIMAL
    if solve.is_timed_out and solve.gap > options.target_gap:
        return ScheduleStatus.TIME_LIMIT
    return ScheduleStatus.FEASIBLE
