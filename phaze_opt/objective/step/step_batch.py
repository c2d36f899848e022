"""Many compiled steps as arrays, for pricing all of them at once; nothing here depends on fitted constants.

Rows are steps. Layers are embedding, block and head; directions are forward and backward.
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
from phaze_opt.objective.step.compiled_step import CompiledLayer, CompiledStep
from phaze_opt.workload.plan import Recompute
from phaze_opt.workload.stack import RankOrder

Floats = NDArray[np.float64]
NUM_LAYERS = 3
BLOCK, HEAD = 1, 2


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


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Steps ready to be priced.

    Attributes:
        steps: the steps, in order.
        layers: embedding, blocks and head of every stage, shape (steps, stages, layers).
        num_micro_batches, interleave: shape (steps,).
        forwards: forward passes of each layer a micro-batch, 2 with full recomputation, shape (steps, layers).
        is_selective: whether attention runs again, shape (steps,), 0 or 1.
        launches: operators on cores, shape (steps, layers, directions).
        tensor: collectives inside the layers, shape (steps, layers, directions).
        beside: those that run beside the compute of their pass, same shape.
        waits: expected wait for the slowest host of a tensor group, in mean launch times: H(t) - 1, shape (steps,).
        transfers: boundary transfers of a micro-batch, shape (steps, stages).
        parameters: ZeRO 3 gathers and reductions of a micro-batch, shape (steps, stages).
        gradients: reduction of gradients and gather of parameters once a step, shape (steps, stages).
        islands: parts of the outermost switched network (nodes, slices) that the devices fill, shape (steps,).
        update_shards: parameters a device holds for each that it updates, shape (steps,).
        tied_share: share of the head's update that the embedding on the same stage does already, shape (steps,).
    """

    steps: tuple[CompiledStep, ...]
    layers: Floats
    num_micro_batches: Floats
    interleave: Floats
    forwards: Floats
    is_selective: Floats
    launches: Floats
    tensor: Traffic
    beside: Traffic
    waits: Floats
    transfers: Traffic
    parameters: Traffic
    gradients: Traffic
    update_bytes: Floats
    update_shards: Floats
    tied_share: Floats
    islands: Floats


Cost = tuple[float, float, float, float, float]
"""Fields of `Traffic` for one or some collectives."""
_NO_COST: Cost = (0.0, 0.0, 0.0, 0.0, 0.0)


def build_batch(steps: Sequence[CompiledStep], networks: Sequence[Network]) -> StepBatch:
    """Arrays of steps, each on its network."""
    num_stages = max(len(step.blocks) for step in steps)
    is_full = np.array([step.plan.recompute is Recompute.FULL for step in steps], float)
    forwards = np.ones((len(steps), NUM_LAYERS))
    forwards[:, BLOCK] += is_full
    both = list(zip(steps, networks, strict=True))
    return StepBatch(
        steps=tuple(steps),
        layers=np.array([_layer_counts(step, num_stages) for step in steps]),
        num_micro_batches=np.array([step.num_micro_batches for step in steps], float),
        interleave=np.array([step.plan.interleave for step in steps], float),
        forwards=forwards,
        is_selective=np.array([step.plan.recompute is Recompute.SELECTIVE for step in steps], float),
        launches=np.array([[_launches(layer) for layer in step.layers] for step in steps], float),
        tensor=_traffic([_collective_costs(step, network, is_overlapped=False) for step, network in both]),
        beside=_traffic([_collective_costs(step, network, is_overlapped=True) for step, network in both]),
        waits=np.array([sum(1.0 / rank for rank in range(2, step.plan.tensor + 1)) for step in steps], float),
        transfers=_traffic([_pad(_transfer_costs(step, network), num_stages) for step, network in both]),
        parameters=_traffic([_pad(_parameter_costs(step, network), num_stages) for step, network in both]),
        gradients=_traffic([_pad(_gradient_costs(step, network), num_stages) for step, network in both]),
        update_bytes=np.array([_update_bytes(step) for step in steps]),
        update_shards=np.array([_update_shards(step) for step in steps]),
        tied_share=np.array([_tied_share(step) for step in steps]),
        islands=np.array([_num_islands(step, network) for step, network in both], float),
    )


def _update_bytes(step: CompiledStep) -> float:
    """Bytes that the optimizer moves for a parameter of a block."""
    graph = step.layers[BLOCK].graph
    return sum(operator.hbm_bytes for operator in graph.update.operators) / max(1, graph.num_parameters)


def _num_islands(step: CompiledStep, network: Network) -> int:
    """Nodes or slices behind one switched network; 1 where there is no such level."""
    *inner, outermost = network.dimensions
    if not inner or outermost.topology is not Topology.SWITCH:
        return 1
    return math.ceil(step.plan.num_devices / math.prod(dimension.size for dimension in inner))


def _tied_share(step: CompiledStep) -> float:
    """The update is one pass over a layer's parameters, so a share of them takes that share of its time."""
    head = step.layers[2].graph
    return head.num_tied_parameters / head.num_parameters if len(step.blocks) == 1 and head.num_parameters else 0.0


def _layer_counts(step: CompiledStep, num_stages: int) -> Floats:
    counts = np.zeros((num_stages, NUM_LAYERS))
    counts[: len(step.blocks), BLOCK] = step.blocks
    counts[0, 0] = counts[len(step.blocks) - 1, 2] = 1.0
    return counts


