"""Native placement: conformance, brute force by Hypothesis, the example of semantics 5."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import solve_placement, solve_placements
from phaze_opt.placement.verify import verify_placement
from phaze_opt.testing.placers import Placer, PlacerConformance, brute_force_batch_time, random_problem


class TestSolvePlacement(PlacerConformance):
    @pytest.fixture
    def placer(self) -> Placer:
        return solve_placement


class TestSolvePlacements(PlacerConformance):
    @pytest.fixture
    def placer(self) -> Placer:
        return lambda problem: solve_placements([problem, problem])[1]


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
