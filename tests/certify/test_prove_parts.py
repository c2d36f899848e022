"""Parts of a proof by themselves: rows of multipliers, entries to files and back, workers, ranks."""

import json

import numpy as np
import pytest
from doubler import Doubler
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_problems import small_problem, small_scenario, small_space

from phaze_opt.certify import tasks
from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.exact_solution import NUM_EFFORTS, with_effort
from phaze_opt.certify.point_proof import PointOutcome, PointRefiner, RefineGoal
from phaze_opt.certify.point_table import MultiplierTable, flatness_of
from phaze_opt.certify.pool_entries import certified_entry, dual_vector, proof_tree_of, tree_entry, vector_entry
from phaze_opt.certify.proof import prove_problem
from phaze_opt.certify.tasks import Workers
from phaze_opt.errors import SolverError
from phaze_opt.objective.bounds import bound_points
from phaze_opt.objective.evaluate import Objective
from phaze_opt.record.plain_data import from_plain, to_plain
from phaze_opt.schedule.block_data import BlockProblem
from phaze_opt.schedule.problem import Cores, Exclusivity
from phaze_opt.schedule.proof_search import grow_tree

ROWS = arrays.arrays(np.int32, st.tuples(st.integers(1, 30), st.just(3)), elements=st.integers(0, 3))


@given(ROWS)
def test_rows_of_multipliers_are_kept_once_and_found_again(rows):
    table = MultiplierTable((1, 2), 3)
    numbers = np.concatenate([table.add(2, rows[:10]), table.add(2, rows[10:])])
    assert (table.rows(2)[numbers] == rows).all()
    assert len(table.rows(2)) == len({tuple(row) for row in rows.tolist()})
    assert table.rows(1).shape == (0, 3)
    compacted, renumbered = table.compacted(2, numbers[3:])
    assert (compacted[renumbered] == rows[3:]).all()
    firsts = [renumbered.tolist().index(number) for number in range(len(compacted))]
    assert firsts == sorted(firsts)


def test_a_table_without_slots_has_one_empty_row():
    table = MultiplierTable((1,), 0)
    assert table.add(1, np.zeros((4, 0), dtype=np.int32)).tolist() == [0, 0, 0, 0]
    assert table.rows(1).shape == (1, 0)


def test_columns_are_the_points_of_the_space():
    space = small_space(num_tc=(1, 2, 8), tc_depth=(16, 32), hbm_bytes=(1 << 34, 1 << 35), micro_batch=(1, 2, 8))
    assert list(space.columns(np.arange(space.size, dtype=np.int64))) == list(space.points())
    assert small_space().varying_axes() == ("num_tc", "num_vc", "tc_width", "micro_batch")


def test_bounds_by_shared_pools_hold_as_those_of_searches_do():
    problem = small_problem()
    objective = Objective(problem.scenario, constants=problem.constants)
    bounder = SpaceBounder(objective, problem.space)
    indices = np.arange(problem.space.size, dtype=np.int64)
    rows, exact = bounder.bound(indices), bounder.bound_exactly(indices)
    searched = bound_points(objective, list(problem.space.points()))
    assert rows.rate_upper == pytest.approx([bound.throughput_samples_per_s for bound in searched], rel=1e-12)
    assert (exact.rate_upper <= rows.rate_upper * (1.0 + 1e-12)).all()
    assert (exact.entries == rows.entries).all()


@pytest.fixture(scope="module")
def type_bounder():
    problem = small_problem(small_scenario(exclusivity=Exclusivity.TYPE), small_space(num_tc=(4,), num_vc=(2,)))
    return SpaceBounder(Objective(problem.scenario, constants=problem.constants), problem.space)


def test_entries_read_back_to_the_bit(type_bounder):
    count = 0
    for topology in range(len(type_bounder.topologies)):
        pool = type_bounder.pool(topology)
        for number in pool.wide_blocks:
            block = pool.structure.blocks[number]
            for vector in pool.entries(number):
                again = dual_vector(vector_entry(vector, block), block, pool.exclusivity)
                for name in ("spread_price", "one_core_price", "core_multipliers"):
                    assert (getattr(again, name) == getattr(vector, name)).all()
                assert certified_entry(again, block) == certified_entry(vector, block)
                count += 1
    assert count > 10