def _launches(layer: CompiledLayer) -> list[int]:
    return [len(layer.forward.columns), len(layer.backward.columns)]


def _traffic(costs: Sequence[object]) -> Traffic:
    """Columns of nested lists of costs."""
    table = np.array(costs, float)
    return Traffic(*np.moveaxis(table, -1, 0))


def _pad(costs: list[Cost], num_stages: int) -> list[Cost]:
    return costs + [_NO_COST] * (num_stages - len(costs))


def _cost(kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]) -> Cost:
    """A collective's latency (and what a measured curve adds), and its time on the innermost and outer dimensions."""
    moving_s = collective_coefficients(kind, dimensions).s_per_byte * payload_bytes
    inner_s = min(moving_s, collective_coefficients(kind, dimensions[:1]).s_per_byte * payload_bytes)
    fixed_s = collective_s(kind, payload_bytes, dimensions) - moving_s
    return (1.0, float(moving_s > inner_s), fixed_s, inner_s, moving_s - inner_s)


def _add(costs: Sequence[Cost], factor: float = 1.0) -> Cost:
    count, leaving, latency, inner, outer = (factor * sum(column) for column in zip(_NO_COST, *costs, strict=True))
    return (count, leaving, latency, inner, outer)


def _collective_costs(step: CompiledStep, network: Network, *, is_overlapped: bool) -> list[list[Cost]]:
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


def _transfer_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """Boundary transfers of each stage and micro-batch: in front and behind, once for each model chunk.

    With scatter-gather every device of the tensor group sends its share, and the group gathers it on arrival.
    """
    plan = step.plan
    width = plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)
    payload = step.layers[BLOCK].graph.output_bytes
    is_scattered = step.stack.has_scatter_gather and plan.tensor > 1 and not plan.is_sequence_parallel
    share = payload / plan.tensor if is_scattered else payload
    group = group_dimensions(network, size=plan.tensor, stride=1)
    gather = _cost(CollectiveKind.ALL_GATHER, payload, group) if is_scattered else _NO_COST
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
    plan, counts = step.plan, _stage_counts(step, number)
    graphs = [layer.graph for layer in step.layers]
    experts = sum(c * graph.num_expert_parameters for c, graph in zip(counts, graphs, strict=True))
    dense = sum(c * graph.num_parameters for c, graph in zip(counts, graphs, strict=True)) - experts
    if counts[0] and counts[2]:
        dense -= graphs[2].num_tied_parameters
    stride = plan.tensor * (plan.pipeline if step.stack.order is RankOrder.PIPELINE_INNER else 1)
    if plan.expert == 1:
        dense, experts = dense + experts, 0
    found = []
    for parameters, size, apart in (
        (dense, plan.shards if plan.zero == 3 else plan.data * plan.context, stride),
        (experts, plan.expert_replicas, stride * plan.expert),
    ):
        if parameters and size > 1:
            found.append(
                HeldParameters(float(parameters), group_dimensions(network, size=size, stride=apart, is_aligned=True))
            )
    return found


def _stage_counts(step: CompiledStep, number: int) -> tuple[int, int, int]:
    """Embeddings, blocks and heads of a stage."""
    return int(number == 0), step.blocks[number], int(number == len(step.blocks) - 1)


def _update_shards(step: CompiledStep) -> float:
    """How many times fewer parameters of a block a device updates than it holds: experts have their own replicas."""
    plan, graph = step.plan, step.layers[BLOCK].graph
    if plan.zero == 0 or plan.expert == 1:
        return float(plan.shards if plan.zero else 1)
    dense = graph.num_parameters - graph.num_expert_parameters
    return graph.num_parameters / (dense / plan.shards + graph.num_expert_parameters / plan.expert_shards)


def _parameter_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """ZeRO 3: parameters gathered forward and backward, gradients scattered, layer by layer, every micro-batch.

    A flat ring enters and leaves every node by one adapter: it runs at one device's share of the outer network, and
    takes a hop a device for every layer.
    """
    if step.plan.zero != 3:
        return [_NO_COST] * len(step.blocks)
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


def _gradient_costs(step: CompiledStep, network: Network) -> list[Cost]:
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
    copies = plan.data * plan.context // plan.shards
    if copies == 1:
        return _NO_COST
    counts = _stage_counts(step, number)
    parameters = sum(c * layer.graph.num_parameters for c, layer in zip(counts, step.layers, strict=True))
    if counts[0] and counts[2]:
        parameters -= step.layers[2].graph.num_tied_parameters
    group = group_dimensions(network, size=copies, stride=plan.tensor * plan.shards, is_aligned=True)
    return _cost(CollectiveKind.ALL_REDUCE, parameters * step.stack.gradient_bytes / plan.shards, group)


def _tied_cost(step: CompiledStep, network: Network) -> Cost:
    """Gradients of a tied table, added up between the first and the last stage."""
    payload = step.layers[2].graph.num_tied_parameters * step.stack.gradient_bytes
    if len(step.blocks) == 1 or not payload:
        return _NO_COST
    plan = step.plan
    width = plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)
    group = group_dimensions(network, size=2, stride=width * (len(step.blocks) - 1), is_aligned=True)
    return _cost(CollectiveKind.ALL_REDUCE, payload, group)
