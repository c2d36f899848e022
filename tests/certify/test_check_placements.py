"""The checker's placements against the prover's and against brute force: two ways to one number."""

import numpy as np
import pytest
from forger_chains import random_chain
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import brute_force_batch_time

from phaze_opt.certify.certificate import BOUND_SLACK, SolvedModel, SolvedStage
from phaze_opt.certify.check.solutions import placed_batch_time
from phaze_opt.objective.bounds import bound_batch_times, build_relaxation
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.placement.solve import solve_placement

SEEDS = st.integers(0, 2**32 - 1)


def prover_relaxed(drawn):
    problem, batch = drawn.problem, drawn.batch
    relaxation = build_relaxation(
        problem.options,
        drawn.chain,
        cluster=problem.cluster,
        parts=-(-batch.global_batch // batch.micro_batch),
        recompute=problem.recompute,
    )
    times = np.stack(drawn.times, axis=1)
    return bound_batch_times(relaxation, times, np.full(len(times), problem.memory_bytes))


@given(seed=SEEDS)
@settings(max_examples=60, deadline=None)
def test_relaxed_placement_is_the_number_that_provers_state(seed):
    drawn = random_chain(seed, is_usual=True, num_rows=5)
    assert drawn.relaxed() * (1 - BOUND_SLACK) == pytest.approx(prover_relaxed(drawn), rel=1e-11)


@given(seed=SEEDS, is_usual=st.booleans())
@settings(max_examples=60, deadline=None)
def test_relaxed_placement_never_exceeds_the_exact_one(seed, is_usual):
    drawn = random_chain(seed, is_usual=is_usual)
    assert drawn.relaxed()[0] <= drawn.exact() * (1 + 1e-12)


@given(seed=SEEDS, is_usual=st.booleans())
@settings(max_examples=60, deadline=None)
def test_exact_placement_equals_the_solver(seed, is_usual):
    drawn = random_chain(seed, is_usual=is_usual)
    placed = solve_placement(drawn.problem)
    assert drawn.exact() == pytest.approx(
        placed.batch_time_s if placed.status is PlacementStatus.OPTIMAL else np.inf, rel=1e-12
    )


@given(seed=SEEDS, is_usual=st.booleans())
@settings(max_examples=40, deadline=None)
def test_exact_placement_equals_brute_force(seed, is_usual):
    drawn = random_chain(seed, is_usual=is_usual, max_layers=6)
    cheapest = brute_force_batch_time(drawn.problem)
    assert drawn.exact() == pytest.approx(np.inf if cheapest is None else cheapest, rel=1e-12)


@given(seed=SEEDS, is_usual=st.booleans())
@settings(max_examples=100, deadline=None)
def test_a_placement_found_by_the_solver_takes_what_it_says(seed, is_usual):
    drawn = random_chain(seed, is_usual=is_usual)
    placed = solve_placement(drawn.problem)
    if placed.status is not PlacementStatus.OPTIMAL:
        return
    solved = SolvedModel(
        tensor_parallel=placed.tensor_parallel,
        data_parallel=placed.data_parallel,
        stages=tuple(SolvedStage(stage.first, stage.last, stage.is_recomputed) for stage in placed.stages),
        schedules=(),
    )
    option = [sharded.degree for sharded in drawn.options].index(placed.tensor_parallel)
    seconds = placed_batch_time(
        drawn.options[option],
        solved,
        drawn.times[option][0],
        cluster=drawn.problem.cluster,
        batch=drawn.batch,
        memory=drawn.memory,
    )
    assert seconds == pytest.approx(placed.batch_time_s, rel=1e-12)


def test_chains_of_every_outcome_are_drawn():
    """Otherwise the properties above hold of nothing."""
    drawn = [random_chain(seed, is_usual=True) for seed in range(60)]
    exact = np.array([chain.exact() for chain in drawn])
    assert 10 < np.isfinite(exact).sum() < 55
    stages = {len(solve_placement(chain.problem).stages) for chain in drawn}
    assert len(stages) > 3
