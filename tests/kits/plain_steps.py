"""Batches of steps built plan by plan and stage by stage, one collective after the other: what tables must equal.

This is how the package built them before plans were columns (decision 0254); kept as the checker of `step_table`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum

import numpy as np

from phaze_opt.cost.compiled_step import BLOCK, EMBEDDING, HEAD, CompiledStep
from phaze_opt.cost.step_batch import LayerColumns, StepBatch
from phaze_opt.cost.step_traffic import group_members, stage_group, stage_width
from phaze_opt.cost.traffic import Traffic
from phaze_opt.estimate.collective_curves import ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import collective_coefficients, collective_s, exchange_level, group_dimensions
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.record.arrays import Floats
from phaze_opt.workload.plan import Recompute

Cost = tuple[float, ...]
"""Fields of `Traffic` for one or some collectives."""
NO_COST: Cost = (0.0,) * len(fields(Traffic))


def plain_batch(steps: Sequence[CompiledStep], networks: Sequence[Network]) -> StepBatch:
    """Arrays of steps, each on its network."""
    num_stages = max(len(step.blocks) for step in steps)
    both = list(zip(steps, networks, strict=True))
    return StepBatch(
        layers=np.array([_layer_counts(step, num_stages) for step in steps]),
        num_micro_batches=np.array([step.num_micro_batches for step in steps], float),
        interleave=np.array([step.plan.interleave * step.stack.fill_chunks for step in steps], float),
        again=_does(steps, Recompute.FULL, num_stages),
        is_selective=_does(steps, Recompute.SELECTIVE, num_stages),
        inside=LayerColumns(
            launches=np.array([[part.launches for part in step.parts] for step in steps], float),
            tensor=_traffic([collective_costs(step, network, Run.ALONE) for step, network in both]),
            experts=_traffic([collective_costs(step, network, Run.EXPERTS) for step, network in both]),
            beside=_traffic([collective_costs(step, network, Run.BESIDE) for step, network in both]),
            waits=np.array([sum(1.0 / rank for rank in range(2, step.plan.tensor + 1)) for step in steps], float),
            update_bytes=np.array([_update_bytes(step) for step in steps]),
        ),
        transfers=_traffic([_pad(transfer_costs(step, network), num_stages) for step, network in both]),
        parameters=_traffic([_pad(parameter_costs(step, network), num_stages) for step, network in both]),
        forward_gathers=_traffic([_pad(gather_costs(step, network), num_stages) for step, network in both]),
        reductions=_traffic([_pad(reduction_costs(step, network), num_stages) for step, network in both]),
        gradients=_traffic([_pad(gradient_costs(step, network), num_stages) for step, network in both]),
        update_shards=np.array([_update_shards(step) for step in steps]),
        tied_share=np.array([[0.0, 0.0, _tied_share(step)] for step in steps]),
        islands=np.array([_num_islands(step, network) for step, network in both], float),
    )


def _does(steps: Sequence[CompiledStep], recompute: Recompute, num_stages: int) -> np.ndarray:
    """Whether each stage recomputes so, shape (steps, stages), 0 or 1."""
    found = np.zeros((len(steps), num_stages))
    for row, step in zip(found, steps, strict=True):
        row[: len(step.blocks)] = [each is recompute for each in step.plan.recomputes]
    return found


def _update_bytes(step: CompiledStep) -> float:
    """Bytes that the optimizer moves for a parameter of a block."""
    graph = step.layers[BLOCK].graph
    return sum(operator.traffic_bytes for operator in graph.update.operators) / max(1, graph.num_parameters)


def _num_islands(step: CompiledStep, network: Network) -> int:
    """Nodes or slices behind one switched network; 1 where there is no such level."""
    *inner, outermost = network.dimensions
    if not inner or outermost.topology is not Topology.SWITCH:
        return 1
    return math.ceil(step.plan.num_devices / math.prod(dimension.size for dimension in inner))


def _tied_share(step: CompiledStep) -> float:
    """The update is one pass over a layer's parameters, so a share of them takes that share of its time."""
    head = step.layers[HEAD].graph
    return head.num_tied_parameters / head.num_parameters if len(step.blocks) == 1 and head.num_parameters else 0.0


def _layer_counts(step: CompiledStep, num_stages: int) -> Floats:
    counts = np.zeros((num_stages, len(step.layers)))
    counts[: len(step.blocks)] = [stage_counts(step, number) for number in range(len(step.blocks))]
    return counts


def _traffic(costs: Sequence[object]) -> Traffic:
    """Columns of nested lists of costs."""
    table = np.array(costs, float)
    return Traffic(*np.moveaxis(table, -1, 0))


