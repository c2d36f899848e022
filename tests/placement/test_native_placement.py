"""Native placement: conformance, brute force by Hypothesis, the example of semantics 5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import brute_force_batch_time, random_problem, two_level_cluster

from phaze_opt.errors import VerificationError
from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import solve_placement
from phaze_opt.placement.verify import verify_placement


def test_verifies() -> None:
    """Layers once and contiguous, devices and memory within budget, every figure recomputed independently."""
    for seed in range(25):
        problem = random_problem(seed)
        verify_placement(problem, solve_placement(problem))


def test_infeasible_says_why() -> None:
    """An infeasible problem yields a shortfall with a layer, sizes and a remedy."""
    problem = replace(random_problem(1, num_layers=4), memory_bytes=1e6)
    shortfall = solve_placement(problem).shortfall
    assert shortfall is not None
    assert 0 <= shortfall.layer < 4
    assert shortfall.needed_bytes > shortfall.available_bytes == 1e6
    assert len(shortfall.reason) > 20


def _richer(problem: PlacementProblem) -> Iterator[PlacementProblem]:
    """More memory, more devices (they may stay unused), and faster links."""
    num_devices = problem.cluster.num_devices
    yield replace(problem, memory_bytes=problem.memory_bytes * 1.5)
    yield replace(problem, cluster=Cluster(num_devices + 3, problem.cluster.network))
    yield replace(problem, cluster=two_level_cluster(num_devices, speed=2.0))


def test_more_memory_devices_or_bandwidth_is_never_worse() -> None:
    for seed in range(25):
        problem = random_problem(seed)
        poorer = solve_placement(problem)
        if poorer.status is not PlacementStatus.INFEASIBLE:
            for richer in map(solve_placement, _richer(problem)):
                assert richer.status is not PlacementStatus.INFEASIBLE
                assert richer.batch_time_s <= poorer.batch_time_s * (1 + 1e-9)


def test_is_deterministic_and_leaves_its_input_alone() -> None:
    """Same problem, same result; arrays untouched."""
    problem = random_problem(3)
    before = [option.forward_s.copy() for option in problem.options]
    assert solve_placement(problem) == solve_placement(problem)
    assert all((old == option.forward_s).all() for old, option in zip(before, problem.options, strict=True))


def test_verifier_refuses_a_wrong_time() -> None:
    """The check bites: a batch time off by a millionth is refused."""
    problem = replace(random_problem(3), memory_bytes=1e12)
    result = solve_placement(problem)
    with pytest.raises(VerificationError):
        verify_placement(problem, replace(result, batch_time_s=result.batch_time_s * (1 + 1e-6)))


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 10**9),
    num_layers=st.integers(1, 6),
    num_devices=st.integers(1, 16),
    policy=st.sampled_from(RecomputePolicy),
)
def test_equals_brute_force(seed: int, num_layers: int, num_devices: int, policy: RecomputePolicy) -> None:
    problem = random_problem(seed, num_layers=num_layers, num_devices=num_devices, recompute=policy)
    expected, result = brute_force_batch_time(problem), solve_placement(problem)
    verify_placement(problem, result)
    if expected is None:
        assert result.status is PlacementStatus.INFEASIBLE
    else:
        assert result.batch_time_s == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9), scale=st.floats(1.0, 30.0))
def test_equals_brute_force_where_synchronisation_dominates(seed: int, scale: float) -> None:
    problem = random_problem(seed)
    options = tuple(
        replace(option, gradient_bytes=option.gradient_bytes * scale, update_s=option.update_s * scale)
        for option in problem.options
    )
    problem = replace(problem, options=options, memory_bytes=8e9)
    expected, result = brute_force_batch_time(problem), solve_placement(problem)
    verify_placement(problem, result)
    assert (expected is None) == (result.status is PlacementStatus.INFEASIBLE)
    if expected is not None:
        assert result.batch_time_s == pytest.approx(expected, rel=1e-9)


def _example(update_s: list[float], forward_s: list[float]) -> PlacementProblem:
    zeros = np.zeros(len(forward_s))
    costs = LayerCosts(1, np.array(forward_s), zeros, np.array(update_s), *[zeros] * 6)
    network = Network("free", (NetworkDimension(Topology.SWITCH, 2, 1e300, 0.0),))
    return PlacementProblem((costs,), Cluster(2, network), 1.0, 2, 1)


def test_example_of_semantics_5() -> None:
    """Layers (time, parameters) (1, 10), (1, 10), (1.9, 1), m = 2, two stages, cost 1 a parameter."""
    result = solve_placement(_example([10.0, 10.0, 1.0], [1.0, 1.0, 1.9]))
    assert [(stage.first, stage.last) for stage in result.stages] == [(0, 0), (1, 2)]
    assert result.batch_time_s == pytest.approx(19.7)


def test_many_distinct_synchronisations() -> None:
    """Opposed times and updates: the Pareto front is long and the optimum in its middle."""
    forward = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    problem = _example([60.0, 50.0, 40.0, 30.0, 20.0, 10.0], forward)
    assert solve_placement(problem).batch_time_s == pytest.approx(brute_force_batch_time(problem))
