"""Bounds of cases by sets, the tree over them, and the local search beside it, against brute force and replay."""

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
from drawn_blocks import blocks_of, optimum, problems, whole_problem
from hypothesis import given, settings
from kits.fewer_cases import every
from kits.schedulers import random_problem
from scipy.optimize import linprog

from phaze_opt.graph.build import build_model_graph
from phaze_opt.graph.operator import CoreType
from phaze_opt.schedule import block_solve, quick
from phaze_opt.schedule.beam_search import BeamSearch
from phaze_opt.schedule.block_data import BlockProblem, BlockState
from phaze_opt.schedule.list_schedules import best_list_schedule
from phaze_opt.schedule.order_search import order_by_end, search_orders, workspace_of
from phaze_opt.schedule.problem import (
    Cores,
    Exclusivity,
    ScheduleOptions,
    ScheduleProblem,
    ScheduleResult,
    ScheduleStatus,
)
from phaze_opt.schedule.proof_tree import FREE, ONE_CORE, SPREAD
from phaze_opt.schedule.set_bound import SetPrices
from phaze_opt.schedule.set_program import SetCase, SetProgram
from phaze_opt.schedule.set_tree import SetTree
from phaze_opt.schedule.solve import solve_schedule
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.schedule.verify import verify_schedule
from phaze_opt.workload.config import load_model
from phaze_opt.workload.training import AttentionForm, TrainingSpec


def wide_blocks(problem):
    """Blocks that these stages take: of operators that all have a length."""
    return [block for block in blocks_of(problem) if len(block) > 1 and min(block.shortest) > 0.0]


def serial(block):
    """All operators one after another, in their shorter modes."""
    start = np.cumsum([0.0, *block.shortest])
    is_spread = np.array(block.spread) < np.array(block.one_core)
    return BlockState(0.0, float(start[-1]), start[:-1], is_spread)


def replay(block, state):
    verify_schedule(
        whole_problem(block),
        ScheduleResult(
            makespan_s=state.upper,
            lower_bound_s=min(state.lower, state.upper),
            status=ScheduleStatus.FEASIBLE,
            start_s=tuple(state.start.tolist()),
            is_spread=tuple(state.is_spread.tolist()),
        ),
    )


def grown(block, *, gap=0.0, max_cases=2_000):
    tree = SetTree(block, serial(block), gap=gap, max_rounds=200, deadline=math.inf)
    tree.run(max_cases=max_cases, deadline=math.inf)
    return tree


@settings(max_examples=60, deadline=None, derandomize=True)
@given(problems())
def test_tree_brackets_the_optimum(problem):
    for block in wide_blocks(problem):
        tree = grown(block)
        assert tree.state.lower <= optimum(block) * (1 + 1e-9)
        assert tree.state.upper >= optimum(block) * (1 - 1e-9)
        replay(block, tree.state)


def relaxed(block, case):
    """The least time of all sets of a case, every one of them listed: the program with nothing left out."""
    count = len(block)
    columns = []
    for modes in itertools.product((None, ONE_CORE, SPREAD), repeat=count):
        running = [i for i in range(count) if modes[i] is not None]
        if any(case.after[i, j] for i in running for j in running):
            continue
        if any(case.modes[i] not in (FREE, modes[i]) for i in running):
            continue
        if any(modes[i] == SPREAD and i != j and block.excludes(i, j) for i in running for j in running):
            continue
        if any(
            sum(modes[i] == ONE_CORE and bool(block.block.masks[i] & bit) for i in running) > cores
            for bit, cores in zip((1, 2), block.cores, strict=True)
        ):
            continue
        rates = np.zeros((2, count))
        for i in running:
            rates[modes[i], i] = 1.0 / (block.one_core, block.spread)[modes[i]][i]
        columns.append(rates.sum(axis=0))
    answer = linprog(np.ones(len(columns)), A_ub=-np.array(columns).T, b_ub=-np.ones(count))
    return answer.fun


def test_program_has_the_value_of_all_its_sets():
    found = 0
    for seed in range(12):
        for rule in Exclusivity:
            for block in wide_blocks(random_problem(seed, num_operators=6, exclusivity=rule)):
                program = SetProgram(block)
                last = len(block) - 1
                modes = program.root.modes.copy()
                modes[[i for i in block.spreadable if i % 2 == 0]] = SPREAD
                after = program.root.after.copy()
                pair = next(((i, last) for i in range(last) if not after[i, last]), None)
                cases = [program.root, SetCase(modes, after)]
                if pair is not None:
                    before = after.copy()
                    before[: last + 1, last] |= after[:, pair[0]]
                    before[pair] = True
                    cases.append(SetCase(program.root.modes, before))
                for case in (*cases, program.root):
                    assert program.bound(case).bound == pytest.approx(relaxed(block, case), rel=2e-4)
                    assert program.bound(case).bound <= relaxed(block, case) * (1 + 1e-9)
                    found += 1
    assert found > 40


