"""Each stage of the block solver on its own, the time limit, and the cache."""

import _thread
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn_blocks import blocks_of
from kits.fewer_cases import every
from kits.schedulers import brute_force_makespan, random_problem, serial_sum

from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import make_scenario
from phaze_opt.schedule.block_data import BlockState, ScheduleCache
from phaze_opt.schedule.block_solve import BlockSolver, paths_behind
from phaze_opt.schedule.dual_program import best_dual, relaxed_spread
from phaze_opt.schedule.duals import dual_bound
from phaze_opt.schedule.highs import HighsSolver
from phaze_opt.schedule.mip_models import GROUPS, GroupRole, build_ordering_model, solve_crash_bound
from phaze_opt.schedule.problem import Cores, Exclusivity, ScheduleOptions, ScheduleProblem, ScheduleStatus
from phaze_opt.schedule.solve import solve_compiled, solve_schedule
from phaze_opt.schedule.structure import compile_structure
from phaze_opt.schedule.verify import verify_schedule
from phaze_opt.units import GIBI, MEBI

OPTIONS = ScheduleOptions()
INCEPTION = Path(__file__).parents[2] / "studies" / "models" / "inception_v3.json"


def single_blocks(*, count, seeds, exclusivity):
    """Problems of one block, with the block."""
    for seed in seeds:
        problem = random_problem(seed, num_operators=count, exclusivity=exclusivity)
        blocks = list(blocks_of(problem))
        if len(blocks) == 1 and len(blocks[0]) > 2:
            yield problem, blocks[0]


def fresh(problem, block, *, options=OPTIONS):
    """A solver that knows only the serial schedule."""
    start = np.concatenate(([0.0], np.cumsum(block.shortest)[:-1]))
    modes = np.array([spread < one for one, spread in zip(block.one_core, block.spread, strict=True)])
    state = BlockState(0.0, sum(block.shortest), start, modes)
    return BlockSolver(block, state, options=options, deadline=time.monotonic() + 30.0)


@pytest.mark.parametrize(("stage", "exclusivity"), every(2, ["try_tree_search", "try_ordering_model"], Exclusivity))
def test_exact_stages_alone_equal_brute_force(stage, exclusivity):
    for problem, block in single_blocks(count=6, seeds=range(12), exclusivity=exclusivity):
        solver = fresh(problem, block)
        getattr(solver, stage)()
        optimum = brute_force_makespan(problem)
        assert solver.state.upper == pytest.approx(optimum, rel=1e-7)
        assert solver.state.lower == pytest.approx(optimum, rel=1e-7)


@pytest.mark.parametrize("exclusivity", every(2, Exclusivity))
def test_heuristics_never_beat_the_optimum_and_crash_bounds_never_exceed_it(exclusivity):
    for problem, block in single_blocks(count=6, seeds=range(30, 44), exclusivity=exclusivity):
        solver = fresh(problem, block)
        solver.try_multi_start()
        optimum = brute_force_makespan(problem)
        assert optimum * (1 - 1e-9) <= solver.state.upper <= serial_sum(problem) * (1 + 1e-9)
        assert solve_crash_bound(block, time_limit_s=10.0).lower <= optimum * (1 + 1e-7)


def hard_problem():
    return replace(random_problem(11, num_operators=44), cores=Cores(3, 3))


def test_time_limit_is_kept_outside_the_solver():
    began_s = time.process_time()
    result = solve_schedule(hard_problem(), options=ScheduleOptions(time_limit_s=0.5))
    assert time.process_time() - began_s < 5.0  # of this process, however busy the machine is
    verify_schedule(hard_problem(), result)
    assert result.status in (ScheduleStatus.TIME_LIMIT, ScheduleStatus.OPTIMAL)


def test_same_problem_same_schedule():
    problem = random_problem(4, num_operators=10)
    assert solve_schedule(problem) == solve_schedule(problem)


def test_cache_returns_the_same_answer_in_any_unit():
    problem = random_problem(110, num_operators=9, exclusivity=Exclusivity.TYPE)
    structure = compile_structure(problem.core_types, problem.edges)
    cache = ScheduleCache()

    def solve(factor, num_tc):
        return solve_compiled(
            structure,
            factor * np.array(problem.one_core_s),
            factor * np.array(problem.spread_s),
            cores=problem.cores._replace(tc=num_tc),
            exclusivity=problem.exclusivity,
            cache=cache,
        )

    first, second = solve(1.0, 64), solve(2.0, 128)
    assert second.makespan_s == pytest.approx(2 * first.makespan_s, rel=1e-9)
    if len(cache):
        assert cache.num_hits > 0
    verify_schedule(replace(problem, cores=problem.cores._replace(tc=64)), first)


