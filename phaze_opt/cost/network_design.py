"""A network's bandwidths chosen for one training step: as given, split equally, and allocated."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.cost.compiled_step import CompiledStep
from phaze_opt.cost.step_traffic import border_bytes, group_members, held_parameters, stage_counts, stage_width
from phaze_opt.errors import InputError
from phaze_opt.estimate.bandwidth_allocation import (
    Allocation,
    BandwidthBudget,
    GroupCollective,
    allocate_bandwidth,
    collective_loads,
)
from phaze_opt.estimate.collectives import exchange_level
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Chunking, Network, with_bandwidths
from phaze_opt.record.arrays import Ints
from phaze_opt.workload.plan import Recompute


@dataclass(frozen=True, slots=True)
class NetworkCase:
    """A network, the step's collectives on it, and the time they take one after the other, s."""

    network: Network
    collectives: tuple[GroupCollective, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class NetworkDesign:
    """Three ways to spend one budget of bandwidth.

    Attributes:
        chunking: how collectives go through the levels in all three.
        given: the network as it is, scaled so that it spends the budget.
        equal: the same bandwidth on every level.
        best: as allocated; one of the other two where latencies and whole chunks, which the allocation leaves out,
            make that one faster.
        allocation: bandwidths under which the bytes alone move soonest, and the bound on what any could reach.
    """

    chunking: Chunking
    given: NetworkCase
    equal: NetworkCase
    best: NetworkCase
    allocation: Allocation


def design_network(
    step: CompiledStep,
    network: Network,
    *,
    total_bytes_per_s: float | None = None,
    costs: Sequence[float] = (),
    chunking: Chunking | None = None,
) -> NetworkDesign:
    """Allocate bandwidth to the levels of a network so that the collectives of a step end soonest.

    Args:
        step: of `compile_step`.
        network: with a level for every device of the plan.
        total_bytes_per_s: bandwidth of a device over all levels; what the network has unless given.
        costs: of a byte/s on each level; the budget is then what an equal split of the total costs. All 1 unless given.
        chunking: how collectives go through the levels; as the network says unless given.

    Raises:
        InputError: as many costs as levels are not given, the plan has no collectives, or chunks were asked for where
            levels have a measured curve and run as one ring.
    """
    levels = len(network.dimensions)
    if costs and len(costs) != levels:
        message = f"{len(costs)} costs were given for the {levels} levels of {network.name}; give one for each"
        raise InputError(message, key="costs")
    way = network.chunking if chunking is None else chunking
    if network.is_measured and way is not Chunking.NONE:
        message = f"{way} does not go with levels that have a curve, which {network.name} has; leave it out"
        raise InputError(message, key="chunking")
    network = network.with_chunking(way)
    prices = tuple(costs) or (1.0,) * levels
    own = np.array([dimension.bandwidth_bytes_per_s for dimension in network.dimensions])
    total = float(own.sum()) if total_bytes_per_s is None else total_bytes_per_s
    budget = BandwidthBudget(total * sum(prices) / levels, prices)
    scaled = own * budget.total / float((own * np.array(prices)).sum())
    loads = [load for each in step_collectives(step, network) for load in collective_loads(each, way)]
    allocation = allocate_bandwidth(loads, budget)
    cases = (scaled, budget.equal_split(), np.array(allocation.bandwidth_bytes_per_s))
    given, equal, allocated = (_case(step, with_bandwidths(network, case.tolist()), way) for case in cases)
    best = min(allocated, equal, given, key=lambda case: case.seconds)
    # A name of its own: other commands rebuild a network that bears a preset's name from the preset.
    named = replace(best, network=replace(best.network, name=f"{network.name}-allocated"))
    return NetworkDesign(way, given, equal, named, allocation)


def _case(step: CompiledStep, network: Network, chunking: Chunking) -> NetworkCase:
    collectives = step_collectives(step, network)
    seconds = math.fsum(each.count * each.seconds(chunking) for each in collectives)
    return NetworkCase(network, collectives, seconds)


def step_collectives(step: CompiledStep, network: Network) -> tuple[GroupCollective, ...]:
    """What one device of the stage with the most blocks sends in a step, on the dimensions of the network.

    A transfer across a stage boundary is written as an all-gather of two devices, which moves half its payload.
    """
    stage = max(range(len(step.blocks)), key=lambda number: (step.blocks[number], number))
    found = [*_in_layers(step, stage, network), *_of_parameters(step, stage, network), *_transfers(step, network)]
    return tuple(
        collective
        for collective in found
        if collective.payload_bytes > 0 and any(dimension.size > 1 for dimension in collective.dimensions)
    )


def _in_layers(step: CompiledStep, stage: int, network: Network) -> Iterator[GroupCollective]:
    """Collectives of tensor, context and expert groups, forward (again with recomputation) and backward."""
    counts: Counter[Collective] = Counter()
    recompute = step.plan.recomputes[stage]
    for part, times in zip(step.parts, _own_counts(step, stage)[0].tolist(), strict=True):
        again = Counter[Collective]()
        if recompute is Recompute.FULL:
            again = Counter(part.forward.collectives) - Counter(part.forward.kept_collectives)
        elif recompute is Recompute.SELECTIVE:
            again = Counter(part.forward.partly_collectives)
        for each, number in (Counter(part.forward.collectives) + again).items():
            counts[each] += number * times
        for each in part.backward.collectives:
            counts[each] += times
    groups = {group: group_members(step, group, network) for group in CollectiveGroup}
    for each, times in counts.items():
        name = f"{each.group.value} {each.kind.value}"
        count = float(times * step.num_micro_batches)
        yield GroupCollective(name, each.kind, each.payload_bytes, groups[each.group], count)


def _of_parameters(step: CompiledStep, stage: int, network: Network) -> Iterator[GroupCollective]:
    """Gradients, and sharded parameters, over the devices that hold the same ones.

    As often as `step_traffic` counts them, but a stage's parameters at once where ZeRO 3 gathers them unit by unit: the
    bytes are the same.
    """
    plan = step.plan
    micro_batches = float(step.num_micro_batches)
    scatters = micro_batches if plan.zero >= 2 else 1.0
    gathers = 2.0 * micro_batches if plan.zero == 3 else 1.0
    reduce, scatter, gather = CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER
    for held in held_parameters(step, _own_counts(step, stage), network):
        parameters = float(held.parameters[0])
        gradient_bytes = parameters * step.stack.gradient_bytes
        if plan.zero == 0:
            yield GroupCollective("gradient all_reduce", reduce, gradient_bytes, held.group)
            continue
        weight_bytes = parameters * step.training.optimizer.weight_bytes
        yield GroupCollective("gradient reduce_scatter", scatter, gradient_bytes, held.group, scatters)
        yield GroupCollective("parameter all_gather", gather, weight_bytes, held.group, gathers)
        if held.is_copied:
            yield GroupCollective("gradient all_reduce", reduce, gradient_bytes / held.shards, held.copies)


def _own_counts(step: CompiledStep, stage: int) -> Ints:
    """Embeddings, blocks and heads of one stage, shape (1, layers)."""
    return stage_counts(step.blocks, step.graph.cut.order)[stage : stage + 1]


def _transfers(step: CompiledStep, network: Network) -> Iterator[GroupCollective]:
    """Activations forward and gradients back across the boundary behind the first stage."""
    plan = step.plan
    if plan.pipeline == 1:
        return
    width = stage_width(step)
    level = exchange_level(network, first=0, width=width)
    pair = tuple(replace(dimension, size=1 + (index == level)) for index, dimension in enumerate(network.dimensions))
    payload = 2.0 * float(border_bytes(step)[step.blocks[0]])
    count = 2.0 * plan.interleave * step.num_micro_batches
    yield GroupCollective("stage boundary", CollectiveKind.ALL_GATHER, payload, pair, count)
