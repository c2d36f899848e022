"""One block with numbers, what is known of it while it is being closed, and the blocks that were closed before.

Makespans of a block lie on a grid: an optimal schedule starts every operator at zero or at the end of another one, so
its makespan is a sum of latencies, and bounds are rounded up to multiples of their common divisor. The divisor is
exact: latencies are taken as the decimal numbers that they were given as, never as floats.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.schedule.list_schedules import block_arrays
from phaze_opt.schedule.precedence import Edge
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.structure import TC_BIT, VC_BIT, Block, BlockArrays, pack_blocks

# A MIP bound this close to the incumbent, relative, is the incumbent: HiGHS works in floating point.
MIP_TOLERANCE = 1e-8
# Latencies equal to this many significant digits count as the same problem; far below any solver's tolerance.
_DIGITS = 13
_Key = tuple[object, ...]


@dataclass(frozen=True)
class BlockProblem:
    """A block on one chip; latencies in any one unit of time.

    Attributes:
        block: topology.
        one_core: L of each operator.
        spread: I of each operator.
        cores: of each type.
        exclusivity: what a spread operator excludes.
    """

    block: Block
    one_core: tuple[float, ...]
    spread: tuple[float, ...]
    cores: Cores
    exclusivity: Exclusivity

    def __len__(self) -> int:
        """Number of operators."""
        return len(self.block)

    @property
    def is_chip(self) -> bool:
        """Whether a spread operator excludes everything."""
        return self.exclusivity is Exclusivity.CHIP

    @cached_property
    def arrays(self) -> BlockArrays:
        """The block as kernels read it."""
        latencies = (np.array(self.one_core), np.array(self.spread))
        packed = pack_blocks((self.block,))
        arrays: BlockArrays = block_arrays(packed, 0, *latencies, np.array(self.cores), self.is_chip)
        return arrays

    @cached_property
    def spreadable(self) -> tuple[int, ...]:
        """Operators that spreading shortens; the others keep y = 0 (`presolve`)."""
        return tuple(i for i in range(len(self)) if self.spread[i] < self.one_core[i])

    @cached_property
    def shortest(self) -> tuple[float, ...]:
        """min(L, I) of each operator."""
        return tuple(min(pair) for pair in zip(self.one_core, self.spread, strict=True))

    @cached_property
    def heads(self) -> tuple[float, ...]:
        """Earliest start of each operator: longest path of shortest latencies before it."""
        heads = [0.0] * len(self)
        for before, after in sorted(self.block.edges):
            heads[after] = max(heads[after], heads[before] + self.shortest[before])
        return tuple(heads)

    @cached_property
    def tails(self) -> tuple[float, ...]:
        """Longest path of shortest latencies after the end of each operator."""
        tails = [0.0] * len(self)
        for before, after in sorted(self.block.edges, reverse=True):
            tails[before] = max(tails[before], tails[after] + self.shortest[after])
        return tuple(tails)

    def cores_of(self, bit: int) -> int:
        """Number of cores of a type."""
        return self.cores[bit - 1]

    def of_type(self, bit: int) -> tuple[int, ...]:
        """Operators that need cores of a type."""
        return tuple(i for i, mask in enumerate(self.block.masks) if mask & bit)

    @cached_property
    def scarce_types(self) -> tuple[int, ...]:
        """Types whose core constraint can bind (Dilworth width above the number of cores)."""
        return tuple(bit for bit in (TC_BIT, VC_BIT) if self.block.needs_core_rows(bit, num_cores=self.cores_of(bit)))

    def excludes(self, first: int, second: int) -> bool:
        """Whether either of two operators, spread, excludes the other."""
        return self.is_chip or bool(self.block.masks[first] & self.block.masks[second])

    @cached_property
    def ordered_pairs(self) -> tuple[Edge, ...]:
        """Incomparable pairs (i, j), i < j, whose order a schedule may have to decide."""
        spreadable = set(self.spreadable)
        scarce = sum(self.scarce_types)
        masks = self.block.masks
        return tuple(
            (i, j)
            for i, j in self.block.incomparable_pairs()
            if ((i in spreadable or j in spreadable) and self.excludes(i, j)) or masks[i] & masks[j] & scarce
        )

    def scaled(self, factor: float) -> "BlockProblem":
        """The same block with all latencies multiplied by ``factor``."""
        one_core, spread = (tuple(value * factor for value in values) for values in (self.one_core, self.spread))
        return BlockProblem(self.block, one_core, spread, self.cores, self.exclusivity)


@dataclass(frozen=True, slots=True)
class BlockState:
    """Best known bounds and schedule of a block, in the unit of its latencies.

    Attributes:
        lower: proven bound of the makespan.
        upper: makespan of the schedule.
        start: (n,) start of each operator.
        is_spread: (n,) its mode.
        num_ilp_solves: MIPs solved for it.
        is_timed_out: the time ended before the gap was closed.
    """

    lower: float
    upper: float
    start: Floats
    is_spread: Flags
    num_ilp_solves: int = 0
    is_timed_out: bool = False

    def is_closed(self, target_gap: float) -> bool:
        """Whether the gap is accepted."""
        return self.upper - self.lower <= target_gap * self.upper

    def with_lower(self, bound: float) -> "BlockState":
        """The state with a bound that may be better; snapped to the makespan when within the MIP's tolerance."""
        raised = max(self.lower, bound)
        if raised >= self.upper * (1.0 - MIP_TOLERANCE):
            raised = self.upper
        return replace(self, lower=raised)

    def with_schedule(self, upper: float, start: Floats, is_spread: Flags) -> "BlockState":
        """The state with a schedule that may be better."""
        if upper >= self.upper:
            return self
        return replace(self, upper=upper, start=start.copy(), is_spread=is_spread.copy(), lower=min(self.lower, upper))


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
    cores = tuple(min(count, max(1, width)) for count, width in zip(problem.cores, block.widths, strict=True))
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


