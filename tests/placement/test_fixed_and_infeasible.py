"""Given placements, and what is said when nothing fits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import random_problem

from phaze_opt.errors import InputError
from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import ACTIVATION_FIELDS, evaluate_placement, solve_placement
from phaze_opt.placement.verify import verify_placement


def fits(problem: PlacementProblem, **changes: object) -> bool:
    return solve_placement(replace(problem, **changes)).status is PlacementStatus.OPTIMAL


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
    if result.shortfall.needed_bytes == 0.0:
        return
    assert fits(problem, memory_bytes=result.shortfall.needed_bytes)
    assert not fits(problem, memory_bytes=result.shortfall.needed_bytes - 1)


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
            assert fits(problem, recompute=RecomputePolicy.AUTO)
        if "micro-batch 2" in reason:
            seen.add("micro-batch")
            halves = [{name: getattr(option, name) / 2 for name in ACTIVATION_FIELDS} for option in problem.options]
            options = tuple(replace(option, **half) for option, half in zip(problem.options, halves, strict=True))
            assert fits(problem, options=options, micro_batch=2)
        if "devices instead of" in reason:
            seen.add("devices")
            num_devices = int(reason.split(" devices instead of")[0].split()[-1])
            assert fits(problem, cluster=Cluster(num_devices, problem.cluster.network))
            assert not fits(problem, cluster=Cluster(num_devices - 1, problem.cluster.network))
    assert seen == {"recompute", "micro-batch", "devices"}


def test_a_single_layer_too_large_is_named() -> None:
    problem = random_problem(7, num_layers=4, num_devices=13)
    options = tuple(
        replace(option, state_bytes=np.where(np.arange(4) == 2, 5e10, option.state_bytes)) for option in problem.options
    )
    result = solve_placement(replace(problem, options=options))
    assert result.shortfall.layer == 2
    assert "layer 2 does not fit" in result.shortfall.reason


def test_degree_larger_than_the_cluster() -> None:
    problem = random_problem(9, num_layers=3, num_devices=2)
    problem = replace(problem, options=(replace(problem.options[0], tensor_parallel=4),))
    assert "exceeds the 2 devices" in solve_placement(problem).shortfall.reason
