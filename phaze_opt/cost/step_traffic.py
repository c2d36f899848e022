"""What a step sends, at the networks' rates: inside layers, between stages, between replicas.

Of fitted constants only the networks' measured curves enter; what the software reaches of them is `price_step`'s.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD, CompiledStep
from phaze_opt.estimate.collective_curves import ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import (
    collective_coefficients,
    collective_s,
    collective_seconds,
    exchange_level,
    group_dimensions,
)
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.torus_mapping import is_torus, map_torus
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder


def group_members(step: CompiledStep, group: CollectiveGroup, network: Network) -> tuple[NetworkDimension, ...]:
    """Where the devices of a group lie: tensor groups innermost, then the context shards of one replica."""
    plan = step.plan
    if group is CollectiveGroup.TENSOR:
        return group_dimensions(network, size=plan.tensor, stride=1)
    if group is CollectiveGroup.CONTEXT:
        return group_dimensions(network, size=plan.context, stride=plan.tensor)
    return replica_group(step, network, size=plan.expert)


def replica_group(step: CompiledStep, network: Network, *, size: int, apart: int = 1) -> tuple[NetworkDimension, ...]:
    """``size`` devices, ``apart`` from one another, of those that hold the same stage: context shards, then replicas.

    With pipeline stages next to the context shards (Llama 3's order: tensor, context, pipeline, data) the replicas lie
    a whole pipeline apart, the shards of one replica side by side.
    """
    plan = step.plan
    if step.stack.order is RankOrder.DATA_INNER or plan.pipeline == 1:
        return group_dimensions(network, size=size, stride=plan.tensor * apart, is_aligned=True)
    shards = math.gcd(size, plan.context // apart) if plan.context % apart == 0 else 1
    replica = plan.tensor * plan.context * plan.pipeline * max(1, apart // plan.context)
    inside = group_dimensions(network, size=shards, stride=plan.tensor * apart, is_aligned=True)
    across = group_dimensions(network, size=size // shards, stride=replica, is_aligned=True)
    return tuple(replace(each, size=each.size * other.size) for each, other in zip(inside, across, strict=True))


Floats = NDArray[np.float64]
Number = float | NDArray[Any]
"""Of one stage, or of many that differ in their blocks alone."""
Counts = tuple[int, int | Floats, int]
"""Embeddings, blocks and heads of a stage; of many stages at once where the blocks are an array, 1 or more in each."""
Units = tuple[tuple[int | Floats, float], ...]
"""How many pieces of how many parameters."""


@dataclass(frozen=True, slots=True)
class HeldParameters:
    """Parameters that one device of a stage holds (under ZeRO 3: would hold whole), and who else does.

    Attributes:
        units: pieces that ZeRO 3 gathers and scatters: blocks, and all else at once (FSDP's root).
        shards: devices that the sharded state of one copy is spread over; 1 without ZeRO.
        group: those devices, or without ZeRO all that hold the same parameters.
        copies: with hybrid sharding the devices that hold the same shard, one of each copy; else a group of one.
    """

    units: Units
    shards: int
    group: tuple[NetworkDimension, ...]
    copies: tuple[NetworkDimension, ...]

    @property
    def parameters(self) -> Number:
        """Their number."""
        return sum(count * size for count, size in self.units)

    @property
    def is_copied(self) -> bool:
        """Whether there is more than one copy of the sharded state."""
        return math.prod(dimension.size for dimension in self.copies) > 1


def held_parameters(step: CompiledStep, counts: Counts, network: Network) -> list[HeldParameters]:
    """Of a stage: experts, on their own replicas, and all else, on data parallel replicas and context shards.

    A tied head on the embedding's stage counts once. Parameters that only one device holds are left out.
    """
    plan = step.plan
    dense, experts = _stage_units(step, counts)
    found = []
    for units, replicas, sharded, apart in (
        (dense, plan.data * plan.context, plan.shards, 1),
        (experts, plan.expert_replicas, plan.expert_shards, plan.expert),
    ):
        shards = sharded if plan.zero else 1
        if replicas == 1 or not units:
            continue
        size = shards if plan.zero else replicas
        group = replica_group(step, network, size=size, apart=apart)
        copies = replica_group(step, network, size=replicas // size, apart=apart * size)
        found.append(HeldParameters(units, shards, group, copies))
    return found


def _stage_units(step: CompiledStep, counts: Counts) -> tuple[Units, Units]:
    """Units of a stage that data-parallel replicas share, and those of experts that have replicas of their own."""
    (embeddings, blocks, heads), graphs = counts, [layer.graph for layer in step.layers]
    ends = embeddings * graphs[EMBEDDING].num_parameters + heads * graphs[HEAD].num_parameters
    ends -= graphs[HEAD].num_tied_parameters if embeddings and heads else 0
    experts = graphs[BLOCK].num_expert_parameters if step.plan.expert > 1 else 0
    dense = graphs[BLOCK].num_parameters - experts
    pieces = ((blocks, float(dense)), (1, float(ends))), ((blocks, float(experts)),)
    shared, apart = (tuple((count, size) for count, size in each if np.any(count) and size) for each in pieces)
    return shared, apart


def stage_width(step: CompiledStep) -> int:
    """Ranks from one pipeline stage to the next, as the software orders them."""
    plan = step.plan
    return plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)


def stage_counts(step: CompiledStep, number: int) -> tuple[int, int, int]:
    """Embeddings, blocks and heads of a stage."""
    return int(number == 0), step.blocks[number], int(number == len(step.blocks) - 1)


def plan_network(network: Network, plan: ParallelPlan) -> Network:
    """A torus as the rings that a plan's tensor groups and shards of state are laid on; any other network as it is."""
    if not is_torus(network):
        return network
    return map_torus(network, tensor=plan.tensor, shards=plan.shards, slices=plan.data * plan.context // plan.shards)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives or transfers at the networks' specified rates; the arrays share one shape.

    Attributes:
        count: how many.
        outer_count: those of them that leave the innermost dimension.
        latency_s: the networks' own latencies.
        inner_s: time of the bytes on the innermost dimension.
        outer_s: the same on all others, one after the other.
        ring_inner_s, ring_outer_s: time of rings through measured levels on the innermost level, and on the slowest of
            the others; the slower of the two counts.
    """

    count: Floats
    outer_count: Floats
    latency_s: Floats
    inner_s: Floats
    outer_s: Floats
    ring_inner_s: Floats
    ring_outer_s: Floats


Cost = tuple[Number, ...]
"""Fields of `Traffic` for one or some collectives; of many stages at once where their `Counts` are."""
NO_COST: Cost = (0.0,) * len(fields(Traffic))


def _cost(kind: CollectiveKind, payload_bytes: Number, dimensions: Sequence[NetworkDimension]) -> Cost:
    """A collective's latency (and what a measured curve adds), and its time on the innermost and outer dimensions."""
    moving_s = collective_coefficients(kind, dimensions).s_per_byte * payload_bytes
    whole_s: Number
    if isinstance(payload_bytes, np.ndarray):
        whole_s = collective_seconds(kind, payload_bytes, dimensions)
    else:
        whole_s = collective_s(kind, payload_bytes, dimensions)
    fixed_s = whole_s - moving_s
    if kind is not CollectiveKind.ALL_TO_ALL and runs_as_one_ring(dimensions):
        inner_s, outer_s = _ring_levels_s(moving_s, dimensions)
        return (1.0, 1.0 * (outer_s > 0.0), fixed_s, 0.0, 0.0, inner_s, outer_s)
    # Where chunks overlap, all levels together may have a higher rate than the innermost one alone.
    all_levels, innermost = (collective_coefficients(kind, each).s_per_byte for each in (dimensions, dimensions[:1]))
    inner_s = min(all_levels, innermost) * payload_bytes
    return (1.0, 1.0 * (moving_s > inner_s), fixed_s, inner_s, moving_s - inner_s, 0.0, 0.0)


_known_cost = lru_cache(maxsize=4096)(_cost)
"""Of collectives inside layers, which many plans share."""


def _ring_levels_s(moving_s: Number, dimensions: Sequence[NetworkDimension]) -> tuple[Number, Number]:
    """Time on the innermost level and on the slowest other one of a ring that takes ``moving_s`` on its slowest."""
    ring = ring_pass(dimensions)
    levels = [(per_byte, moving_s * per_byte / ring.s_per_byte) for per_byte, _ in ring.levels]
    inside = int(dimensions[0].size > 1)
    slowest = max(levels[inside:], key=lambda level: level[0], default=(0.0, 0.0))
    return sum(seconds for _, seconds in levels[:inside]), slowest[1]


def _add(costs: Sequence[Cost], factor: Number = 1.0) -> Cost:
    return tuple(factor * sum(column) for column in zip(NO_COST, *costs, strict=True))


def collective_costs(step: CompiledStep, network: Network, *, is_overlapped: bool) -> list[list[Cost]]:
    """Of each layer and pass (`RUN`): collectives that run beside the compute, or those that do not."""
    groups = {group: group_members(step, group, network) for group in CollectiveGroup}

    def total(collectives: Sequence[Collective], *, is_hiding: bool) -> Cost:
        beside = [each.is_overlapped or (is_hiding and _is_input_reduction(each)) for each in collectives]
        chosen = [each for each, is_beside in zip(collectives, beside, strict=True) if is_beside is is_overlapped]
        return _add([_known_cost(each.kind, each.payload_bytes, groups[each.group]) for each in chosen])

    costs = []
    for layer in step.layers:
        forward = total(layer.forward.collectives, is_hiding=False)
        backward = total(layer.backward.collectives, is_hiding=step.stack.hides_input_reductions)
        kept = total(layer.forward.kept_collectives, is_hiding=False)
        costs.append([forward, backward, _add([forward, _add([kept], -1.0)])])
    return costs


def _is_input_reduction(collective: Collective) -> bool:
    """Whether a collective of backward all-reduces input gradients; sequence shards gather there instead."""
    return collective.kind is CollectiveKind.ALL_REDUCE and collective.group is CollectiveGroup.TENSOR


def transfer_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """Boundary transfers of each stage and micro-batch: in front and behind, once for each model chunk.

    An interleaved pipeline goes round: the last stage hands all chunks but its last back to the first. With
    scatter-gather every device of the tensor group sends its share, and the group gathers it on arrival.
    """
    plan, num_stages = step.plan, len(step.blocks)
    width = stage_width(step)
    payload = step.layers[BLOCK].graph.output_bytes
    is_scattered = step.stack.has_scatter_gather and plan.tensor > 1 and not plan.is_sequence_parallel
    share = payload / plan.tensor if is_scattered else payload
    group = group_dimensions(network, size=plan.tensor, stride=1)
    gather = _cost(CollectiveKind.ALL_GATHER, payload, group) if is_scattered else NO_COST
    inner = [_add([_boundary_cost(network, edge, width, share), gather]) for edge in range(1, num_stages)]
    # The way back crosses the farthest of the boundaries that lie between the two ends.
    back = max(inner, key=lambda cost: (cost[1], sum(cost[2:])), default=NO_COST)
    round_trip = [_add([back], (plan.interleave - 1) / plan.interleave)]
    edges = [*round_trip, *inner, *round_trip]
    return [_add(edges[number : number + 2], plan.interleave) for number in range(num_stages)]


def _boundary_cost(network: Network, edge: int, width: int, payload_bytes: float) -> Cost:
    level = exchange_level(network, first=(edge - 1) * width, width=width)
    dimension = network.dimensions[level]
    seconds = payload_bytes / dimension.bandwidth_bytes_per_s
    is_inner = level == 0 and len(network.dimensions) > 1
    inner_s, outer_s = (seconds, 0.0) if is_inner else (0.0, seconds)
    return (1.0, float(not is_inner), dimension.latency_s, inner_s, outer_s, 0.0, 0.0)


def parameter_cost(step: CompiledStep, counts: Counts, network: Network) -> Cost:
    """ZeRO 3: parameters of a stage gathered forward and backward, gradients scattered, every micro-batch."""
    scatter = _sharded_cost(step, counts, network, CollectiveKind.REDUCE_SCATTER, step.stack.gradient_bytes)
    gather = gather_cost(step, counts, network)
    return _add([gather, gather, scatter])


def gather_cost(step: CompiledStep, counts: Counts, network: Network) -> Cost:
    """ZeRO 3: parameters of a stage gathered once, as a forward pass does."""
    return _sharded_cost(step, counts, network, CollectiveKind.ALL_GATHER, step.training.optimizer.weight_bytes)


def _sharded_cost(
    step: CompiledStep, counts: Counts, network: Network, kind: CollectiveKind, element_bytes: int
) -> Cost:
    """One pass over a stage's own parameters, unit by unit; nothing unless they are sharded.

    A flat ring enters and leaves every node by one adapter: it runs at one device's share of the outer network, and
    takes a hop a device for every unit.
    """
    if step.plan.zero != 3:
        return NO_COST
    parts = []
    for held in held_parameters(step, counts, network):
        group = _flat(held.group, network) if step.stack.is_parameter_ring_flat else held.group
        parts += [_add([_cost(kind, size * element_bytes, group)], count) for count, size in held.units]
    return _add(parts)


def _flat(group: Sequence[NetworkDimension], network: Network) -> tuple[NetworkDimension, ...]:
    """The group as one ring over the outermost network, unless it stays inside the innermost one."""
    size = math.prod(dimension.size for dimension in group)
    if size == group[0].size:
        return tuple(group)
    inner, outer = network.dimensions[0], network.dimensions[-1]
    ring = NetworkDimension(Topology.RING, size, outer.bandwidth_bytes_per_s, outer.latency_s)
    return replace(inner, size=1), ring


def reduction_cost(step: CompiledStep, counts: Counts, network: Network) -> Cost:
    """ZeRO 2: gradients scattered every micro-batch, as only a share of their sum is kept (as ZeRO 3's are)."""
    if step.plan.zero != 2:
        return NO_COST
    return _add([_scatter_cost(step, held) for held in held_parameters(step, counts, network)])


def gradient_cost(step: CompiledStep, counts: Counts, network: Network) -> Cost:
    """Of the last micro-batch: gradients all-reduced, or (ZeRO 1, 2) scattered and parameters gathered.

    With hybrid sharding each shard's gradients are all-reduced over the copies of it as well, under ZeRO 3 too. A tied
    table is added up over its two stages.
    """
    parts = []
    for held in held_parameters(step, counts, network):
        gradient_bytes = held.parameters * step.stack.gradient_bytes
        if step.plan.zero == 0:
            parts.append(_cost(CollectiveKind.ALL_REDUCE, gradient_bytes, held.group))
            continue
        if step.plan.zero < 3:
            weight_bytes = held.parameters * step.training.optimizer.weight_bytes
            parts.append(_scatter_cost(step, held))
            parts.append(_cost(CollectiveKind.ALL_GATHER, weight_bytes, held.group))
        if held.is_copied:
            parts.append(_cost(CollectiveKind.ALL_REDUCE, gradient_bytes / held.shards, held.copies))
    if counts[0] or counts[2]:
        parts.append(_tied_cost(step, network))
    return _add(parts)


def _scatter_cost(step: CompiledStep, held: HeldParameters) -> Cost:
    return _cost(CollectiveKind.REDUCE_SCATTER, held.parameters * step.stack.gradient_bytes, held.group)


def _tied_cost(step: CompiledStep, network: Network) -> Cost:
    """Gradients of a tied table, added up between the first and the last stage: of a device's shard if sharded."""
    shards = step.plan.shards if step.plan.zero >= 2 else 1
    payload = step.layers[HEAD].graph.num_tied_parameters * step.stack.gradient_bytes / shards
    if len(step.blocks) == 1 or not payload:
        return NO_COST
    width = stage_width(step)
    level = exchange_level(network, first=0, width=width, distance=width * (len(step.blocks) - 1))
    pair = [replace(dimension, size=1 + (index == level)) for index, dimension in enumerate(network.dimensions)]
    return _cost(CollectiveKind.ALL_REDUCE, payload, pair)
