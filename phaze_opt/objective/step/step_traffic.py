"""What a step sends, at the networks' specified rates: inside layers, between stages, between replicas.

Nothing here depends on fitted constants.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collectives import (
    collective_coefficients,
    collective_s,
    group_dimensions,
    transfer_coefficients,
)
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.workload.stack import RankOrder

Floats = NDArray[np.float64]
NUM_LAYERS = 3
BLOCK, HEAD = 1, 2
"""Places of the block and of the head among the layers."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives or transfers at the networks' specified rates; the arrays share one shape.

    Attributes:
        count: how many.
        outer_count: those of them that leave the innermost dimension.
        latency_s: the networks' own latencies.
        inner_s: time of the bytes on the innermost dimension.
        outer_s: the same on all others.
    """

    count: Floats
    outer_count: Floats
    latency_s: Floats
    inner_s: Floats
    outer_s: Floats


Cost = tuple[float, float, float, float, float]
"""Fields of `Traffic` for one or some collectives."""
NO_COST: Cost = (0.0, 0.0, 0.0, 0.0, 0.0)


def _cost(kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]) -> Cost:
    """A collective's latency (and what a measured curve adds), and its time on the innermost and outer dimensions."""
    moving_s = collective_coefficients(kind, dimensions).s_per_byte * payload_bytes
    inner_s = min(moving_s, collective_coefficients(kind, dimensions[:1]).s_per_byte * payload_bytes)
    fixed_s = collective_s(kind, payload_bytes, dimensions) - moving_s
    return (1.0, float(moving_s > inner_s), fixed_s, inner_s, moving_s - inner_s)


def _add(costs: Sequence[Cost], factor: float = 1.0) -> Cost:
    count, leaving, latency, inner, outer = (factor * sum(column) for column in zip(NO_COST, *costs, strict=True))
    return (count, leaving, latency, inner, outer)


def collective_costs(step: CompiledStep, network: Network, *, is_overlapped: bool) -> list[list[Cost]]:
    """Of each layer, forward and backward: collectives that run beside the compute, or those that do not."""
    groups = {group: group_members(step, group, network) for group in CollectiveGroup}

    def total(collectives: Sequence[Collective], *, is_hiding: bool) -> Cost:
        beside = [each.is_overlapped or (is_hiding and _is_input_reduction(each)) for each in collectives]
        chosen = [each for each, is_beside in zip(collectives, beside, strict=True) if is_beside is is_overlapped]
        return _add([_cost(each.kind, each.payload_bytes, groups[each.group]) for each in chosen])

    is_hiding = step.stack.hides_input_reductions
    return [
        [total(layer.forward.collectives, is_hiding=False), total(layer.backward.collectives, is_hiding=is_hiding)]
        for layer in step.layers
    ]


def _is_input_reduction(collective: Collective) -> bool:
    """Whether a collective of backward all-reduces input gradients; sequence shards gather there instead."""
    return collective.kind is CollectiveKind.ALL_REDUCE and collective.group is CollectiveGroup.TENSOR


def group_members(step: CompiledStep, group: CollectiveGroup, network: Network) -> tuple[NetworkDimension, ...]:
    """Where the devices of a group lie: tensor groups innermost, then the context shards of one replica."""
    plan = step.plan
    if group is CollectiveGroup.TENSOR:
        return group_dimensions(network, size=plan.tensor, stride=1)
    if group is CollectiveGroup.CONTEXT:
        return group_dimensions(network, size=plan.context, stride=plan.tensor)
    is_inside = plan.expert <= plan.context or step.stack.order is RankOrder.DATA_INNER
    stride = plan.tensor * (1 if is_inside else plan.pipeline)
    return group_dimensions(network, size=plan.expert, stride=stride, is_aligned=True)


def transfer_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """Boundary transfers of each stage and micro-batch: in front and behind, once for each model chunk.

    With scatter-gather every device of the tensor group sends its share, and the group gathers it on arrival.
    """
    plan = step.plan
    width = plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)
    payload = step.layers[BLOCK].graph.output_bytes
    is_scattered = step.stack.has_scatter_gather and plan.tensor > 1 and not plan.is_sequence_parallel
    share = payload / plan.tensor if is_scattered else payload
    group = group_dimensions(network, size=plan.tensor, stride=1)
    gather = _cost(CollectiveKind.ALL_GATHER, payload, group) if is_scattered else NO_COST
    costs = []
    for number in range(len(step.blocks)):
        edges = [edge for edge in (number, number + 1) if 0 < edge < len(step.blocks)]
        each = [_boundary_cost(network, edge * width, share) for edge in edges]
        costs.append(_add([*each, *[gather] * len(edges)], plan.interleave))
    return costs


def _boundary_cost(network: Network, position: int, payload_bytes: float) -> Cost:
    cost = transfer_coefficients(network, position=position)
    seconds = cost.s_per_byte * payload_bytes
    is_inner = len(network.dimensions) > 1 and position % network.dimensions[0].size != 0
    return (1.0, 0.0, cost.latency_s, seconds, 0.0) if is_inner else (1.0, 1.0, cost.latency_s, 0.0, seconds)


@dataclass(frozen=True, slots=True)
class HeldParameters:
    """Parameters that one device of a stage holds, and the devices that hold the same ones."""

    parameters: float
    group: tuple[NetworkDimension, ...]


