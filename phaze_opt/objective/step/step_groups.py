"""Which devices of a step exchange what: groups inside layers, and those that hold the same parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from phaze_opt.estimate.collectives import group_dimensions
from phaze_opt.graph.operator import CollectiveGroup
from phaze_opt.hardware.network import Network, NetworkDimension
from phaze_opt.hardware.torus_mapping import is_torus, map_torus
from phaze_opt.objective.step.compiled_step import BLOCK, EMBEDDING, HEAD, CompiledStep
from phaze_opt.workload.plan import ParallelPlan
from phaze_opt.workload.stack import RankOrder


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


def _stage_units(step: CompiledStep, number: int) -> tuple[Units, Units]:
    """Units of a stage that data-parallel replicas share, and those of experts that have replicas of their own."""
    (embeddings, blocks, heads), graphs = stage_counts(step, number), [layer.graph for layer in step.layers]
    ends = embeddings * graphs[EMBEDDING].num_parameters + heads * graphs[HEAD].num_parameters
    ends -= graphs[HEAD].num_tied_parameters if embeddings and heads else 0
    experts = graphs[BLOCK].num_expert_parameters if step.plan.expert > 1 else 0
    dense = graphs[BLOCK].num_parameters - experts
    pieces = ((blocks, float(dense)), (1, float(ends))), ((blocks, float(experts)),)
    shared, apart = (tuple((count, size) for count, size in each if count and size) for each in pieces)
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