def _pad(costs: list[Cost], num_stages: int) -> list[Cost]:
    return costs + [NO_COST] * (num_stages - len(costs))


def _update_shards(step: CompiledStep) -> float:
    """How many times fewer parameters of a block a device updates than it holds: experts have their own replicas."""
    plan, graph = step.plan, step.layers[BLOCK].graph
    if plan.zero == 0 or (plan.expert == 1 and not plan.expert_tensor):
        return float(plan.shards if plan.zero else 1)
    dense = graph.num_parameters - graph.num_expert_parameters
    return graph.num_parameters / (dense / plan.shards + graph.num_expert_parameters / plan.expert_shards)


Units = tuple[tuple[int, float], ...]
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
    def parameters(self) -> float:
        """Their number."""
        return sum(count * size for count, size in self.units)

    @property
    def is_copied(self) -> bool:
        """Whether there is more than one copy of the sharded state."""
        return math.prod(dimension.size for dimension in self.copies) > 1


def held_parameters(step: CompiledStep, number: int, network: Network) -> list[HeldParameters]:
    """Of one stage: experts, on their own replicas, and all else, on data parallel replicas and context shards.

    A tied head on the embedding's stage counts once. Parameters that only one device holds are left out.
    """
    plan = step.plan
    dense, experts = _stage_units(step, number)
    splits = plan.expert_tensor or plan.tensor
    found = []
    for units, replicas, sharded, apart in (
        (dense, plan.data * plan.context, plan.shards, plan.tensor),
        (experts, plan.expert_replicas, plan.expert_shards, splits * plan.expert),
    ):
        shards = sharded if plan.zero else 1
        if replicas == 1 or not units:
            continue
        size = shards if plan.zero else replicas
        group = stage_group(step, network, size=size, apart=apart)
        copies = stage_group(step, network, size=replicas // size, apart=apart * size)
        found.append(HeldParameters(units, shards, group, copies))
    return found


def _stage_units(step: CompiledStep, number: int) -> tuple[Units, Units]:
    """Units of a stage that data-parallel replicas share, and those of experts that have replicas of their own."""
    (embeddings, blocks, heads), graphs = stage_counts(step, number), [layer.graph for layer in step.layers]
    ends = embeddings * graphs[EMBEDDING].num_parameters + heads * graphs[HEAD].num_parameters
    ends -= graphs[HEAD].num_tied_parameters if embeddings and heads else 0
    has_own = step.plan.expert > 1 or step.plan.expert_tensor > 0
    experts = graphs[BLOCK].num_expert_parameters if has_own else 0
    dense = graphs[BLOCK].num_parameters - experts
    pieces = ((blocks, float(dense)), (1, float(ends))), ((blocks, float(experts)),)
    shared, apart = (tuple((count, size) for count, size in each if count and size) for each in pieces)
    return shared, apart


def stage_counts(step: CompiledStep, number: int) -> tuple[int, int, int]:
    """Embeddings, blocks and heads of a stage."""
    return int(number == 0), step.blocks[number], int(number == len(step.blocks) - 1)


def _cost(kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]) -> Cost:
    """A collective's latency (and what a measured curve adds), and its time on the innermost and outer dimensions."""
    moving_s = collective_coefficients(kind, dimensions).s_per_byte * payload_bytes
    fixed_s = collective_s(kind, payload_bytes, dimensions) - moving_s
    if kind is not CollectiveKind.ALL_TO_ALL and runs_as_one_ring(dimensions):
        inner_s, outer_s = _ring_levels_s(kind, moving_s, dimensions)
        return (1.0, float(outer_s > 0.0), fixed_s, 0.0, 0.0, inner_s, outer_s)
    inner_s = min(moving_s, collective_coefficients(kind, dimensions[:1]).s_per_byte * payload_bytes)
    return (1.0, float(moving_s > inner_s), fixed_s, inner_s, moving_s - inner_s, 0.0, 0.0)


def _ring_levels_s(
    kind: CollectiveKind, moving_s: float, dimensions: Sequence[NetworkDimension]
) -> tuple[float, float]:
    """Time on the innermost level and on the slowest other one of a ring that takes ``moving_s`` on its slowest."""
    ring = ring_pass(dimensions, kind)
    levels = [moving_s * per_byte / ring.s_per_byte for per_byte, *_ in ring.levels]
    inside = int(dimensions[0].size > 1)
    return sum(levels[:inside]), max(levels[inside:], default=0.0)