MAX_TICKS = 50_000
"""Ticks of a makespan at most: on finer grids solvers' tolerances are no longer small beside a tick."""
BOUND_SLACK = 1e-6
"""Relative error of a bound, far above every solver's: at most a twentieth of a tick."""
CLOSED_TICKS = 0.9
"""A bound that is this many ticks below a schedule rounds up to it, with the slack that it is given."""
SAME = 1e-9
"""A multiple this close to a makespan, relative, is that makespan: floats add up decimals with a rounding."""


def latency_grid(problem: BlockProblem, upper: float) -> float:
    """The largest number that all makespans of a block are multiples of; 0 if a schedule is of too many of them.

    Args:
        problem: the block.
        upper: makespan of a schedule, in the unit of the latencies.
    """
    usable = (*problem.one_core, *(problem.spread[i] for i in problem.spreadable))
    grid = _common_divisor(usable, least=Fraction(upper) / MAX_TICKS)
    return float(grid)


def gap_of_grid(grid: float, upper: float) -> float:
    """Relative gap of a schedule, or of a shorter one, that rounding the bound up closes."""
    return CLOSED_TICKS * grid / upper if upper > 0.0 else 0.0


def raised_to_grid(lower: float, upper: float, grid: float) -> float:
    """A bound rounded up to the grid, at most ``upper``; as it is where there is no grid.

    Args:
        lower: proven bound.
        upper: makespan of a schedule.
        grid: of `latency_grid`.
    """
    if grid == 0.0 or lower >= upper:
        return lower
    raised = math.ceil(lower * (1.0 - BOUND_SLACK) / grid) * grid
    return upper if raised >= upper * (1.0 - SAME) else max(lower, raised)


def _common_divisor(values: Iterable[float], *, least: Fraction) -> Fraction:
    """Greatest common divisor of decimal numbers; 0 if it is below ``least``, or all are zero."""
    divisor = Fraction(0)
    for value in dict.fromkeys(values):
        if value == 0.0:
            continue
        number = Fraction(repr(value))
        scale = math.lcm(divisor.denominator, number.denominator)
        divisor = Fraction(math.gcd(int(divisor * scale), int(number * scale)), scale)
        if divisor < least:
            return Fraction(0)
    return divisor
