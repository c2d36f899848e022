"""Solving a scheduling problem: quick bounds first, MIPs only on the blocks that stay open."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.schedule.options import Exactness, ScheduleOptions
from phaze_opt.schedule.problem import Exclusivity, ScheduleProblem, ScheduleResult, ScheduleStatus
from phaze_opt.schedule.quick import quick_blocks
from phaze_opt.schedule.structure import ScheduleStructure, compile_structure

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ScheduleBounds:
    """Bounds of the optimal makespan, floor included; ``upper_s`` is attained by a schedule."""

    lower_s: float
    upper_s: float


@dataclass(slots=True)
class BlockState:
    """Best known bounds and schedule of one block while a solve runs."""

    lower_s: float
    upper_s: float
    start_s: FloatArray
    is_spread: BoolArray
    num_ilp_solves: int = 0


def solve_schedule(problem: ScheduleProblem, *, options: ScheduleOptions = ScheduleOptions()) -> ScheduleResult:
    """Solve one problem from scratch; see `solve_compiled`.

    Raises:
        InputError: the graph has a cycle.
    """
    return solve_compiled(
        compile_structure(problem.core_types, problem.edges),
        np.array(problem.one_core_s, dtype=np.float64),
        np.array(problem.spread_s, dtype=np.float64),
        num_tc=problem.num_tc,
        num_vc=problem.num_vc,
        exclusivity=problem.exclusivity,
        floor_s=problem.floor_s,
        options=options,
    )


def bound_compiled(
    structure: ScheduleStructure,
    one_core_s: FloatArray,
    spread_s: FloatArray,
    *,
    num_tc: int,
    num_vc: int,
    exclusivity: Exclusivity = Exclusivity.CHIP,
    floor_s: float = 0.0,
    options: ScheduleOptions = ScheduleOptions(),
) -> ScheduleBounds:
    """Closed-form lower bound and list-schedule upper bound; arguments as `solve_compiled`."""
    setting = BlockSetting(num_tc, num_vc, exclusivity)
    bounds, _, _ = _quick(structure, one_core_s, spread_s, setting, options.target_gap)
    lower, upper = bounds.sum(axis=0)
    return ScheduleBounds(max(float(lower), floor_s), max(float(upper), floor_s))


def solve_compiled(
    structure: ScheduleStructure,
    one_core_s: FloatArray,
    spread_s: FloatArray,
    *,
    num_tc: int,
    num_vc: int,
    exclusivity: Exclusivity = Exclusivity.CHIP,
    floor_s: float = 0.0,
    options: ScheduleOptions = ScheduleOptions(),
) -> ScheduleResult:
    """Solve one problem on a compiled structure.

    Args:
        structure: from `compile_structure`.
        one_core_s: (num_operators,) latency L on one core, s; ignored where contracted.
        spread_s: (num_operators,) latency I spread over all cores, s.
        num_tc: tensor cores.
        num_vc: vector cores.
        exclusivity: what a spread operator excludes.
        floor_s: lower bound of the whole problem from HBM traffic, s.
        options: how far to go.

    Returns:
        A schedule with a proven lower bound; OPTIMAL within ``options.tolerance``, TIME_LIMIT when the budget ended
        first, else FEASIBLE.
    """
    began = time.perf_counter()
    setting = BlockSetting(num_tc, num_vc, exclusivity)
    bounds, start, is_spread = _quick(structure, one_core_s, spread_s, setting, options.target_gap)
    lower, upper = (float(total) for total in bounds.sum(axis=0))
    num_ilp_solves = 0
    if options.exactness is Exactness.PROVE and _gap(lower, upper, floor_s) > options.target_gap:
        pass
    return _assemble(structure, bounds, start, is_spread, one_core_s, spread_s, floor_s, options, num_ilp_solves)


@dataclass(frozen=True, slots=True)
class BlockSetting:
    """The chip that a block runs on."""

    num_tc: int
    num_vc: int
    exclusivity: Exclusivity

    @property
    def is_chip(self) -> bool:
        """Whether a spread operator excludes everything."""
        return self.exclusivity is Exclusivity.CHIP


def _gap(lower_s: float, upper_s: float, floor_s: float) -> float:
    upper = max(upper_s, floor_s)
    return 0.0 if upper <= 0 else max(0.0, 1.0 - max(lower_s, floor_s) / upper)


def _quick(
    structure: ScheduleStructure,
    one_core_s: FloatArray,
    spread_s: FloatArray,
    setting: BlockSetting,
    target_gap: float,
) -> tuple[FloatArray, FloatArray, BoolArray]:
    if one_core_s.shape != (structure.num_operators,) or spread_s.shape != (structure.num_operators,):
        message = (
            f"{structure.num_operators} operators need as many latencies, got {one_core_s.shape} and {spread_s.shape}"
        )
        raise InputError(message)
    packed = structure.packed
    graph = (packed.masks, packed.pred_ptr, packed.pred_idx, packed.succ_ptr, packed.succ_idx)
    start = np.zeros(len(structure.positions))
    is_spread = np.zeros(len(structure.positions), dtype=np.bool_)
    bounds: FloatArray = quick_blocks(
        packed.offsets,
        graph,
        packed.widths,
        one_core_s[structure.positions],
        spread_s[structure.positions],
        np.array([setting.num_tc, setting.num_vc]),
        setting.is_chip,
        target_gap,
        start,
        is_spread,
    )
    return bounds, start, is_spread


def _assemble(
    structure: ScheduleStructure,
    bounds: FloatArray,
    start: FloatArray,
    is_spread: BoolArray,
    one_core_s: FloatArray,
    spread_s: FloatArray,
    floor_s: float,
    options: ScheduleOptions,
    num_ilp_solves: int,
) -> ScheduleResult:
    offsets = structure.packed.offsets
    shifts = np.concatenate(([0.0], np.cumsum(bounds[:, 1])))
    begin = np.zeros(structure.num_operators)
    modes = np.zeros(structure.num_operators, dtype=np.bool_)
    begin[structure.positions] = start + np.repeat(shifts[:-1], np.diff(offsets))
    modes[structure.positions] = is_spread
    if structure.contracted:
        _place_contracted(structure, begin, np.where(modes, spread_s, one_core_s))
    lower = max(float(bounds[:, 0].sum()), floor_s)
    upper = max(float(shifts[-1]), floor_s)
    status = ScheduleStatus.OPTIMAL if _gap(lower, upper, floor_s) <= options.tolerance else ScheduleStatus.FEASIBLE
    return ScheduleResult(
        makespan_s=upper,
        lower_bound_s=min(lower, upper),
        status=status,
        start_s=tuple(begin.tolist()),
        is_spread=tuple(modes.tolist()),
        num_ilp_solves=num_ilp_solves,
    )


def _place_contracted(structure: ScheduleStructure, begin: FloatArray, duration: FloatArray) -> None:
    """Contracted operators take no time: they sit where their last predecessor ends."""
    for operator, predecessors in structure.contracted:
        duration[operator] = 0.0
        begin[operator] = max((begin[p] + duration[p] for p in predecessors), default=0.0)