def _once_a_node(step: CompiledStep, cost: Cost, group: Sequence[NetworkDimension]) -> Cost:
    """Tokens that are sent once to each node that has any of their experts, where the software does so."""
    if not step.stack.sends_once_a_node:
        return cost
    nodes, met = math.prod(each.size for each in group[1:]), step.model.num_active_experts
    copies = sum(math.comb(met, k) * (nodes - 1) ** (met - k) for k in range(1, met + 1)) / nodes**met
    return (*cost[:4], cost[4] * nodes * copies / met, *cost[5:])


def _add(costs: Sequence[Cost], factor: float = 1.0) -> Cost:
    return tuple(factor * sum(column) for column in zip(NO_COST, *costs, strict=True))


class Run(Enum):
    """How collectives inside layers run."""

    ALONE = "alone"
    BESIDE = "beside"
    EXPERTS = "experts"


def collective_costs(step: CompiledStep, network: Network, run: Run) -> list[list[Cost]]:
    """Of each layer and pass (`RUN`, then `PARTLY`): collectives that run so."""
    groups = {group: group_members(step, group, network) for group in CollectiveGroup}

    def total(collectives: Sequence[Collective], *, is_hiding: bool) -> Cost:
        chosen = [each for each in collectives if how(each, is_hiding) is run]
        costs = [(_cost(each.kind, each.payload_bytes, groups[each.group]), groups[each.group]) for each in chosen]
        is_sent = run is Run.EXPERTS
        return _add([_once_a_node(step, cost, group) if is_sent else cost for cost, group in costs])

    def how(each: Collective, is_hiding: bool) -> Run:
        if each.kind is CollectiveKind.ALL_TO_ALL:
            return Run.EXPERTS
        return Run.BESIDE if each.is_overlapped or (is_hiding and _is_input_reduction(each)) else Run.ALONE

    costs = []
    for layer in step.parts:
        forward = total(layer.forward.collectives, is_hiding=False)
        backward = total(layer.backward.collectives, is_hiding=step.stack.hides_input_reductions)
        kept = total(layer.forward.kept_collectives, is_hiding=False)
        partly = total(layer.forward.partly_collectives, is_hiding=False)
        costs.append([forward, backward, _add([forward, _add([kept], -1.0)]), partly])
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


def parameter_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """ZeRO 3: parameters gathered forward and backward, gradients scattered, every micro-batch."""
    scatters = _sharded_costs(step, network, CollectiveKind.REDUCE_SCATTER, step.stack.gradient_bytes)
    gathers = gather_costs(step, network)
    return [_add([gather, gather, scatter]) for gather, scatter in zip(gathers, scatters, strict=True)]


def gather_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """ZeRO 3: parameters gathered once, as a forward pass does."""
    return _sharded_costs(step, network, CollectiveKind.ALL_GATHER, step.training.optimizer.weight_bytes)


def _sharded_costs(step: CompiledStep, network: Network, kind: CollectiveKind, element_bytes: int) -> list[Cost]:
    """One pass over each stage's own parameters, unit by unit; nothing unless they are sharded.

    A flat ring enters and leaves every node by one adapter: it runs at one device's share of the outer network, and
    takes a hop a device for every unit.
    """
    if step.plan.zero != 3:
        return [NO_COST] * len(step.blocks)
    costs = []
    for number in range(len(step.blocks)):
        parts = []
        for held in held_parameters(step, number, network):
            group = _flat(held.group, network) if step.stack.is_parameter_ring_flat else held.group
            parts += [_add([_cost(kind, size * element_bytes, group)], count) for count, size in held.units]
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


def reduction_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """ZeRO 2: gradients scattered every micro-batch, as only a share of their sum is kept (as ZeRO 3's are)."""
    if step.plan.zero != 2:
        return [NO_COST] * len(step.blocks)
    return [
        _add([_scatter_cost(step, held) for held in held_parameters(step, number, network)])
        for number in range(len(step.blocks))
    ]


def gradient_costs(step: CompiledStep, network: Network) -> list[Cost]:
    """Of the last micro-batch: gradients all-reduced, or (ZeRO 1, 2) scattered and parameters gathered.

    With hybrid sharding each shard's gradients are all-reduced over the copies of it as well, under ZeRO 3 too. A tied
    table is added up over its two stages.
    """
    costs = []
    for number in range(len(step.blocks)):
        parts = []
        for held in held_parameters(step, number, network):
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
        if number in (0, len(step.blocks) - 1):
            parts.append(_tied_cost(step, network))
        costs.append(_add(parts))
    return costs


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
