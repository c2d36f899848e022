"""The network as the groups of a plan see it."""

from __future__ import annotations

from phaze_opt.hardware.network import Network
from phaze_opt.hardware.torus_mapping import is_torus, map_torus
from phaze_opt.workload.plan import ParallelPlan


def plan_network(network: Network, plan: ParallelPlan) -> Network:
    """A torus as the rings that a plan's tensor groups and shards of state are laid on; any other network as it is."""
    if not is_torus(network):
        return network
    return map_torus(network, tensor=plan.tensor, shards=plan.shards, slices=plan.data * plan.context // plan.shards)
