"""Costs of collectives at a network's specified rates and measured curves, many payloads at once.

What a software reaches of these rates is fitted, and is applied by `price_step.traffic_s`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from phaze_opt.estimate.collective_curves import ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import collective_coefficients, collective_parts
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import NetworkDimension
from phaze_opt.record.arrays import Floats, Indices


@dataclass(frozen=True, slots=True)
class Traffic:
    """Collectives or transfers at the networks' specified rates; the arrays share one shape.

    Attributes:
        count: how many.
        outer_count: those of them that leave the innermost dimension.
        latency_s: the networks' own latencies, and what measured curves add.
        inner_s: time of the bytes on the innermost dimension.
        outer_s: the same on all others, one after the other.
        ring_inner_s, ring_outer_s: time of rings through measured levels on the innermost level, and on the slowest of
            the others; the slower of the two counts.
    """

    count: Floats
    outer_count: Floats
    latency_s: Floats
    inner_s: Floats
    outer_s: Floats
    ring_inner_s: Floats
    ring_outer_s: Floats

    @classmethod
    def of(cls, costs: Floats) -> "Traffic":
        """Columns of costs: shape (..., NUM_FIELDS)."""
        return cls(*np.moveaxis(costs, -1, 0))

    def take(self, rows: Indices) -> "Traffic":
        """Some rows, or the same row often, of the first axis; any shape of ``rows``."""
        return Traffic(*(getattr(self, field.name)[rows] for field in fields(self)))


COUNT, OUTER_COUNT, LATENCY, INNER, OUTER, RING_INNER, RING_OUTER = range(len(fields(Traffic)))
NUM_FIELDS = len(fields(Traffic))


def collective_cost(kind: CollectiveKind, payload_bytes: Floats, dimensions: Sequence[NetworkDimension]) -> Floats:
    """Collectives of one kind over one group, shape (*payloads, fields); nothing where there is nothing to send."""
    costs = np.zeros((*payload_bytes.shape, NUM_FIELDS))
    costs[..., COUNT] = 1.0
    costs[..., LATENCY], moving_s = collective_parts(kind, payload_bytes, dimensions)
    if kind is not CollectiveKind.ALL_TO_ALL and runs_as_one_ring(dimensions):
        inner, outer = _ring_levels(kind, dimensions)
        costs[..., RING_INNER], costs[..., RING_OUTER] = inner * moving_s, outer * moving_s
        costs[..., OUTER_COUNT] = costs[..., RING_OUTER] > 0.0
    else:
        inner_s = np.minimum(moving_s, collective_coefficients(kind, dimensions[:1]).s_per_byte * payload_bytes)
        costs[..., INNER], costs[..., OUTER] = inner_s, moving_s - inner_s
        costs[..., OUTER_COUNT] = moving_s > inner_s
    return np.where(payload_bytes[..., None] > 0.0, costs, 0.0)


def _ring_levels(kind: CollectiveKind, dimensions: Sequence[NetworkDimension]) -> tuple[float, float]:
    """Shares of a ring's time on its slowest level that the innermost level and the slowest other one take."""
    ring = ring_pass(dimensions, kind)
    levels = [per_byte / ring.s_per_byte for per_byte, *_ in ring.levels]
    inside = int(dimensions[0].size > 1)
    return sum(levels[:inside]), max(levels[inside:], default=0.0)