def test_cache_is_bounded():
    cache = ScheduleCache(max_entries=2)
    for _, block in single_blocks(count=6, seeds=range(12), exclusivity=Exclusivity.CHIP):
        cache.store(block, BlockState(1.0, 1.0, np.zeros(len(block)), np.zeros(len(block), dtype=bool)))
    assert len(cache) == 2


def test_cache_holds_nothing_cut_short():
    _, block = next(single_blocks(count=6, seeds=range(12), exclusivity=Exclusivity.CHIP))
    cache = ScheduleCache()
    cache.store(block, BlockState(0.5, 1.0, np.zeros(6), np.zeros(6, dtype=bool), is_timed_out=True))
    assert len(cache) == 0


def test_ctrl_c_stops_the_solver_and_is_raised():
    """An interrupt during HiGHS ends the solve soon, as KeyboardInterrupt, not as a crash."""
    problem = hard_problem()
    (block,) = [block for block in blocks_of(problem) if len(block) > 10]
    model = build_ordering_model(
        block, serial_sum(problem), groups=[group for group in GROUPS.values() if group.role is GroupRole.DEFINING]
    )
    solver = HighsSolver(model)
    timer = threading.Timer(0.5, _thread.interrupt_main)
    began_s = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        solver.solve(time_limit_s=60.0)
    timer.join()
    assert time.process_time() - began_s < 10.0


def ladder(rungs):
    """A block like a backward pass: a chain on tensor cores, and beside every link of it two operators that nobody
    waits for but the end."""
    count = 3 * rungs + 1
    edges = [(3 * k, 3 * k + 3) for k in range(rungs - 1)]
    edges += [(3 * k, 3 * k + side) for k in range(rungs) for side in (1, 2)]
    edges += [(3 * k + side, count - 1) for k in range(rungs) for side in (1, 2)]
    rng = np.random.default_rng(rungs)
    one_core = rng.uniform(4.0, 12.0, count)
    spread = one_core / rng.uniform(4.0, 12.0, count)
    types = tuple(CoreType.TC if k % 3 < 2 else CoreType.VC for k in range(count))
    return ScheduleProblem(types, tuple(one_core.tolist()), tuple(spread.tolist()), tuple(edges), Cores(48, 48))


def test_relaxed_modes_attain_the_bound_of_the_best_vector():
    (block,) = [block for block in blocks_of(ladder(10)) if len(block) > 2]
    share = relaxed_spread(block)
    alone = share @ np.array(block.spread)
    unspread = (1.0 - share) * np.array(block.one_core)
    assert ((share > 1e-6) & (share < 1.0 - 1e-6)).any()
    work = max(
        unspread[np.array(block.block.masks) & bit > 0].sum() / cores
        for bit, cores in zip((1, 2), (48, 48), strict=True)
    )
    longest = max(paths_behind(block, unspread).max(), work)
    assert alone + longest == pytest.approx(dual_bound(block, best_dual(block)), rel=1e-9)


def test_wide_blocks_of_many_cores_are_walked_from_relaxed_modes(monkeypatch):
    """From a list schedule, which spreads nearly all operators, walks end at longer schedules of Inception's end."""
    scenario = make_scenario(str(INCEPTION), devices=8, global_batch=256, micro_batch=16, tensor_parallel=1, pipeline=1)
    objective = Objective(scenario)
    chip = objective.accelerator(DesignPoint(32, 64, 64, 128, 64, 64 * MEBI, 96 * GIBI, 1, hbm_stacks=6))
    estimates, compiled = objective.estimate(chip, 1), objective.compiled(0, 1)
    phases = [phase for layer in compiled.options[0].phases for phase in layer]
    (wide, *_) = [phase for phase in phases if max(map(len, phase.structure.blocks)) == 96]
    latencies = [each[0, wide.columns] for each in (estimates.one_core_s, estimates.spread_s)]

    def seconds(scale):
        # A hair more time, so that what was solved is not looked up.
        longer = [each * scale for each in latencies]
        return solve_compiled(wide.structure, *longer, cores=Cores(32, 64), options=ScheduleOptions(mip_nodes=200))

    with_them = seconds(1.0)
    monkeypatch.setattr(BlockSolver, "_search_from_relaxed", lambda *_, **__: None)
    without = seconds(1.0 + 1e-9)
    assert with_them.makespan_s < 0.99 * without.makespan_s
    # Within 1 % of its bound a schedule is left as it is.
    assert with_them.gap < 0.01 < 0.02 < without.gap
