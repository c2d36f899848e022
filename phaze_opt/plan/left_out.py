"""Stages and replicas that are free and that plans are not listed of at first: bounds on what their plans take.

Let S be the passes of all layers of a micro-batch, forward and backward, without what is sent. Stages have S / p of it
in the mean, so that the slowest has as much or more, M. Under 1F1B a stage of load M ends (m - 1) M / 2 after S at the
earliest: it waits for what is behind it, but for its own passes of one direction, which are m - 1 at most. With more
micro-batches than stages it takes 2 S + (m - p - 1) M (`cut_bound`), and chunks take m M + (S - M) / v. All of that is
a multiple of S, and rises with M. So a plan takes a known multiple of S, and a fixed time: a spread for which that is
more than some plan takes need not be listed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.network import Network, Topology
from phaze_opt.hardware.torus_mapping import is_torus
from phaze_opt.plan.plan_space import are_among, has_equal_units, list_plans, resolved
from phaze_opt.plan.plan_spreads import NUM_ENDS, first_spreads, free_spreads
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.workload.plan import PlanChoices
from phaze_opt.workload.plan_columns import PlanColumns
from phaze_opt.workload.software import TrainingStack
from phaze_opt.workload.training import TrainingSpec
from phaze_opt.workload.workload import Workload

ROUNDING = 1.0 - 1e-12
"""A bound stays below what it bounds though both are rounded."""


@dataclass(frozen=True, slots=True)
class UnlistedPlans:
    """Spreads that plans are not listed of at first.

    Attributes:
        spreads: as `list_plans` takes them.
        times_total: what their plans take at least, as multiples of the passes of one micro-batch, shape (spreads,).
        overhead_s: what a step takes beside.
        is_smallest: of which the others' plans hold no less, shape (spreads,).
        list_plans: the plans of some spreads.
    """

    spreads: Ints
    times_total: Floats
    overhead_s: float
    is_smallest: Flags
    list_plans: Callable[[Ints], PlanColumns]

    def take(self, chosen: Flags) -> "UnlistedPlans":
        """Some of the spreads."""
        own = self.spreads[:, chosen], self.times_total[chosen], self.overhead_s, self.is_smallest[chosen]
        return UnlistedPlans(*own, self.list_plans)

    def joined(self, plans: PlanColumns, chosen: Flags) -> PlanColumns:
        """Plans, and behind them those of some spreads whose layers are among theirs."""
        more = self.list_plans(self.spreads[:, chosen])
        more = more.take(are_among(np.stack(more.layers), np.stack(plans.layers)))
        found = PlanColumns.joined([plans, more])
        return found.take(np.sort(np.unique(found.twins(), return_index=True)[1]))

    def bounds_s(self, total_s: Floats, layers: Ints) -> Floats:
        """The least that any of their plans takes, shape (chips,), s.

        Args:
            total_s: passes of a micro-batch, of every set of layers, shape (chips, sets), s.
            layers: tensor, context and micro-batch of the sets, shape (3, sets).
        """
        least = np.full(len(total_s), np.inf)
        for of_set, column in zip(layers.T, total_s.T, strict=True):
            same = (self.spreads[[0, 1, 4]] == of_set[:, None]).all(axis=0)
            least = np.minimum(least, self.times_total[same].min(initial=np.inf) * column)
        return np.asarray((least + self.overhead_s) * ROUNDING)

    def below(self, total_s: Floats, layers: Ints, limit_s: float) -> Flags:
        """Which spreads may have a plan that takes less than a limit; without one, which any fits a device if any does.

        ``total_s`` is of one chip, shape (sets,); else as `bounds_s` takes it.
        """
        if math.isinf(limit_s):
            return self.is_smallest
        own_s = np.full(len(self.times_total), np.inf)
        for of_set, seconds in zip(layers.T, total_s.tolist(), strict=True):
            same = (self.spreads[[0, 1, 4]] == of_set[:, None]).all(axis=0)
            own_s[same] = np.minimum(own_s[same], seconds)
        return np.asarray((self.times_total * own_s + self.overhead_s) * ROUNDING < limit_s)


def leave_out(
    model: Workload,
    training: TrainingSpec,
    *,
    num_devices: int,
    choices: PlanChoices,
    network: Network,
    stack: TrainingStack,
) -> UnlistedPlans:
    """What `list_plans` leaves out at first; arguments as it takes them, and the network of the cluster."""

    def listed(spreads: Ints) -> PlanColumns:
        return list_plans(model, training, num_devices=num_devices, choices=choices, stack=stack, spreads=spreads)

    known, batch = resolved(choices, model), training.global_batch
    spreads = free_spreads(model, num_devices, known, batch)
    spreads = spreads[:, ~are_among(spreads, first_spreads(model, num_devices, known, batch))]
    tensor, context, pipeline, data, micro_batch = spreads
    num_micro = batch // (data * micro_batch)
    chunks = np.ones_like(pipeline)
    for interleave in known.interleave if has_equal_units(model) else ():
        may = (pipeline > 1) & (num_micro % pipeline == 0) & (pipeline * interleave <= model.num_units + NUM_ENDS)
        chunks = np.where(may, np.maximum(chunks, interleave), chunks)
    times = np.minimum(*(_times_total(pipeline, num_micro, each * stack.fill_chunks) for each in (1, chunks)))
    waiting = stack.waiting_share * np.log2(_num_islands(network, tensor * context * pipeline * data))
    hinders = model.has_experts or stack.rules or 1 not in known.interleave or any(known.state_shards)
    # Most replicas share the most state and have the fewest micro-batches on their way; one replica sends nothing.
    _, place = np.unique(spreads[[0, 1, 2, 4]], axis=1, return_inverse=True)
    most = np.zeros(place.max(initial=0) + 1, np.int64)
    np.maximum.at(most, place.reshape(-1), data)
    is_smallest = (data == most[place.reshape(-1)]) | (data * context == 1) | bool(hinders)
    return UnlistedPlans(spreads, times * (1.0 + waiting), stack.step_overhead_s, is_smallest, listed)


def _times_total(stages: Ints, num_micro_batches: Ints, chunks: Ints | int) -> Floats:
    """What micro-batches and fill take at least, over the passes of one micro-batch, shape (spreads,)."""
    p, m = stages.astype(float), num_micro_batches.astype(float)
    few = 1.0 + (m - 1.0) / (2.0 * p)
    plain = np.where(m > p, 1.0 + (m - 1.0) / p, few)
    return np.where(np.asarray(chunks) > 1, m / p + (1.0 - 1.0 / p) / chunks, plain)


def _num_islands(network: Network, num_devices: Ints) -> Ints:
    """Nodes or slices behind one switched network at least, shape (spreads,)."""
    *inner, outermost = network.dimensions
    if not inner or outermost.topology is not Topology.SWITCH or is_torus(network):
        return np.ones_like(num_devices)
    return -(-num_devices // math.prod(each.size for each in inner))
