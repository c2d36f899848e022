"""The choices of a placement (t, S, d): what the network charges for each, and the room of stages (semantics 5, 6)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.check.problem_data import Sharded
from phaze_opt.estimate.collectives import AffineCost, collective_coefficients, group_dimensions, transfer_coefficients
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Cluster, Network
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.record.arrays import Ints


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
class Memory:
    """What a stage must fit in, and when it recomputes."""

    capacity_bytes: float
    policy: RecomputePolicy


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
    # Sorted by m, then latency: only one that comes before can be as good in all three.
    kept: list[Replicas] = []
    order = sorted(replicas, key=lambda r: (r.num_micro_batches, r.sync.latency_s, r.sync.s_per_byte))
    for one in order:
        if not any(
            other.sync.latency_s <= one.sync.latency_s and other.sync.s_per_byte <= one.sync.s_per_byte
            for other in kept
        ):
            kept.append(one)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Roles:
    """Main kind of a chain (the most numerous layer, n of them), and its ends where these are of other kinds.

    ``counts`` is how often each distinct layer stands in the chain, shape (num_distinct_layers,).
    """

    counts: Ints
    main: int
    num_main: int
    first: tuple[int, ...]
    last: tuple[int, ...]


def roles_of(sharded: Sharded) -> Roles:
    """The roles of the distinct layers of a chain."""
    counts = np.bincount(sharded.chain, minlength=len(sharded.sizes.state))
    main = int(np.argmax(counts))
    first, last = int(sharded.chain[0]), int(sharded.chain[-1])
    return Roles(
        counts=counts,
        main=main,
        num_main=int(counts[main]),
        first=(first,) if first != main else (),
        last=(last,) if last != main and len(sharded.chain) > 1 else (),
    )


@dataclass(frozen=True, slots=True)
class StageRoom:
    """Stages of one pipeline that are alike.

    Attributes:
        num_stages: how many.
        ends: distinct layers that they hold beside main layers.
        transfer_s: of their boundaries, both sides, s.
        stash: main layers that fit without recomputation; -1 where not even the ends fit.
        recomputed: main layers that fit with it.
    """

    num_stages: int
    ends: tuple[int, ...]
    transfer_s: float
    stash: int
    recomputed: int


def stage_rooms(sharded: Sharded, pipeline: Pipeline, memory: Memory) -> tuple[StageRoom, ...]:
    """Rooms of all stages of a pipeline, like ones joined; empty if the chain cannot be held."""
    roles, count = roles_of(sharded), pipeline.num_stages
    # Whatever layer a stage ends with, its boundary carries at least the smallest output.
    output = float(sharded.sizes.output[sharded.chain[:-1]].min()) if len(sharded.chain) > 1 else 0.0
    boundary_s = [0.0, *(cost.seconds(output) for cost in pipeline.boundaries), 0.0]
    capacities: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}
    kinds: Counter[tuple[tuple[int, ...], float, int, int]] = Counter()
    for from_end in range(1, count + 1):
        ends = (*(roles.first if from_end == count else ()), *(roles.last if from_end == 1 else ()))
        held = (ends, min(from_end, pipeline.min_micro_batches))
        if held not in capacities:
            capacities[held] = _capacities(sharded, roles, *held, memory=memory, count=count)
        kinds[ends, boundary_s[from_end - 1] + boundary_s[from_end], *capacities[held]] += 1
    rooms = tuple(StageRoom(number, *kind) for kind, number in kinds.items())
    largest = [max(room.stash, room.recomputed) for room in rooms]
    total = sum(room.num_stages * most for room, most in zip(rooms, largest, strict=True) if most >= 0)
    has_ends = all(most >= 0 for room, most in zip(rooms, largest, strict=True) if room.ends)
    return rooms if total >= roles.num_main and has_ends else ()


def _capacities(
    sharded: Sharded, roles: Roles, ends: tuple[int, ...], in_flight: int, *, memory: Memory, count: int
) -> tuple[int, int]:
    """Main layers that fit beside the ends without and with recomputation, at most n.

    -1 where the ends do not fit or the policy forbids it. ``in_flight`` micro-batches keep their activations, at least.
    """
    sizes, chosen = sharded.sizes, list(ends)
    # Sums of floats in another order than the solver's: what fits by rounding alone must be allowed.
    room = memory.capacity_bytes * (1.0 + BOUND_SLACK)
    main = np.arange(roles.num_main + 1)
    state = sizes.state[chosen].sum() + main * sizes.state[roles.main]
    if count == 1:
        state = state - sharded.tied_state
    stash = state + in_flight * (sizes.stash[chosen].sum() + main * sizes.stash[roles.main])
    inputs = state + in_flight * (sizes.inputs[chosen].sum() + main * sizes.inputs[roles.main])
    working = np.full(len(main), max(sizes.working_set[chosen], default=0.0))
    working[1:] = np.maximum(working[1:], sizes.working_set[roles.main])
    return (
        -1 if memory.policy is RecomputePolicy.ALWAYS else int(np.sum(stash <= room)) - 1,
        -1 if memory.policy is RecomputePolicy.NEVER else int(np.sum(inputs + working <= room)) - 1,
    )
