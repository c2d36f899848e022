"""Native placement: brute force by Hypothesis, what never hurts, the example of semantics 5, long chains."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import brute_force_batch_time, random_costs, random_problem, two_level_cluster

from phaze_opt.errors import VerificationError
from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementStatus, RecomputePolicy
from phaze_opt.placement.solve import evaluate_placement, solve_placement
from phaze_opt.placement.verify import verify_placement

seeds = st.integers(0, 10**9)


def test_infeasible_says_why() -> None:
    """An infeasible problem yields a shortfall with a layer, sizes and a remedy."""
    problem = replace(random_problem(1, num_layers=4), memory_bytes=1e6)
    shortfall = solve_placement(problem).shortfall
    assert 0 <= shortfall.layer < 4
    assert shortfall.needed_bytes > shortfall.available_bytes == 1e6
    assert len(shortfall.reason) > 20


def _time(problem: PlacementProblem) -> float:
    result = solve_placement(problem)
    return np.inf if result.status is PlacementStatus.INFEASIBLE else result.batch_time_s


@settings(max_examples=240, deadline=None)
@given(
    seed=seeds,
    num_layers=st.integers(1, 12),
    memory=st.floats(1.0, 4.0),
    devices=st.integers(1, 40),
    speed=st.floats(1.0, 20.0),
)
def test_more_memory_devices_or_bandwidth_is_never_worse(seed, num_layers, memory, devices, speed) -> None:
    """More devices may stay unused."""
    problem = random_problem(seed, num_layers=num_layers)
    cluster, poorer_s = problem.cluster, _time(problem)
    for richer in (
        {"memory_bytes": problem.memory_bytes * memory},
        {"cluster": Cluster(cluster.num_devices + devices, cluster.network)},
        {"cluster": two_level_cluster(cluster.num_devices, speed=speed)},
    ):
        assert _time(replace(problem, **richer)) <= poorer_s * (1 + 1e-12)


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


def assert_brute_force(problem: PlacementProblem) -> None:
    expected, result = brute_force_batch_time(problem), solve_placement(problem)
    verify_placement(problem, result)
    assert (expected is None) == (result.status is PlacementStatus.INFEASIBLE)
    if expected is not None:
        assert result.batch_time_s == pytest.approx(expected, rel=1e-9)


@settings(max_examples=300, deadline=None)
@given(
    seed=seeds, num_layers=st.integers(1, 6), num_devices=st.integers(1, 16), policy=st.sampled_from(RecomputePolicy)
)
def test_equals_brute_force(seed: int, num_layers: int, num_devices: int, policy: RecomputePolicy) -> None:
    assert_brute_force(random_problem(seed, num_layers=num_layers, num_devices=num_devices, recompute=policy))


@settings(max_examples=60, deadline=None)
@given(seed=seeds, scale=st.floats(1.0, 30.0))
def test_equals_brute_force_where_synchronisation_dominates(seed: int, scale: float) -> None:
    problem = random_problem(seed)
    options = tuple(
        replace(option, gradient_bytes=option.gradient_bytes * scale, update_s=option.update_s * scale)
        for option in problem.options
    )
    assert_brute_force(replace(problem, options=options, memory_bytes=8e9))


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


@settings(max_examples=80, deadline=None)
@given(seed=seeds, num_layers=st.integers(1, 40), num_devices=st.integers(1, 200))
def test_long_chains_verify(seed: int, num_layers: int, num_devices: int) -> None:
    """Layers once and contiguous, everything recomputed independently, beyond the reach of brute force."""
    problem = random_problem(seed, num_layers=num_layers, num_devices=num_devices)
    verify_placement(problem, solve_placement(problem))


def test_larger_replica_count_can_win() -> None:
    """At m = 2 sixteen replicas all-reduce faster than nine: uneven groups (docs/decisions/0050)."""
    zeros = np.zeros(1)
    costs = LayerCosts(1, np.array([1.0]), zeros, zeros, zeros, np.array([1e9]), *[zeros] * 4)
    problem = PlacementProblem((costs,), two_level_cluster(17, island=8), 1e9, 18, 1)
    result = solve_placement(problem)
    assert (result.num_micro_batches, result.data_parallel) == (2, 16)
    fewest = evaluate_placement(problem, tensor_parallel=1, data_parallel=9, cuts=[])
    assert fewest.num_micro_batches == 2
    assert fewest.batch_time_s > result.batch_time_s + 0.025


def test_98_layers_on_1024_devices() -> None:
    rng = np.random.default_rng(0)
    options = tuple(random_costs(98, degree, rng) for degree in (1, 2, 4, 8))
    problem = PlacementProblem(options, two_level_cluster(1024, island=8), 64e9, 4096, 1)
    verify_placement(problem, solve_placement(problem))