def held_parameters(step: CompiledStep, number: int, network: Network) -> list[HeldParameters]:
    """Of one stage: experts, on their own replicas, and all else, on data parallel replicas and context shards.

    With hybrid sharding (ZeRO 3 over some of the replicas) the group are those that share one copy of the state. A tied
    head on the embedding's stage counts once. Parameters that only one device holds are left out.
    """
    plan = step.plan
    dense, experts = _stage_parameters(step, number)
    stride = plan.tensor * (plan.pipeline if step.stack.order is RankOrder.PIPELINE_INNER else 1)
    found = []
    for parameters, size, apart in (
        (dense, plan.shards if plan.zero == 3 else plan.data * plan.context, stride),
        (experts, plan.expert_shards if plan.zero == 3 else plan.expert_replicas, stride * plan.expert),
    ):
        if parameters and size > 1:
            found.append(
                HeldParameters(float(parameters), group_dimensions(network, size=size, stride=apart, is_aligned=True))
            )
    return found


def _stage_parameters(step: CompiledStep, number: int) -> tuple[int, int]:
    """Parameters of a stage that data-parallel replicas share, and those of experts that have replicas of their own."""
    counts, graphs = stage_counts(step, number), [layer.graph for layer in step.layers]
    total = sum(c * graph.num_parameters for c, graph in zip(counts, graphs, strict=True))
    if counts[0] and counts[2]:
        total -= graphs[2].num_tied_parameters
    if step.plan.expert == 1:
        return total, 0
    experts = sum(c * graph.num_expert_parameters for c, graph in zip(counts, graphs, strict=True))
    return total - experts, experts


def stage_counts(step: CompiledStep, number: int) -> tuple[int, int, int]:
    """Embeddings, blocks and heads of a stage."""
    return int(number == 0), step.blocks[number], int(number == len(step.blocks) - 1)


def parameter_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """ZeRO 3: parameters gathered forward and backward, gradients scattered, layer by layer, every micro-batch.

    A flat ring enters and leaves every node by one adapter: it runs at one device's share of the outer network, and
    takes a hop a device for every layer.
    """
    if step.plan.zero != 3:
        return [NO_COST] * len(step.blocks)
    costs = []
    for number in range(len(step.blocks)):
        parts = []
        for held in held_parameters(step, number, network):
            group = _flat(held.group, network) if step.stack.is_parameter_ring_flat else held.group
            weight_bytes = held.parameters * step.training.optimizer.weight_bytes
            gather = _cost(CollectiveKind.ALL_GATHER, weight_bytes, group)
            gradient_bytes = held.parameters * step.stack.gradient_bytes
            parts += [gather, gather, _cost(CollectiveKind.REDUCE_SCATTER, gradient_bytes, group)]
            if step.stack.is_parameter_ring_flat:
                hops_s = (step.blocks[number] - 1) * sum(part[2] for part in parts[-3:])
                parts.append((0.0, 0.0, hops_s, 0.0, 0.0))
        costs.append(_add(parts))
    return costs


def _flat(group: Sequence[NetworkDimension], network: Network) -> tuple[NetworkDimension, ...]:
    """The group as one ring over the outermost network, unless it stays inside the innermost one."""
    size = math.prod(dimension.size for dimension in group)
    if size == group[0].size:
        return tuple(group)
    inner, outer = network.dimensions[0], network.dimensions[-1]
    ring = NetworkDimension(Topology.RING, size, outer.bandwidth_bytes_per_s, outer.latency_s)
    return replace(inner, size=1), ring


def gradient_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """Gradients all-reduced, or (ZeRO 1, 2) scattered and parameters gathered; a tied table over its two stages."""
    if step.plan.zero == 3:
        return [_hybrid_cost(step, network, number) for number in range(len(step.blocks))]
    costs = []
    for number in range(len(step.blocks)):
        parts = []
        for held in held_parameters(step, number, network):
            gradient_bytes = held.parameters * step.stack.gradient_bytes
            if step.plan.zero == 0:
                parts.append(_cost(CollectiveKind.ALL_REDUCE, gradient_bytes, held.group))
                continue
            weight_bytes = held.parameters * step.training.optimizer.weight_bytes
            parts.append(_cost(CollectiveKind.REDUCE_SCATTER, gradient_bytes, held.group))
            parts.append(_cost(CollectiveKind.ALL_GATHER, weight_bytes, held.group))
        if number in (0, len(step.blocks) - 1):
            parts.append(_tied_cost(step, network))
        costs.append(_add(parts))
    return costs


def _hybrid_cost(step: CompiledStep, network: Network, number: int) -> Cost:
    """Hybrid sharding: each shard's gradients all-reduced once a step over the groups that hold a copy of it."""
    plan = step.plan
    dense, experts = _stage_parameters(step, number)
    parts = []
    for parameters, shards, replicas, apart in (
        (dense, plan.shards, plan.data * plan.context, plan.tensor),
        (experts, plan.expert_shards, plan.expert_replicas, plan.tensor * plan.expert),
    ):
        copies = replicas // shards
        if parameters and copies > 1:
            group = group_dimensions(network, size=copies, stride=apart * shards, is_aligned=True)
            parts.append(_cost(CollectiveKind.ALL_REDUCE, parameters * step.stack.gradient_bytes / shards, group))
    return _add(parts)


def _tied_cost(step: CompiledStep, network: Network) -> Cost:
    """Gradients of a tied table, added up between the first and the last stage."""
    payload = step.layers[2].graph.num_tied_parameters * step.stack.gradient_bytes
    if len(step.blocks) == 1 or not payload:
        return NO_COST
    plan = step.plan
    width = plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)
    group = group_dimensions(network, size=2, stride=width * (len(step.blocks) - 1), is_aligned=True)
    return _cost(CollectiveKind.ALL_REDUCE, payload, group)