def test_case_of_a_schedule_is_bounded_by_it():
    """The modes and orders of a schedule are a case, whose bound is at most its makespan."""
    for seed in range(10):
        for block in wide_blocks(random_problem(seed, num_operators=9)):
            state = grown(block, max_cases=50).state
            length = np.where(state.is_spread, block.spread, block.one_core)
            after = state.start[None, :] >= (state.start + length)[:, None] - 1e-12
            case = SetCase(np.where(state.is_spread, SPREAD, ONE_CORE).astype(np.int8), after)
            assert SetProgram(block).bound(case).bound <= state.upper * (1 + 1e-9)


def layered(exclusivity):
    """Five layers of eight operators, each behind two of the layer before: wide beyond whole searches."""
    generator = np.random.default_rng(16)
    count = 40
    one_core = generator.integers(2, 40, size=count).astype(float)
    edges = {
        (8 * (i // 8 - 1) + int(j), i) for i in range(8, count) for j in generator.choice(8, size=2, replace=False)
    }
    return ScheduleProblem(
        core_types=tuple((CoreType.TC, CoreType.VC)[k] for k in generator.integers(0, 2, size=count)),
        one_core_s=tuple(one_core.tolist()),
        spread_s=tuple((one_core / generator.uniform(1.0, 3.0, size=count)).tolist()),
        edges=tuple(sorted(edges)),
        cores=Cores(3, 2),
        exclusivity=exclusivity,
    )


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_local_search_never_lengthens_and_replays(exclusivity):
    block = max(blocks_of(layered(exclusivity)), key=len)
    for within in (-1.0, 0.05):
        known = serial(block)
        start, is_spread = known.start.copy(), known.is_spread.copy()
        upper = search_orders(block.arrays, known.upper, start, is_spread, 2_000, 0.03, within, True, 1)
        assert upper < known.upper
        replay(block, replace(known, upper=upper, start=start, is_spread=is_spread))
        kept = is_spread.copy()
        again = search_orders(block.arrays, upper, start, is_spread, 500, 0.03, within, False, 2)
        assert again <= upper
        assert (is_spread == kept).all(), "modes stay where they may not change"


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_more_cases_prove_no_less(exclusivity):
    block = max(blocks_of(layered(exclusivity)), key=len)
    tree = SetTree(block, serial(block), gap=0.01, max_rounds=200, deadline=math.inf)
    root = tree.state.lower
    lowers = []
    for cases in (20, 100):
        tree.run(max_cases=cases, deadline=math.inf)
        lowers.append(tree.state.lower)
        replay(block, tree.state)
    assert root <= lowers[0] <= lowers[1] <= tree.state.upper
    assert root < lowers[1], "splitting cases raises the bound of the whole"


@pytest.mark.parametrize("exclusivity", every(2, Exclusivity))
def test_wide_blocks_are_solved_alike_again_where_nodes_are_the_limit(exclusivity):
    problem = layered(exclusivity)
    options = [ScheduleOptions(mip_gap=0.001, mip_nodes=nodes, time_limit_s=3600.0) for nodes in (200, 2_000)]
    few, more = (solve_schedule(problem, options=each) for each in options)
    block_solve._close.cache_clear()
    assert solve_schedule(problem, options=options[0]) == few
    for result in (few, more):
        verify_schedule(problem, result)
        assert result.num_ilp_solves == 0
    assert max(few.lower_bound_s, more.lower_bound_s) <= min(few.makespan_s, more.makespan_s) * (1 + 1e-9)
    assert more.gap <= few.gap


def test_deadline_ends_a_tree():
    block = max(blocks_of(layered(Exclusivity.CHIP)), key=len)
    tree = SetTree(block, serial(block), gap=0.0, max_rounds=200, deadline=time.monotonic())
    cases = tree.num_cases
    tree.run(max_cases=10**6, deadline=time.monotonic())
    assert tree.num_cases == cases
    assert 0.0 < tree.state.lower <= tree.state.upper


def test_values_of_the_whole_block_bound_what_is_left_of_it():
    """They are prices of the level search, whose answer at full width is the optimum."""
    for seed in range(6):
        for block in wide_blocks(random_problem(seed, num_operators=6)):
            prices = SetPrices(grown(block, max_cases=0).value_s)
            assert prices.bound() <= optimum(block) * (1 + 1e-9)
            search = BeamSearch(block, [prices])
            state = search.improved(serial(block), width=10**6, gap=0.0, deadline=math.inf)
            assert state.upper == pytest.approx(optimum(block), rel=1e-9)
            assert state.lower <= state.upper
            replay(block, state)


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_neighbours_change_their_modes_together(exclusivity):
    """Four operators that all leave their cores' spread gain at once; any one of them alone lengthens the schedule."""
    block = BlockProblem(
        compile_structure((CoreType.TC,) * 4, ()).blocks[0], (4.0,) * 4, (2.0,) * 4, Cores(4, 1), exclusivity
    )
    known = serial(block)
    start, is_spread = known.start.copy(), known.is_spread.copy()
    upper = search_orders(block.arrays, known.upper, start, is_spread, 400, 0.0, -1.0, True, 1)
    assert known.upper == 8.0
    assert upper == 4.0
    replay(block, replace(known, upper=upper, start=start, is_spread=is_spread))


def branches(exclusivity, *, lengths=(6, 6, 5, 5)):
    """Chains side by side, as a module with branches has them: few of their pairs have an order."""
    generator = np.random.default_rng(9)
    ends = np.cumsum(lengths)
    count = int(ends[-1])
    one_core = generator.integers(2, 40, size=count).astype(float)
    return ScheduleProblem(
        core_types=tuple((CoreType.TC, CoreType.VC)[k] for k in generator.integers(0, 2, size=count)),
        one_core_s=tuple(one_core.tolist()),
        spread_s=tuple((one_core / generator.uniform(1.0, 2.0, size=count)).tolist()),
        edges=tuple((i, i + 1) for i in range(count - 1) if i + 1 not in ends),
        cores=Cores(2, 3),
        exclusivity=exclusivity,
    )


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_dense_blocks_go_without_mips_where_nodes_are_the_limit(exclusivity):
    """Wider levels close what the level search of default width leaves open, and say what its bounds allow."""
    problem = branches(exclusivity)
    few = {"beam_width": 20, "multi_starts": 0, "tree_nodes": 0}
    options = ScheduleOptions(mip_gap=0.001, mip_nodes=200, time_limit_s=3600.0, **few)
    dense = solve_schedule(problem, options=options)
    loose = solve_schedule(problem, options=replace(options, mip_gap=1.0))
    whole = solve_schedule(problem, options=ScheduleOptions(beam_width=20_000))
    for result in (dense, loose, whole):
        verify_schedule(problem, result)
    assert dense.num_ilp_solves == loose.num_ilp_solves == 0
    assert dense.gap < loose.gap
    assert whole.status is ScheduleStatus.OPTIMAL
    assert dense.lower_bound_s <= whole.makespan_s * (1 + 1e-9)
    assert whole.makespan_s <= dense.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("lengths", [(6, 6, 5, 5), (8, 7, 7), (5, 5, 5, 5), (18, 4)])
def test_dense_is_what_has_many_operators_and_few_orders(lengths):
    """Beyond 20 operators, of whose pairs 7 in 10 have no order: a count by hand."""
    (block,) = [block for block in blocks_of(branches(Exclusivity.CHIP, lengths=lengths)) if len(block) > 10]
    free = sum(a * b for a, b in itertools.combinations(lengths, 2))
    count = sum(lengths)
    solver = block_solve.BlockSolver(block, serial(block), options=ScheduleOptions(), deadline=math.inf)
    assert len(block.block.incomparable_pairs()) == free
    assert solver._is_dense == (count > 20 and free / (count * (count - 1) / 2) > 0.7)


@pytest.mark.parametrize("ties", [1, 4, 100])
def test_orders_by_end_are_those_of_a_stable_sort(ties):
    generator = np.random.default_rng(ties)
    for _ in range(50):
        space = workspace_of(30)
        start = generator.integers(0, ties + 1, size=30).astype(float)
        space.duration[:] = generator.integers(1, ties + 1, size=30)
        order = np.lexsort((generator.random(30), start))
        expected = order[np.argsort(-(start + space.duration)[order], kind="stable")]
        order_by_end(order, start, space)
        assert (order == expected).all()


@pytest.mark.parametrize("exclusivity", list(Exclusivity))
def test_list_schedules_are_given_up_only_where_they_are_no_shorter(exclusivity):
    block = max(blocks_of(layered(exclusivity)), key=len)
    generator = np.random.default_rng(1)
    num_given_up = 0
    for _ in range(40):
        modes = generator.random(len(block)) < 0.5
        start, known = np.empty(len(block)), np.empty(len(block))
        whole = best_list_schedule(block.arrays, modes, 0.0, math.inf, known)
        for upper in (0.9 * whole, whole, 1.1 * whole):
            found = best_list_schedule(block.arrays, modes, 0.0, upper, start)
            assert found >= whole
            if whole < upper:
                assert found == whole
                assert (start == known).all()
            num_given_up += math.isinf(found)
    assert num_given_up >= 20


@pytest.mark.parametrize("model", ["bert-large", "gpt3-175b", "llama-2-7b", "mixtral-8x7b", "opt-1.3b"])
def test_no_block_of_a_transformer_is_wide_or_dense(model):
    """Their schedules are those of the stages of before."""
    spec = load_model(model)
    sizes = []
    for attention, degree in itertools.product(AttentionForm, (1, 2, 8)):
        training = TrainingSpec(micro_batch=2, sequence_length=512, global_batch=1024, attention=attention)
        graph = build_model_graph(spec, training, tensor_parallel=degree)
        for phase in (phase for layer in graph.layers for phase in layer.phases):
            types = tuple(operator.core_type for operator in phase.operators)
            blocks = compile_structure(types, phase.edges).blocks
            sizes.extend(len(block) for block in blocks)
            large = [block for block in blocks if len(block) > block_solve.MIN_DENSE]
            for block in large:
                pairs = math.comb(len(block), 2)
                assert len(block.incomparable_pairs()) <= block_solve.DENSE_SHARE * pairs
    assert max(sizes) <= quick.MAX_NARROW
