"""The choices of a placement (t, S, d) and what the network charges for each (semantics 5 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from phaze_opt.estimate.collectives import (
    AffineCost,
    collective_coefficients,
    group_dimensions,
    transfer_coefficients,
)
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster, Network


@dataclass(frozen=True, slots=True)
class Replicas:
    """A data degree d: micro-batches m = ceil(global batch / (micro-batch d)), and its gradient all-reduce."""

    data_parallel: int
    num_micro_batches: int
    sync: AffineCost


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A tensor degree and a number of stages.

    Attributes:
        degree: t.
        num_stages: S.
        boundaries: transfer before the s-th stage from the end, s = 1 .. S - 1.
        replicas: data degrees that t S d <= devices leaves and that no other one is at least as good as.
        min_micro_batches: the least m of any.
    """

    degree: int
    num_stages: int
    boundaries: tuple[AffineCost, ...]
    replicas: tuple[Replicas, ...]
    min_micro_batches: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples of a batch and of a micro-batch."""

    global_batch: int
    micro_batch: int

    def num_micro_batches(self, data_parallel: int) -> int:
        """Micro-batches a replica."""
        return ceil(self.global_batch / (self.micro_batch * data_parallel))


def sync_cost(network: Network, *, data_parallel: int, stride: int) -> AffineCost:
    """Gradient all-reduce over ``data_parallel`` devices that are ``stride`` = t S apart."""
    group = group_dimensions(network, size=data_parallel, stride=stride, is_aligned=True)
    return collective_coefficients(CollectiveKind.ALL_REDUCE, group)


def boundary_cost(network: Network, *, degree: int, from_end: int) -> AffineCost:
    """Transfer into the ``from_end``-th stage from the end."""
    return transfer_coefficients(network, position=from_end * degree)


@lru_cache(maxsize=256)
def list_pipelines(cluster: Cluster, degree: int, num_layers: int, batch: Batch) -> tuple[Pipeline, ...]:
    """Every number of stages that the devices and the chain admit at one tensor degree."""
    return tuple(
        _pipeline(cluster, degree, num_stages, batch)
        for num_stages in range(1, min(num_layers, cluster.num_devices // degree) + 1)
    )


def _pipeline(cluster: Cluster, degree: int, num_stages: int, batch: Batch) -> Pipeline:
    """One number of stages."""
    network, stride = cluster.network, degree * num_stages
    replicas = [
        Replicas(size, batch.num_micro_batches(size), sync_cost(network, data_parallel=size, stride=stride))
        for size in range(1, cluster.num_devices // stride + 1)
    ]
    return Pipeline(
        degree=degree,
        num_stages=num_stages,
        boundaries=tuple(boundary_cost(network, degree=degree, from_end=s) for s in range(1, num_stages)),
        replicas=_undominated(replicas),
        min_micro_batches=min(choice.num_micro_batches for choice in replicas),
    )


def _undominated(replicas: Sequence[Replicas]) -> tuple[Replicas, ...]:
    """Those that no other is at least as good as in m, latency and s/byte; of equal ones the first."""
    kept: list[Replicas] = []
    order = sorted(replicas, key=lambda r: (r.num_micro_batches, r.sync.latency_s, r.sync.s_per_byte))
    for one in order:
        if not any(
            other.sync.latency_s <= one.sync.latency_s and other.sync.s_per_byte <= one.sync.s_per_byte
            for other in kept
        ):
            kept.append(one)
    return tuple(kept)
