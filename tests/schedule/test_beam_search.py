"""The level search: exact where nothing is dropped, never wrong where something is."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import blocks_of, problems
from hypothesis import given, settings
from kits.schedulers import brute_force_makespan, random_problem, serial_sum

from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule.beam_search import BeamSearch, interchangeable_classes, price_tails
from phaze_opt.schedule.precedence import members
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleProblem
from phaze_opt.schedule.set_bound import SetBound, SetPrices
from phaze_opt.schedule.solve import ScheduleOptions, solve_schedule
from phaze_opt.schedule.verify import verify_schedule


def search(problem, *, width, cutoff=math.inf, with_prices=True):
    """Run the search on every block; returns the answers."""
    answers = []
    for block in blocks_of(problem):
        prices = [SetBound(block).prices()] if with_prices else [SetPrices(np.zeros(len(block)))]
        beam = BeamSearch(block, prices)
        answers.append(beam.run(cutoff=cutoff, width=width, deadline=time.monotonic() + 60.0))
    return answers


def makespan(block, answer):
    lengths = np.where(answer.is_spread, block.spread, block.one_core)
    return float((answer.start + lengths).max())


@settings(max_examples=50, deadline=None, derandomize=True)
@given(problems(max_operators=5))
def test_whole_search_equals_brute_force(problem):
    for with_prices in (True, False):
        answers = search(problem, width=100_000, with_prices=with_prices)
        assert all(answer.is_complete for answer in answers)
        total = sum(makespan(block, answer) for block, answer in zip(blocks_of(problem), answers, strict=True))
        assert total == pytest.approx(brute_force_makespan(problem), rel=1e-9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(problems(max_operators=3, max_latency=3))
def test_alike_operators_are_exchanged_without_loss(problem):
    """The problem twice side by side: every operator of one copy is interchangeable with one of the other."""
    count = len(problem.core_types)
    twice = replace(
        problem,
        core_types=problem.core_types * 2,
        one_core_s=problem.one_core_s * 2,
        spread_s=problem.spread_s * 2,
        edges=(*problem.edges, *((i + count, j + count) for i, j in problem.edges)),
    )
    answers = search(twice, width=100_000)
    total = sum(makespan(block, answer) for block, answer in zip(blocks_of(twice), answers, strict=True))
    assert all(answer.is_complete for answer in answers)
    assert total == pytest.approx(brute_force_makespan(twice), rel=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_narrow_search_claims_nothing_it_has_not_shown(problem):
    blocks = list(blocks_of(problem))
    for block, narrow, whole in zip(blocks, search(problem, width=1), search(problem, width=100_000), strict=True):
        optimum = makespan(block, whole)
        assert makespan(block, narrow) >= optimum * (1 - 1e-12)
        assert narrow.lower <= optimum * (1 + 1e-12), "bounds of what was dropped"
        if narrow.is_complete:
            assert makespan(block, narrow) == pytest.approx(optimum, rel=1e-12)


def test_cutoff_at_the_optimum_leaves_nothing():
    for seed in range(12):
        problem = random_problem(seed, num_operators=7)
        for block, whole in zip(blocks_of(problem), search(problem, width=100_000), strict=True):
            beam = BeamSearch(block, [SetBound(block).prices()])
            answer = beam.run(cutoff=makespan(block, whole), width=100_000, deadline=math.inf)
            assert answer.start is None
            assert answer.is_complete


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_bounds_never_cut_the_optimum(problem):
    """Just above the optimum, where every bound is as sharp as it can be, the optimum is found still."""
    for block, whole in zip(blocks_of(problem), search(problem, width=100_000, with_prices=False), strict=True):
        optimum = makespan(block, whole)
        sets = SetBound(block)
        heads = np.array(block.heads)
        prices = [sets.prices(), sets.prices((heads >= np.median(heads)).astype(np.float64))]
        beam = BeamSearch(block, prices)
        cutoff = optimum * (1 + 1e-9) + 1e-12
        answer = beam.run(cutoff=cutoff, width=100_000, deadline=math.inf)
        assert answer.is_complete
        assert makespan(block, answer) == pytest.approx(optimum, rel=1e-12)
        narrow = beam.run(cutoff=cutoff, width=2, deadline=math.inf)
        assert narrow.lower <= optimum * (1 + 1e-12)


def test_deadline_is_looked_at_on_every_level():
    block = max(blocks_of(random_problem(3, num_operators=12)), key=len)
    beam = BeamSearch(block, [SetBound(block).prices()])
    answer = beam.run(cutoff=math.inf, width=10, deadline=time.monotonic() - 1.0)
    assert answer.is_timed_out
    assert not answer.is_complete


def test_heads_are_interchangeable_and_what_they_share_is_not():
    """Three chains of two between a first and a last operator; the third chain is longer."""
    edges = ((0, 1), (0, 2), (0, 3), (1, 4), (2, 5), (3, 6), (4, 7), (5, 7), (6, 7))
    types = (CoreType.TC,) * 8
    problem = ScheduleProblem(types, (1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 4.0, 1.0), (9.0,) * 8, edges, Cores(2, 1))
    (block,) = (each for each in blocks_of(problem) if len(each) > 1)
    classes = dict(zip(block.block.operators, interchangeable_classes(block).tolist(), strict=True))
    assert classes[1] == classes[2] != classes[3]
    assert classes[4] == classes[5] != classes[6]


def test_heads_that_wait_for_the_same_values_are_interchangeable():
    """Scores, softmax and context of three heads; every context waits for the values, the third for a copy of them."""
    edges = ((0, 3), (1, 4), (2, 5), (3, 6), (4, 7), (5, 8), (9, 6), (9, 7), (10, 8))
    types = (CoreType.TC,) * 3 + (CoreType.VC,) * 3
    types += (CoreType.TC,) * 3 + (CoreType.VC,) * 2
    lengths = (2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 4.0, 5.0)
    problem = ScheduleProblem(types, lengths, (9.0,) * 11, edges, Cores(2, 1))
    (block,) = (each for each in blocks_of(problem) if len(each) > 1)
    classes = dict(zip(block.block.operators, interchangeable_classes(block).tolist(), strict=True))
    assert classes[0] == classes[1] != classes[2]
    assert classes[3] == classes[4] != classes[5]
    assert classes[6] == classes[7] == classes[8], "nothing follows: what they waited for is over"


@settings(max_examples=15, deadline=None, derandomize=True)
@given(problems(max_operators=2, max_latency=3))
def test_copies_that_wait_for_the_same_are_exchanged_without_loss(problem):
    """Copies side by side of which every operator waits for one operator outside and is waited for by another."""
    count = len(problem.core_types)
    copies = [[(i + k * count, j + k * count) for i, j in problem.edges] for k in range(2)]
    first, last = 2 * count, 2 * count + 1
    outside = [(first, i) for i in range(1, 2 * count, 2)] + [(i, last) for i in range(0, 2 * count, 2)]
    whole = replace(
        problem,
        core_types=problem.core_types * 2 + (CoreType.TC, CoreType.VC),
        one_core_s=problem.one_core_s * 2 + (2.0, 3.0),
        spread_s=problem.spread_s * 2 + (1.0, 2.0),
        edges=(*copies[0], *copies[1], *outside),
    )
    answers = search(whole, width=100_000)
    total = sum(makespan(block, answer) for block, answer in zip(blocks_of(whole), answers, strict=True))
    assert all(answer.is_complete for answer in answers)
    assert total == pytest.approx(brute_force_makespan(whole), rel=1e-9)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_tails_never_exceed_what_must_follow(problem):
    """An operator and all that comes after it cannot be done faster than its tail says."""
    for block in blocks_of(problem):
        tails = price_tails(block, [SetBound(block).prices()])
        for i in range(len(block)):
            later = list(members(block.block.after[i]))
            core_types = {1: CoreType.TC, 2: CoreType.VC, 3: CoreType.TC_AND_VC}
            rest = ScheduleProblem(
                tuple(core_types[block.block.masks[j]] for j in later),
                tuple(block.one_core[j] for j in later),
                tuple(block.spread[j] for j in later),
                tuple((later.index(a), later.index(b)) for a, b in block.block.edges if a in later and b in later),
                block.cores,
                block.exclusivity,
            )
            assert tails[i] <= brute_force_makespan(rest) * (1 + 1e-9)


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_layered_problem_of_forty_operators_is_proven(exclusivity):
    """Beyond the tree search and the MIPs: closed to 1 % with node limits alone, and the same every time."""
    problem = layered(exclusivity)
    options = ScheduleOptions(mip_gap=0.01, mip_nodes=2_000, time_limit_s=3600.0)
    first = solve_schedule(problem, options=options)
    verify_schedule(problem, first)
    assert first.gap <= 0.01
    assert first.makespan_s <= serial_sum(problem)
    assert solve_schedule(problem, options=options) == first


def layered(exclusivity):
    generator = np.random.default_rng(5)
    edges = [
        (4 * k + i, 4 * k + 4 + j) for k in range(9) for i in range(4) for j in range(4) if generator.random() < 0.6
    ]
    one_core = np.exp(generator.uniform(0, 4, size=40))
    return ScheduleProblem(
        tuple((CoreType.TC, CoreType.VC, CoreType.TC_AND_VC)[k] for k in generator.integers(0, 3, size=40)),
        tuple(one_core.tolist()),
        tuple((one_core / 2 ** generator.uniform(0, 1, size=40)).tolist()),
        tuple(edges),
        Cores(2, 2),
        exclusivity,
    )
