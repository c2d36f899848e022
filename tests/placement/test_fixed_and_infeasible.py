"""Given placements, and what is said when nothing fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import random_problem

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement, solve_placement
from phaze_opt.placement.verify import verify_placement


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_optimum_evaluates_to_itself(seed: int) -> None:
    problem = random_problem(seed)
    best = solve_placement(problem)
    if best.status is PlacementStatus.INFEASIBLE:
        return
    given_again = evaluate_placement(
        problem,
        tensor_parallel=best.tensor_parallel,
        data_parallel=best.data_parallel,
        cuts=[stage.first for stage in best.stages[1:]],
    )
    assert given_again == replace(best, status=PlacementStatus.FEASIBLE)
    verify_placement(problem, given_again)


def test_given_placement_that_does_not_fit_names_its_stage() -> None:
    problem = replace(random_problem(5, num_layers=4, num_devices=4), memory_bytes=1e8)
    result = evaluate_placement(problem, tensor_parallel=1, data_parallel=1, cuts=[2])
    assert result.status is PlacementStatus.INFEASIBLE
    assert result.shortfall is not None
    assert "the stage of layers" in result.shortfall.reason
    assert result.shortfall.needed_bytes > 1e8


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tensor_parallel": 3}, "not offered"),
        ({"cuts": [2, 2]}, "must rise"),
        ({"cuts": [4]}, "must rise"),
        ({"data_parallel": 5}, "devices"),
        ({"data_parallel": 0}, "devices"),
    ],
)
def test_impossible_given_placement_is_refused(change: dict, says: str) -> None:
    problem = random_problem(5, num_layers=4, num_devices=4)
    arguments = {"tensor_parallel": 1, "data_parallel": 1, "cuts": [2], **change}
    with pytest.raises(InputError, match=says):
        evaluate_placement(problem, **arguments)


def test_costs_must_be_finite_and_not_negative() -> None:
    problem = random_problem(5, num_layers=4, num_devices=4)
    for value in (np.nan, np.inf, -1.0):
        times = problem.options[0].forward_s.copy()
        times[2] = value
        broken = replace(problem, options=(replace(problem.options[0], forward_s=times),))
        with pytest.raises(InputError, match="layer 2 at tensor-parallel degree 1: forward_s"):
            solve_placement(broken)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), policy=st.sampled_from(RecomputePolicy))
def test_needed_bytes_are_exactly_what_is_missing(seed: int, policy: RecomputePolicy) -> None:
    """With the bytes the shortfall asks for it fits; with a byte less it does not."""
    problem = replace(random_problem(seed, recompute=policy), memory_bytes=1e6)
    result = solve_placement(problem)
    assert result.shortfall is not None
    if result.shortfall.needed_bytes == 0.0:
        return
    needed = result.shortfall.needed_bytes
    enough = solve_placement(replace(problem, memory_bytes=needed))
    assert enough.status is PlacementStatus.OPTIMAL
    assert solve_placement(replace(problem, memory_bytes=needed - 1)).status is PlacementStatus.INFEASIBLE


def _explained(problem: PlacementProblem) -> str:
    shortfall = solve_placement(problem).shortfall
    assert shortfall is not None
    return shortfall.reason


def _with_scaled_activations(problem: PlacementProblem, factor: float) -> PlacementProblem:
    options = tuple(
        replace(
            option,
            stash_bytes=option.stash_bytes * factor,
            input_bytes=option.input_bytes * factor,
            working_set_bytes=option.working_set_bytes * factor,
        )
        for option in problem.options
    )
    return replace(problem, options=options)


def test_remedies_work_when_followed() -> None:
    """Every remedy that is named makes the problem feasible."""
    seen = set()
    for seed in range(200):
        problem = random_problem(seed, num_layers=4, recompute=list(RecomputePolicy)[seed % 3])
        problem = replace(problem, memory_bytes=1.2e9, micro_batch=4, global_batch=64)
        result = solve_placement(problem)
        if result.shortfall is None:
            continue
        reason = result.shortfall.reason
        if "recompute auto" in reason:
            seen.add("recompute")
            eased = replace(problem, recompute=RecomputePolicy.AUTO)
            assert solve_placement(eased).status is PlacementStatus.OPTIMAL
        if "micro-batch 2" in reason:
            seen.add("micro-batch")
            eased = replace(_with_scaled_activations(problem, 0.5), micro_batch=2)
            assert solve_placement(eased).status is PlacementStatus.OPTIMAL
        if "devices instead of" in reason:
            seen.add("devices")
            num_devices = int(reason.split(" devices instead of")[0].split()[-1])
            eased = replace(problem, cluster=Cluster(num_devices, problem.cluster.network))
            assert solve_placement(eased).status is PlacementStatus.OPTIMAL
            short = replace(problem, cluster=Cluster(num_devices - 1, problem.cluster.network))
            assert solve_placement(short).status is PlacementStatus.INFEASIBLE
    assert seen == {"recompute", "micro-batch", "devices"}


def test_a_single_layer_too_large_is_named() -> None:
    problem = random_problem(7, num_layers=4, num_devices=13)
    options = tuple(
        replace(option, state_bytes=np.where(np.arange(4) == 2, 5e10, option.state_bytes)) for option in problem.options
    )
    result = solve_placement(replace(problem, options=options))
    assert result.shortfall is not None
    assert result.shortfall.layer == 2
    assert "layer 2 does not fit" in result.shortfall.reason


def test_degree_larger_than_the_cluster() -> None:
    problem = random_problem(9, num_layers=3, num_devices=2)
    problem = replace(problem, options=(replace(problem.options[0], tensor_parallel=4),))
    assert "exceeds the 2 devices" in _explained(problem)
