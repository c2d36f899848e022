"""What collectives ask of each dimension of a network, whatever its bandwidth: traffic in bytes, and how it adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.chunk_orders import order_loads
from phaze_opt.estimate.chunk_schedule import schedule_chunks
from phaze_opt.estimate.collective_curves import pass_s_per_byte, ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, NetworkDimension

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GroupCollective:
    """A collective that runs ``count`` times in a step.

    Attributes:
        name: what it is, such as ``tensor all_reduce``.
        kind: which collective.
        payload_bytes: its payload S.
        dimensions: one for every dimension of the network, innermost first, with the group's size in it.
        count: times a step.
    """

    name: str
    kind: CollectiveKind
    payload_bytes: float
    dimensions: tuple[NetworkDimension, ...]
    count: float = 1.0

    def seconds(self, chunking: Chunking = Chunking.NONE) -> float:
        """Time of one, s: dimension after dimension, or in chunks."""
        if chunking is Chunking.NONE:
            return collective_s(self.kind, self.payload_bytes, self.dimensions)
        return schedule_chunks(self.kind, self.payload_bytes, self.dimensions, chunking=chunking).seconds


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Traffic of a step whose time is the busiest dimension's, and which may be split over several ways.

    The time at bandwidths B is the least over shares f (of sum 1) of max_i (f @ ways)_i / B_i.

    Attributes:
        name: collective it belongs to.
        ways: traffic of each dimension if all went this way, bytes in a step, shape (num_ways, num_dimensions).
    """

    name: str
    ways: Floats


def collective_loads(collective: GroupCollective, chunking: Chunking) -> tuple[Load, ...]:
    """Loads of a collective; their times add up to its time without latencies.

    In chunks it is one load, with a way for every order of the dimensions that the chunking allows. Dimension after
    dimension it is one load a dimension, as their times add up; levels that were measured run as one ring, one load.
    """
    dimensions = collective.dimensions
    bandwidth = np.array([dimension.bandwidth_bytes_per_s for dimension in dimensions])
    passes = 2.0 if collective.kind is CollectiveKind.ALL_REDUCE else 1.0
    scale = passes * collective.count * collective.payload_bytes * bandwidth
    is_exchange = collective.kind is CollectiveKind.ALL_TO_ALL
    if chunking is Chunking.NONE and not is_exchange and runs_as_one_ring(dimensions):
        return (Load(collective.name, scale * _ring_way(dimensions)),)
    inside_out = tuple(range(len(dimensions)))
    if is_exchange:
        ways = [np.array([pass_s_per_byte(dimension) for dimension in dimensions])]
    elif chunking is Chunking.THEMIS:
        spanned = [index for index in inside_out if dimensions[index].size > 1]
        ways = [order_loads(dimensions, order) for order in permutations(spanned)]
    else:
        ways = [order_loads(dimensions, inside_out)]
    traffic = scale * np.array(ways)
    if chunking is Chunking.NONE:
        return tuple(Load(collective.name, row[None, :]) for row in np.diag(traffic[0]) if row.any())
    return (Load(collective.name, traffic),) if traffic.any() else ()


def _ring_way(dimensions: Sequence[NetworkDimension]) -> Floats:
    """Seconds per byte of every level of one ring through all of them, shape (1, num_dimensions)."""
    levels = iter(ring_pass(dimensions).levels)
    return np.array([[next(levels)[0] if dimension.size > 1 else 0.0 for dimension in dimensions]])
