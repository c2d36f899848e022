"""Bounds rounded up to the grid of the latencies: never above the optimum, and what closes integer instances."""

from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import problems
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.schedulers import brute_force_makespan

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.block_data import BlockProblem, latency_grid, raised_to_grid
from phaze_opt.schedule.problem import Cores, Exactness, Exclusivity, ScheduleOptions, ScheduleProblem, ScheduleStatus
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.schedule.verify import verify_schedule

UNITS = ("1", "3", "7", "0.1", "0.25", "1e-05", "6e9")


def in_unit(problem, unit):
    """The problem with latencies that are multiples of a decimal number, as a file would give them."""
    one_core, spread = (
        tuple(float(f"{int(value) * float(unit):.12g}") for value in values)
        for values in (problem.one_core_s, problem.spread_s)
    )
    return replace(problem, one_core_s=one_core, spread_s=spread)


@settings(max_examples=150)
@given(problems(max_operators=5), st.sampled_from(UNITS), st.sampled_from(Exactness))
def test_no_rounded_bound_exceeds_the_optimum(problem, unit, exactness):
    problem = in_unit(problem, unit)
    result = solve_schedule(problem, options=ScheduleOptions(exactness=exactness))
    verify_schedule(problem, result)
    optimum = brute_force_makespan(problem)
    assert result.lower_bound_s <= optimum * (1 + 1e-12)
    assert result.makespan_s >= optimum * (1 - 1e-12)
    if exactness is Exactness.PROVE:
        assert result.status is ScheduleStatus.OPTIMAL
        assert result.makespan_s == pytest.approx(optimum, rel=1e-12)


def layered(seed):
    """Independent and dependent tasks of whole lengths on few equal cores, as in the Standard Task Graph set."""
    generator = np.random.default_rng(seed)
    count, num_cores = int(generator.integers(30, 51)), int(generator.integers(2, 5))
    latencies = tuple(generator.integers(1, 20, size=count).astype(float).tolist())
    edges = tuple((i, j) for i in range(count) for j in range(i + 1, count) if generator.random() < 2.0 / count)
    return ScheduleProblem((CoreType.TC,) * count, latencies, latencies, edges, Cores(num_cores, 1))


@pytest.mark.parametrize(("seed", "makespan"), [(2, 248.0), (3, 223.0), (9, 115.0), (10, 124.0), (11, 171.0)])
def test_integer_instances_whose_bound_is_a_fraction_below_are_proven(seed, makespan):
    """Without rounding these end in the time limit, with bounds such as 247.5."""
    problem = layered(seed)
    result = solve_schedule(problem)
    verify_schedule(problem, result)
    assert (result.status, result.makespan_s, result.lower_bound_s) == (ScheduleStatus.OPTIMAL, makespan, makespan)


def block_of(*latencies):
    """Unordered operators on one core, none shorter when spread."""
    count = len(latencies)
    block = compile_structure((CoreType.TC,) * count, ()).blocks[0]
    return BlockProblem(block, latencies, latencies, Cores(1, 1), Exclusivity.CHIP)


@pytest.mark.parametrize(
    ("latencies", "grid"),
    [
        ((4.0, 6.0, 10.0), 2.0),
        ((0.1, 0.3, 0.7), 0.1),
        ((0.0, 0.0), 0.0),
        ((0.0, 3.0), 3.0),
        ((1.25e-05, 2.5e-05), 1.25e-05),
        ((1 / 3, 1 / 7), 0.0),
        ((1e15, 1.0), 0.0),
    ],
)
def test_grid_is_the_common_divisor_of_the_decimals(latencies, grid):
    assert latency_grid(block_of(*latencies), sum(latencies)) == grid


def test_latencies_of_spreading_count_only_where_it_is_of_use():
    block = block_of(4.0, 6.0)
    assert latency_grid(replace(block, spread=(5.0, 7.0)), 10.0) == 2.0
    assert latency_grid(replace(block, spread=(3.0, 7.0)), 10.0) == 1.0


@pytest.mark.parametrize(
    ("lower", "raised"),
    [(93.33, 94.0), (93.0, 93.0), (93.00001, 93.00001), (92.99999, 93.0), (93.9999999, 94.0), (0.0, 0.0)],
)
def test_rounding_goes_up_and_forgives_what_solvers_leave(lower, raised):
    """93.00001 is 93 as far as a solver in floats can tell."""
    assert raised_to_grid(lower, 94.0, 1.0) == raised


def test_a_bound_stays_where_there_is_no_grid_and_never_exceeds_the_makespan():
    assert raised_to_grid(93.33, 94.0, 0.0) == 93.33
    assert raised_to_grid(0.25, 0.30000000000000004, 0.1) == 0.30000000000000004
