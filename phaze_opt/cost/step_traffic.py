"""What a step sends, at the networks' rates: inside layers, between stages, between replicas.

Of fitted constants only the networks' measured curves enter; what the software reaches of them is `price_step`'s.
Replicas' traffic is priced for many stages at once, transfers for many micro-batches and interleaves.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.compiled_step import AGAIN, BACKWARD, BLOCK, EMBEDDING, FORWARD, HEAD, PARTLY, RUN, CompiledStep
from phaze_opt.cost.traffic import COUNT, INNER, LATENCY, NUM_FIELDS, OUTER, OUTER_COUNT, collective_cost
from phaze_opt.estimate.collectives import exchange_level, group_dimensions
from phaze_opt.graph.layer import tied_parameters
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension, Topology
from phaze_opt.hardware.torus_mapping import is_torus, map_torus
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.workload.branches import Sets, prefixes
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.software import RankOrder
from phaze_opt.workload.workload import Workload


def group_members(step: CompiledStep, group: CollectiveGroup, network: Network) -> tuple[NetworkDimension, ...]:
    """Where the devices of a group lie: tensor groups innermost, then the context shards of one replica.

    Devices that split an expert are neighbours, those that share the experts come next, and their replicas last
    (Megatron-LM's order of ranks for experts).
    """
    plan = step.plan
    if group is CollectiveGroup.TENSOR:
        return group_dimensions(network, size=plan.tensor, stride=1)
    if group is CollectiveGroup.CONTEXT:
        return group_dimensions(network, size=plan.context, stride=plan.tensor)
    expert, splits = plan.expert_group
    if group is CollectiveGroup.EXPERT_TENSOR:
        return group_dimensions(network, size=splits, stride=1)
    return stage_group(step, network, size=expert, apart=splits)


def stage_group(step: CompiledStep, network: Network, *, size: int, apart: int) -> tuple[NetworkDimension, ...]:
    """``size`` devices, ``apart`` from one another, of those of a stage: tensor groups, context shards, then replicas.

    With pipeline stages next to the context shards (Llama 3's order: tensor, context, pipeline, data) the replicas lie
    a whole pipeline apart, the devices of one replica side by side.
    """
    plan = step.plan
    if step.stack.order is RankOrder.DATA_INNER or plan.pipeline == 1:
        return group_dimensions(network, size=size, stride=apart, is_aligned=True)
    replica = plan.tensor * plan.context
    near = math.gcd(size, replica // apart) if replica % apart == 0 else 1
    inside = group_dimensions(network, size=near, stride=apart, is_aligned=True)
    distance = replica * plan.pipeline * max(1, apart // replica)
    across = group_dimensions(network, size=size // near, stride=distance, is_aligned=True)
    return tuple(replace(each, size=each.size * other.size) for each, other in zip(inside, across, strict=True))


@dataclass(frozen=True, slots=True)
class HeldParameters:
    """Parameters that one device of each of some stages holds (under ZeRO 3: would hold whole), and who else does.

    Attributes:
        units: pieces that ZeRO 3 gathers and scatters: layers one by one, the first and the last of the model at once
            (FSDP's root); how many of what size in each stage.
        shards: devices that the sharded state of one copy is spread over; 1 without ZeRO.
        group: those devices, or without ZeRO all that hold the same parameters.
        copies: with hybrid sharding the devices that hold the same shard, one of each copy; else a group of one.
    """

    units: tuple[tuple[Floats, Floats], ...]
    shards: int
    group: tuple[NetworkDimension, ...]
    copies: tuple[NetworkDimension, ...]

    @property
    def parameters(self) -> Floats:
        """Their number, of each stage."""
        return np.asarray(sum(count * size for count, size in self.units))

    @property
    def is_copied(self) -> bool:
        """Whether there is more than one copy of the sharded state."""
        return math.prod(dimension.size for dimension in self.copies) > 1


def held_parameters(step: CompiledStep, counts: Ints, network: Network) -> list[HeldParameters]:
    """Of some stages: all but the experts, on data parallel replicas and context shards; experts, on their replicas.

    A tied head on the embedding's stage counts once. Parameters that only one device holds are left out.
    """
    plan = step.plan
    dense, experts = _stage_units(step, counts)
    found = []
    for units, replicas, sharded, apart in (
        (dense, plan.data * plan.context, plan.shards, plan.tensor),
        (experts, plan.expert_replicas, plan.expert_shards, math.prod(plan.expert_group)),
    ):
        shards = sharded if plan.zero else 1
        if replicas == 1 or not any((count * size).any() for count, size in units):
            continue
        size = shards if plan.zero else replicas
        group = stage_group(step, network, size=size, apart=apart)
        copies = stage_group(step, network, size=replicas // size, apart=apart * size)
        found.append(HeldParameters(units, shards, group, copies))
    return found


Units = tuple[tuple[Floats, Floats], ...]
"""How many pieces of how many parameters, in each of some stages."""


def _stage_units(step: CompiledStep, counts: Ints) -> tuple[Units, Units]:
    """Units of stages that data-parallel replicas share, and those of experts that have replicas of their own.

    Every layer between the model's first and last one is a unit of its own.
    """
    graph, has_own = step.graph, step.plan.has_expert_groups
    of_parts = np.asarray(counts, float).T
    ends, one = np.zeros(of_parts.shape[1]), np.ones(of_parts.shape[1])
    for count, kinds in zip(of_parts, graph.cut.roots, strict=True):
        ends += count * sum(graph.layers[kind].num_parameters for kind in kinds)
    tied = sum(count * own for count, own in zip(of_parts, _tied_of(step), strict=True))
    ends = np.maximum(0.0, ends - of_parts[EMBEDDING] * of_parts[HEAD] * tied)
    inside = sorted(set().union(*graph.cut.inner))
    # Sums of whole numbers: exact in any order.
    of_kinds = np.array([[part.count(kind) for part in graph.cut.inner] for kind in inside], float) @ of_parts
    dense, experts = [], []
    for kind, times in zip(inside, of_kinds, strict=True):
        layer = graph.layers[kind]
        own = layer.num_expert_parameters if has_own else 0
        dense.append((times, (layer.num_parameters - own) * one))
        experts += [(times, own * one)] if own else []
    return (*dense, (one, ends)), tuple(experts)


def _tied_of(step: CompiledStep) -> tuple[int, ...]:
    """Of each part the parameters that are a copy of an earlier one's."""
    return tied_parameters([part.graph for part in step.parts])


def stage_width(step: CompiledStep) -> int:
    """Ranks from one pipeline stage to the next, as the software orders them."""
    plan = step.plan
    return plan.tensor * plan.context * (plan.data if step.stack.order is RankOrder.DATA_INNER else 1)


def stage_counts(blocks: Sequence[int], order: Sequence[int] = ()) -> Ints:
    """Embeddings, units of every kind and heads of every stage.

    Args:
        blocks: units of each stage.
        order: kind of every unit of the model; all are equal unless given.
    """
    stop = np.cumsum(blocks)
    units = unit_counts(order, stop - np.asarray(blocks), stop)
    counts = np.pad(units, ((0, 0), (1, 1)))
    counts[0, EMBEDDING] = counts[-1, HEAD] = 1
    return counts


def stage_begins(blocks: Sequence[int], order: Sequence[int] = ()) -> Ints:
    """Part of each stage whose first layer keeps what the stage before it keeps too, shape (stages,).

    Of equal units it is the unit. Else it is the stage's first part; behind the last of all parts stands "none of
    them", which the stage that begins with the front has.

    Args:
        blocks: units of each stage.
        order: as `stage_counts` takes it.
    """
    if len(set(order)) <= 1:
        return np.full(len(blocks), BLOCK)
    parts = [BLOCK + kind for kind in order]
    back = 1 + max(parts)
    start = np.cumsum(blocks) - np.asarray(blocks)
    begins = np.array([*parts, back])[start]
    begins[0] = back + 1
    return np.asarray(begins)


def unit_counts(order: Sequence[int], start: Ints, stop: Ints) -> Ints:
    """How often each kind comes among the units from ``start`` to ``stop``, shape (spans, kinds)."""
    if len(set(order)) <= 1:
        return np.asarray(stop - start, np.int64)[:, None]
    before = np.zeros((len(order) + 1, max(order) + 1), np.int64)
    np.cumsum(np.eye(before.shape[1], dtype=np.int64)[list(order)], axis=0, out=before[1:])
    return np.asarray(before[stop] - before[start])


def plan_network(network: Network, plan: ParallelPlan) -> Network:
    """A torus as the rings that a plan's tensor groups and shards of state are laid on; any other network as it is."""
    if not is_torus(network):
        return network
    return map_torus(network, tensor=plan.tensor, shards=plan.shards, slices=plan.data * plan.context // plan.shards)


ALONE, BESIDE, EXPERTS = range(3)
"""How collectives inside layers run: alone, beside the compute of their pass, or with tokens to experts and back."""


def layer_costs(step: CompiledStep, network: Network) -> Floats:
    """Collectives inside the layers, by how they run.

    Returns:
        Shape (3, layers, passes, fields), passes as in `RUN` and behind them `PARTLY`.
    """
    num_layers, num_passes = len(step.parts), PARTLY + 1
    totals = np.zeros((3 * num_layers * num_passes, NUM_FIELDS))
    chosen: dict[tuple[CollectiveKind, CollectiveGroup], list[tuple[int, float, int]]] = defaultdict(list)
    for layer in range(num_layers):
        for place, each, is_beside, count in _layer_collectives(step, layer):
            run = EXPERTS if each.kind is CollectiveKind.ALL_TO_ALL else BESIDE if is_beside else ALONE
            cell = (run * num_layers + layer) * num_passes + place
            chosen[each.kind, each.group].append((cell, each.payload_bytes, count))
    for (kind, group), found in chosen.items():
        cells, payloads, counts = zip(*found, strict=True)
        members = group_members(step, group, network)
        costs = collective_cost(kind, np.array(payloads, float), members)
        if kind is CollectiveKind.ALL_TO_ALL and step.stack.sends_once_a_node:
            costs[:, OUTER] *= once_a_node(step.model, members)
        np.add.at(totals, np.array(cells), np.array(counts, float)[:, None] * costs)
    return totals.reshape(3, num_layers, num_passes, NUM_FIELDS)


def once_a_node(model: Workload, members: Sequence[NetworkDimension]) -> float:
    """Copies of a token that leave its node where each other node gets one, over one for each expert there.

    With D of n nodes that have any of a token's k experts, D (n - 1) / n copies in place of k (n - 1) / n.
    """
    routing = model.expert_routing
    nodes = math.prod(dimension.size for dimension in members[1:])
    return 1.0 if routing is None else routing.num_places(nodes) / routing.num_active


def _layer_collectives(step: CompiledStep, layer: int) -> Iterator[tuple[int, Collective, bool, int]]:
    """Place of the pass in `RUN` or `PARTLY`, collective, whether it runs beside the compute, and how many of them."""
    forward, backward = step.parts[layer].forward, step.parts[layer].backward
    again = Counter(forward.collectives)
    again.subtract(forward.kept_collectives)
    passes = (FORWARD, Counter(forward.collectives)), (AGAIN, again)
    counted = [(RUN.index(run), counts) for run, counts in passes]
    for place, counts in (*counted, (PARTLY, Counter(forward.partly_collectives))):
        for each, count in counts.items():
            if count:
                yield place, each, each.is_overlapped, count
    for each, count in Counter(backward.collectives).items():
        is_hidden = step.stack.hides_input_reductions and _is_input_reduction(each)
        yield RUN.index(BACKWARD), each, each.is_overlapped or is_hidden, count


def _is_input_reduction(collective: Collective) -> bool:
    """Whether a collective of backward all-reduces input gradients; sequence shards gather there instead."""
    return collective.kind is CollectiveKind.ALL_REDUCE and collective.group is CollectiveGroup.TENSOR


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """Boundary transfers of the stages of a pipeline.

    Attributes:
        place_of_stage: which of the distinct pairs of boundaries a stage has, shape (stages,).
        costs: of a micro-batch, for every (payload, interleave) and pair, shape (payloads, pairs, fields).
    """

    place_of_stage: Ints
    costs: Floats


def transfer_costs(step: CompiledStep, network: Network, *, payload_bytes: Floats, interleave: Floats) -> TransferCosts:
    """Boundary transfers of each stage and micro-batch: in front and behind, once for each model chunk.

    An interleaved pipeline goes round: the last stage hands all chunks but its last back to the first. With
    scatter-gather every device of the tensor group sends its share, and the group gathers it on arrival.

    Args:
        step: degrees and software.
        network: that the devices are on.
        payload_bytes: of one boundary, for each wanted cost.
        interleave: model chunks of a stage, for each of the same.
    """
    levels, places, pairs = _stage_boundaries(step, network)
    if not levels:
        return TransferCosts(places, np.zeros((len(payload_bytes), 1, NUM_FIELDS)))
    costs = _level_costs(step, network, levels, payload_bytes)
    # The way back crosses the farthest of the boundaries that lie between the two ends.
    outside = costs[..., OUTER_COUNT]
    seconds = np.where(outside == outside.max(axis=1, keepdims=True), costs[..., LATENCY:].sum(axis=-1), -1.0)
    back = costs[np.arange(len(costs)), seconds.argmax(axis=1)]
    round_trip = back * ((interleave - 1.0) / interleave)[:, None]
    edges = np.concatenate([costs, round_trip[:, None]], axis=1)
    return TransferCosts(places, (edges[:, pairs[:, 0]] + edges[:, pairs[:, 1]]) * interleave[:, None, None])


def _level_costs(step: CompiledStep, network: Network, levels: Sequence[int], payload_bytes: Floats) -> Floats:
    """One transfer across each level, shape (payloads, levels, fields)."""
    plan = step.plan
    is_scattered = step.stack.has_scatter_gather and plan.tensor > 1 and not plan.is_sequence_parallel
    share = payload_bytes / plan.tensor if is_scattered else payload_bytes
    costs = np.stack([_boundary_cost(network, level, share) for level in levels], axis=1)
    if is_scattered:
        group = group_dimensions(network, size=plan.tensor, stride=1)
        costs = costs + collective_cost(CollectiveKind.ALL_GATHER, payload_bytes, group)[:, None]
    return costs


def border_bytes(step: CompiledStep, sets: Sets = ()) -> Floats:
    """What crosses the border in front of each unit, and behind the last, shape (units + 1,), bytes: all tensors.

    Args:
        step: degrees and software.
        sets: of a model with branches, the units before each border; those in their order unless given.
    """
    branches = step.graph.cut.branches
    if branches is not None:
        before = np.pad(set_members(sets or prefixes(branches), branches.num_units), ((0, 0), (1, 1)))
        before[:, 0] = True
        return step.graph.crossing_bytes(before)
    of_parts = [part.graph.output_bytes for part in step.parts]
    order = step.graph.cut.order
    front = of_parts[EMBEDDING] if step.graph.cut.is_joined else of_parts[BLOCK]
    return np.array([front, *(of_parts[BLOCK + kind] for kind in order)])


def set_members(sets: Sets, num_units: int) -> Flags:
    """Whether each unit is in each set, shape (sets, units)."""
    return np.array([[each >> unit & 1 for unit in range(num_units)] for each in sets], np.bool_)


def span_transfers(
    step: CompiledStep, network: Network, *, stage: Ints, start: Ints, stop: Ints, sets: Sets = ()
) -> Floats:
    """Boundary transfers of stages of a micro-batch, in front and behind, without interleaving, shape (stages, fields).

    Args:
        step: degrees and software; its cuts play no part.
        network: that the devices are on.
        stage: number of each.
        start: number of the border in front of it: of its first unit.
        stop: number of that behind it.
        sets: the units before each border, as `border_bytes` takes them.
    """
    levels, _, _ = _stage_boundaries(step, network)
    costs = np.zeros((len(stage), NUM_FIELDS))
    if not levels:
        return costs
    crossed = np.array([levels.index(level) for level in _crossed(step, network)])
    of_borders = _level_costs(step, network, levels, border_bytes(step, sets))
    is_behind, is_before = stage > 0, stage < len(step.blocks) - 1
    costs[is_behind] += of_borders[start[is_behind], crossed[stage[is_behind] - 1]]
    costs[is_before] += of_borders[stop[is_before], crossed[stage[is_before]]]
    return costs


def _crossed(step: CompiledStep, network: Network) -> list[int]:
    """Level of the network that each boundary crosses."""
    width = stage_width(step)
    return [exchange_level(network, first=(edge - 1) * width, width=width) for edge in range(1, len(step.blocks))]


def stage_places(step: CompiledStep, network: Network) -> Ints:
    """Which pair of levels the boundaries of each stage cross, equal numbers for equal pairs, shape (stages,)."""
    return _stage_boundaries(step, network)[1]


def _stage_boundaries(step: CompiledStep, network: Network) -> tuple[list[int], Ints, Ints]:
    """Levels of the network that boundaries cross; the pair of every stage; pairs as places of levels.

    Levels are in the order of the first boundary that crosses each. A place behind them means the way back.
    """
    crossed = _crossed(step, network)
    levels = list(dict.fromkeys(crossed))
    edges = [len(levels), *(levels.index(level) for level in crossed), len(levels)]
    of_stages = list(zip(edges[:-1], edges[1:], strict=True))
    pairs = list(dict.fromkeys(of_stages))
    number = {pair: place for place, pair in enumerate(pairs)}
    return levels, np.array([number[pair] for pair in of_stages], np.int64), np.array(pairs, np.int64)


def _boundary_cost(network: Network, level: int, payload_bytes: Floats) -> Floats:
    """One transfer across a level, shape (payloads, fields)."""
    dimension = network.dimensions[level]
    is_inner = level == 0 and len(network.dimensions) > 1
    costs = np.zeros((len(payload_bytes), NUM_FIELDS))
    costs[:, COUNT], costs[:, OUTER_COUNT], costs[:, LATENCY] = 1.0, float(not is_inner), dimension.latency_s
    costs[:, INNER if is_inner else OUTER] = payload_bytes / dimension.bandwidth_bytes_per_s
    return costs


@dataclass(frozen=True, slots=True)
class ReplicaCosts:
    """What replicas send of the parameters and gradients of some stages; each of shape (stages, fields).

    Attributes:
        parameters: ZeRO 3: gathered forward and backward, gradients scattered, of every micro-batch.
        gathers: ZeRO 3: gathered once, as a forward pass does.
        reductions: ZeRO 2: gradients scattered in every micro-batch, as only a share of their sum is kept.
        gradients: with the last micro-batch; see `_gradient_costs`.
    """

    parameters: Floats
    gathers: Floats
    reductions: Floats
    gradients: Floats


def replica_costs(step: CompiledStep, counts: Ints, network: Network) -> ReplicaCosts:
    """What replicas send of stages of these embeddings, blocks and heads under a plan's degrees and ZeRO stage."""
    held = held_parameters(step, counts, network)
    nothing = np.zeros((len(counts), NUM_FIELDS))
    gathers = scatters = reductions = nothing
    if step.plan.zero == 3:
        gather_bytes, scatter_bytes = step.training.optimizer.weight_bytes, step.stack.gradient_bytes
        for each in held:
            gathers = gathers + _by_units(step, each, CollectiveKind.ALL_GATHER, gather_bytes, network)
            scatters = scatters + _by_units(step, each, CollectiveKind.REDUCE_SCATTER, scatter_bytes, network)
    if step.plan.zero == 2:
        reductions = nothing + sum(_scatter_cost(step, each) for each in held)
    gradients = nothing + sum(_gradient_costs(step, each) for each in held) + _tied_costs(step, counts, network)
    return ReplicaCosts(2.0 * gathers + scatters, gathers, reductions, gradients)


def _by_units(
    step: CompiledStep, held: HeldParameters, kind: CollectiveKind, element_bytes: int, network: Network
) -> Floats:
    """One pass over each stage's own parameters, unit by unit.

    A flat ring enters and leaves every node by one adapter: it runs at one device's share of the outer network, and
    takes a hop a device for every unit.
    """
    group = _flat(held.group, network) if step.stack.is_parameter_ring_flat else held.group
    costs = [count[:, None] * collective_cost(kind, size * element_bytes, group) for count, size in held.units]
    return np.asarray(sum(costs))


def _flat(group: Sequence[NetworkDimension], network: Network) -> tuple[NetworkDimension, ...]:
    """The group as one ring over the outermost network, unless it stays inside the innermost one."""
    size = math.prod(dimension.size for dimension in group)
    if size == group[0].size:
        return tuple(group)
    inner, outer = network.dimensions[0], network.dimensions[-1]
    ring = NetworkDimension(Topology.RING, size, outer.bandwidth_bytes_per_s, outer.latency_s)
    return replace(inner, size=1), ring


def _gradient_costs(step: CompiledStep, held: HeldParameters) -> Floats:
    """Of the last micro-batch: gradients all-reduced, or (ZeRO 1, 2) scattered and parameters gathered.

    With hybrid sharding each shard's gradients are all-reduced over the copies of it as well, under ZeRO 3 too.
    """
    gradient_bytes = held.parameters * step.stack.gradient_bytes
    if step.plan.zero == 0:
        return collective_cost(CollectiveKind.ALL_REDUCE, gradient_bytes, held.group)
    costs = np.zeros((len(gradient_bytes), NUM_FIELDS))
    if step.plan.zero < 3:
        weight_bytes = held.parameters * step.training.optimizer.weight_bytes
        costs = _scatter_cost(step, held) + collective_cost(CollectiveKind.ALL_GATHER, weight_bytes, held.group)
    if held.is_copied:
        costs = costs + collective_cost(CollectiveKind.ALL_REDUCE, gradient_bytes / held.shards, held.copies)
    return costs


def _scatter_cost(step: CompiledStep, held: HeldParameters) -> Floats:
    return collective_cost(CollectiveKind.REDUCE_SCATTER, held.parameters * step.stack.gradient_bytes, held.group)


def _tied_costs(step: CompiledStep, counts: Ints, network: Network) -> Floats:
    """Gradients of a tied table, added up between the first and the last stage: of a device's shard if sharded."""
    shards = step.plan.shards if step.plan.zero >= 2 else 1
    payload = max(_tied_of(step)) * step.stack.gradient_bytes / shards
    if len(step.blocks) == 1 or not payload:
        return np.zeros((len(counts), NUM_FIELDS))
    width = stage_width(step)
    level = exchange_level(network, first=0, width=width, distance=width * (len(step.blocks) - 1))
    pair = [replace(dimension, size=1 + (index == level)) for index, dimension in enumerate(network.dimensions)]
    is_end = counts[:, EMBEDDING] + counts[:, HEAD] > 0
    return collective_cost(CollectiveKind.ALL_REDUCE, np.where(is_end, payload, 0.0), pair)
