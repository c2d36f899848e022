"""Small placement problems, and their optima by brute force."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from phaze_opt.hardware.network import Cluster, Network, NetworkDimension, Topology
from phaze_opt.placement.problem import (
    LayerCosts,
    PlacementProblem,
    PlacementResult,
    PlacementStatus,
    RecomputePolicy,
    Stage,
)
from phaze_opt.placement.verify import recompute_batch_time, stage_memory_bytes
from phaze_opt.record.arrays import Floats


def brute_force_batch_time(problem: PlacementProblem) -> float | None:
    """Smallest `batch_time` over every tensor degree, data degree and set of cuts, s; None if nothing fits.

    Exponential in the layers: for chains of at most about 7.
    """
    return min((recompute_batch_time(problem, candidate) for candidate in _fitting_placements(problem)), default=None)


def _fitting_placements(problem: PlacementProblem) -> Iterator[PlacementResult]:
    """Every placement within devices and memory, each stage recomputed as the policy says."""
    num_layers, num_devices = problem.options[0].num_layers, problem.cluster.num_devices
    for option in problem.options:
        for num_stages in range(1, min(num_layers, num_devices // option.tensor_parallel) + 1):
            for data_parallel in range(1, num_devices // (option.tensor_parallel * num_stages) + 1):
                for cuts in combinations(range(1, num_layers), num_stages - 1):
                    candidate = _placement(problem, option.tensor_parallel, data_parallel, (0, *cuts, num_layers))
                    if candidate is not None:
                        yield candidate


def _placement(
    problem: PlacementProblem, tensor_parallel: int, data_parallel: int, bounds: tuple[int, ...]
) -> PlacementResult | None:
    """One placement with recomputation decided, without its times; None if a stage does not fit."""
    num_micro = math.ceil(problem.global_batch / (problem.micro_batch * data_parallel))
    stages = tuple(Stage(a, b - 1, False, 0.0, 0.0, 0.0) for a, b in zip(bounds, bounds[1:], strict=False))
    draft = PlacementResult(PlacementStatus.FEASIBLE, 0.0, tensor_parallel, data_parallel, num_micro, stages)
    decided = []
    for number, stage in enumerate(stages):
        stash, recomputed = stage_memory_bytes(problem, draft, number)
        is_recomputed = problem.recompute is RecomputePolicy.ALWAYS or (
            problem.recompute is RecomputePolicy.AUTO and stash > problem.memory_bytes
        )
        if (recomputed if is_recomputed else stash) > problem.memory_bytes:
            return None
        decided.append(replace(stage, is_recomputed=is_recomputed))
    return replace(draft, stages=tuple(decided))


def two_level_cluster(num_devices: int, *, island: int = 4, speed: float = 1.0) -> Cluster:
    """Islands of ``island`` devices at 450 GB/s and 1 us, joined at 50 GB/s and 5 us; ``speed`` scales bandwidths."""
    inner = NetworkDimension(Topology.SWITCH, island, speed * 450e9, 1e-6)
    outer = NetworkDimension(Topology.SWITCH, max(1, num_devices // island), speed * 50e9, 5e-6)
    return Cluster(num_devices, Network("two-level", (inner, outer)))


def random_costs(num_layers: int, tensor_parallel: int, rng: np.random.Generator) -> LayerCosts:
    """A chain of random costs in which every term of time and memory matters."""

    def draw(low: float, high: float) -> Floats:
        return rng.uniform(low, high, num_layers)

    def size(low: float, high: float) -> Floats:
        return np.floor(draw(low, high))

    t = tensor_parallel
    forward_s, backward_s, update_s = draw(1e-3, 4e-3), draw(2e-3, 6e-3), draw(1e-4, 2e-3)
    return LayerCosts(
        tensor_parallel=t,
        forward_s=forward_s / t**0.8,
        backward_s=backward_s / t**0.8,
        update_s=update_s / t,
        state_bytes=size(1e8, 1e9) // t,
        gradient_bytes=size(1e6, 4e8) // t,
        stash_bytes=size(1e8, 1e9) // t,
        input_bytes=size(1e6, 1e8),
        working_set_bytes=size(1e8, 1e9) // t,
        output_bytes=size(1e5, 1e8),
        tied_state_bytes=float(rng.integers(0, 10**8)) / t,
        tied_gradient_bytes=float(rng.integers(0, 10**6)) / t,
        tied_update_s=float(update_s[-1]) / 2 / t,
    )


def random_problem(
    seed: int,
    *,
    num_layers: int | None = None,
    num_devices: int | None = None,
    recompute: RecomputePolicy = RecomputePolicy.AUTO,
) -> PlacementProblem:
    """A small random problem; about a quarter are infeasible, and most of the rest recompute somewhere."""
    rng = np.random.default_rng(seed)
    layers = num_layers or int(rng.integers(1, 7))
    degrees = [1, 2, 4][: int(rng.integers(1, 4))]
    return PlacementProblem(
        options=tuple(random_costs(layers, degree, rng) for degree in degrees),
        cluster=two_level_cluster(num_devices or int(rng.integers(1, 14))),
        memory_bytes=float(rng.integers(10**9, 6 * 10**9)),
        global_batch=int(rng.integers(1, 40)),
        micro_batch=int(rng.integers(1, 4)),
        recompute=recompute,
    )