def test_trees_read_back_to_the_bit(type_bounder):
    topology, number = next(
        (t, n)
        for t in range(len(type_bounder.topologies))
        for n in type_bounder.pool(t).wide_blocks
        if len(type_bounder.pool(t).structure.blocks[n]) > 3
    )
    block = type_bounder.pool(topology).structure.blocks[number]
    rng = np.random.default_rng(1)
    one_core = rng.uniform(1.0, 3.0, len(block))
    problem = BlockProblem(
        block, tuple(one_core), tuple(one_core * rng.uniform(0.5, 1.2, len(block))), Cores(2, 2), Exclusivity.TYPE
    )
    tree = grow_tree(problem, target_s=100.0, max_nodes=40)
    entry = tree_entry(tree, block)
    again = proof_tree_of(entry, block, Exclusivity.TYPE)
    assert len(entry.nodes) > 10
    assert tree_entry(again, block) == entry
    latencies, cores = (np.array([problem.one_core]), np.array([problem.spread])), np.array([problem.cores])
    assert again.bounds(*latencies, cores) == tree.bounds(*latencies, cores)


def test_an_outcome_survives_the_journal(type_bounder):
    goal = RefineGoal(enough_rate=0.0, slack=1.05, effort=0)
    outcome = PointRefiner(type_bounder).refine(0, goal)
    assert outcome.solved is not None
    assert outcome.entries
    assert from_plain(PointOutcome, json.loads(json.dumps(to_plain(PointOutcome, outcome)))) == outcome


def test_a_point_is_ruled_out_without_being_solved(type_bounder):
    refiner = PointRefiner(type_bounder)
    attained = refiner.solve(0, effort=0).evaluation.throughput_samples_per_s
    goal = RefineGoal(enough_rate=attained * 2.0, slack=1.0, effort=0)
    assert refiner.refine(0, goal).solved is None


def test_efforts_only_ever_rise():
    scenario = small_scenario(schedule_gap=0.01, schedule_nodes=200)
    efforts = [with_effort(scenario, effort) for effort in range(NUM_EFFORTS)]
    assert efforts[0] == scenario
    assert [e.schedule_gap for e in efforts] == sorted((e.schedule_gap for e in efforts), reverse=True)
    assert [e.schedule_nodes for e in efforts] == sorted(e.schedule_nodes for e in efforts)
    assert with_effort(small_scenario(schedule_nodes=0), 1).schedule_nodes == 0


def test_flatness_counts_what_is_attained_and_what_bounds_allow():
    flat = flatness_of(100.0, [100.0, 99.95, 99.5, 90.0], np.array([100.0, 99.95, 99.96, 99.5, 96.0, 90.0, 0.0]))
    assert [(f.within, f.at_least, f.at_most) for f in flat] == [(0.001, 2, 3), (0.01, 3, 4), (0.05, 3, 5)]


def test_equal_values_share_a_rank():
    # Vector cores beyond what can be used change the area and nothing else.
    problem = small_problem(space=small_space(num_vc=(4096, 8192), micro_batch=(1,)))
    best = prove_problem(problem, tolerance=0.0, num_best=4).best
    assert [design.rank for design in best] == [1, 1, 3, 3]
    assert best[0].evaluation.area_mm2 < best[1].evaluation.area_mm2


@pytest.mark.parametrize("jobs", [1, 2])
def test_work_comes_back_in_order(jobs, monkeypatch):
    monkeypatch.setattr(tasks, "QUICK_S", 0.0)
    with Workers(Doubler, jobs=jobs, here=Doubler()) as workers:
        assert list(workers.map(range(5))) == [0, 2, 4, 6, 8]
        assert list(workers.map([7])) == [14]


def test_a_worker_that_dies_is_one_sentence(monkeypatch):
    monkeypatch.setattr(tasks, "QUICK_S", 0.0)
    with Workers(Doubler, jobs=2, here=Doubler()) as workers, pytest.raises(SolverError, match="ended in the middle"):
        list(workers.map([1, "die", 3]))
