"""The grid of a block's latencies: makespans are multiples of their common divisor, so bounds are rounded up to it.

An optimal schedule starts every operator at zero or at the end of another one, so its makespan is a sum of latencies.
The divisor is exact: latencies are taken as the decimal numbers that they were given as, never as floats.
"""

import math
from collections.abc import Iterable
from fractions import Fraction

from phaze_opt.schedule.block_data import BlockProblem

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
