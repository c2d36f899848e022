"""More memory, devices or bandwidth never hurt; layers are covered once; where more replicas win at equal m; speed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kits.placers import random_costs, random_problem, two_level_cluster

from phaze_opt.hardware.network import Cluster
from phaze_opt.placement.problem import LayerCosts, PlacementProblem, PlacementResult, PlacementStatus
from phaze_opt.placement.solve import evaluate_placement, solve_placement
from phaze_opt.placement.verify import verify_placement

seeds = st.integers(0, 10**9)


def _time(result: PlacementResult) -> float:
    return np.inf if result.status is PlacementStatus.INFEASIBLE else result.batch_time_s


@settings(max_examples=80, deadline=None)
@given(seed=seeds, factor=st.floats(1.0, 4.0), num_layers=st.integers(1, 12))
def test_more_memory_never_worse(seed: int, factor: float, num_layers: int) -> None:
    problem = random_problem(seed, num_layers=num_layers)
    richer = replace(problem, memory_bytes=problem.memory_bytes * factor)
    assert _time(solve_placement(richer)) <= _time(solve_placement(problem)) * (1 + 1e-12)


@settings(max_examples=80, deadline=None)
@given(seed=seeds, extra=st.integers(1, 40), num_layers=st.integers(1, 12))
def test_more_devices_never_worse(seed: int, extra: int, num_layers: int) -> None:
    problem = random_problem(seed, num_layers=num_layers)
    richer = replace(problem, cluster=Cluster(problem.cluster.num_devices + extra, problem.cluster.network))
    assert _time(solve_placement(richer)) <= _time(solve_placement(problem)) * (1 + 1e-12)


@settings(max_examples=80, deadline=None)
@given(seed=seeds, speed=st.floats(1.0, 20.0), num_layers=st.integers(1, 12))
def test_more_bandwidth_never_worse(seed: int, speed: float, num_layers: int) -> None:
    problem = random_problem(seed, num_layers=num_layers)
    richer = replace(problem, cluster=two_level_cluster(problem.cluster.num_devices, speed=speed))
    assert _time(solve_placement(richer)) <= _time(solve_placement(problem)) * (1 + 1e-12)


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
