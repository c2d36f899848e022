"""Every collective and boundary transfer of one training step on the stage with the most blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from phaze_opt.estimate.collective_load import GroupCollective
from phaze_opt.estimate.collectives import exchange_level
from phaze_opt.graph.operator import Collective, CollectiveGroup, CollectiveKind
from phaze_opt.hardware.network import Network, NetworkDimension
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.objective.step.step_groups import BLOCK, group_members, held_parameters, stage_counts, stage_width
from phaze_opt.workload.plan import Recompute


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
    """Collectives of tensor, context and expert groups, forward (again with full recomputation) and backward."""
    counts: Counter[Collective] = Counter()
    is_full = step.plan.recompute is Recompute.FULL
    for index, (layer, times) in enumerate(zip(step.layers, stage_counts(step, stage), strict=True)):
        forwards = 2 if is_full and index == BLOCK else 1
        for each in layer.forward.collectives:
            counts[each] += forwards * times
        for each in layer.forward.kept_collectives:
            counts[each] -= (forwards - 1) * times
        for each in layer.backward.collectives:
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
    for held in held_parameters(step, stage, network):
        gradient_bytes = held.parameters * step.stack.gradient_bytes
        if plan.zero == 0:
            yield GroupCollective("gradient all_reduce", reduce, gradient_bytes, held.group)
            continue
        weight_bytes = held.parameters * step.training.optimizer.weight_bytes
        yield GroupCollective("gradient reduce_scatter", scatter, gradient_bytes, held.group, scatters)
        yield GroupCollective("parameter all_gather", gather, weight_bytes, held.group, gathers)
        if held.is_copied:
            yield GroupCollective("gradient all_reduce", reduce, gradient_bytes / held.shards, held.copies)


def _transfers(step: CompiledStep, network: Network) -> Iterator[GroupCollective]:
    """Activations forward and gradients back across the boundary behind the first stage."""
    plan = step.plan
    if plan.pipeline == 1:
        return
    width = stage_width(step)
    level = exchange_level(network, first=0, width=width)
    pair = tuple(_pair(dimension, index == level) for index, dimension in enumerate(network.dimensions))
    payload = 2.0 * step.layers[BLOCK].graph.output_bytes
    count = 2.0 * plan.interleave * step.num_micro_batches
    yield GroupCollective("stage boundary", CollectiveKind.ALL_GATHER, payload, pair, count)


def _pair(dimension: NetworkDimension, is_crossed: bool) -> NetworkDimension:
    return replace(dimension, size=2 if is_crossed else 1)
