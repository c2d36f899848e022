"""A network's bandwidths chosen for one training step: as given, split equally, and allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.bandwidth_allocation import Allocation, Budget, allocate_bandwidth, with_bandwidths
from phaze_opt.estimate.collective_load import GroupCollective, collective_loads
from phaze_opt.hardware.network import Chunking, Network
from phaze_opt.objective.step.compiled_step import CompiledStep
from phaze_opt.objective.step.step_collectives import step_collectives


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
    budget = Budget(total * sum(prices) / levels, prices)
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
