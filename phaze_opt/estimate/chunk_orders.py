"""Orders of dimensions for the chunks of a collective that keep all links equally busy, in whole ticks.

Loads are integers, so that sums and comparisons are exact. In floats the last digit of the CPU's matrix kernels would
choose among orders that load the dimensions alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.collective_curves import pass_s_per_byte
from phaze_opt.hardware.network import NetworkDimension

THRESHOLD_DIVISOR = 16
"""Loads that differ by less than a sixteenth of a chunk's pass keep the order of the dimensions (Themis, section 4)."""
MAX_STARTS = 24
"""Orders from which balancing begins besides the greedy one's result."""
TICKS = 2**42
"""In the slowest dimension's pass of a whole chunk: passes are rounded by under 1e-12 of it; a million chunks fit."""

Order = tuple[int, ...]
Ticks = NDArray[np.int64]


def order_loads(dimensions: Sequence[NetworkDimension], order: Order) -> NDArray[np.float64]:
    """Busy time of each dimension for one pass of one byte in this order, shape (num_dimensions,), s/byte."""
    loads = np.zeros(len(dimensions))
    share = 1.0
    for index in order:
        loads[index] = pass_s_per_byte(dimensions[index], share)
        share /= dimensions[index].size
    return loads


def balanced_orders(dimensions: Sequence[NetworkDimension], num_chunks: int) -> list[list[Order]]:
    """Orders of all chunks: Themis's own greedy list, then a list for every balance found, lowest loads first.

    The greedy pass leaves the dimensions up to a chunk apart; single chunks are then given other orders for as long as
    the busiest dimensions gain. That also begins with all chunks in one order, for each order. Different starts end in
    different orders, often of equal loads: which list ends soonest, only a replay can tell.
    """
    orders = list(permutations(range(len(dimensions))))
    slowest = max(pass_s_per_byte(dimension) for dimension in dimensions)
    load_of = np.array([np.rint(TICKS * (order_loads(dimensions, order) / slowest)) for order in orders]).astype(int)
    greedy = _greedy(orders, load_of, num_chunks)
    alike = num_chunks * np.eye(len(orders), dtype=np.int64)[:MAX_STARTS]
    starts = [np.bincount(greedy, minlength=len(orders)), *alike]
    ends = {tuple(_improved(start, load_of).tolist()) for start in starts}
    ranked = sorted((_busiest_first(np.array(end) @ load_of), end) for end in ends)
    return [[orders[index] for index in each] for each in (greedy, *(_spread(counts) for _, counts in ranked))]


def _spread(counts: Sequence[int]) -> list[int]:
    """Indices, each as often as counted and evenly spread over the sequence, so that no dimension waits for long."""
    places = [((number + 0.5) / count, index) for index, count in enumerate(counts) for number in range(count)]
    return [index for _, index in sorted(places)]


def _greedy(orders: Sequence[Order], load_of: Ticks, num_chunks: int) -> list[int]:
    """Index of each chunk's order: dimensions by load so far, lightest first."""
    place = {order: index for index, order in enumerate(orders)}
    whole_pass = load_of.max(axis=0)
    load = np.zeros(load_of.shape[1], dtype=np.int64)
    taken: list[int] = []
    for _ in range(num_chunks):
        order = orders[0]
        if THRESHOLD_DIVISOR * (load.max() - load.min()) > whole_pass[np.argmin(load)]:
            order = tuple(np.argsort(load, kind="stable").tolist())
        taken.append(place[order])
        load += load_of[place[order]]
    return taken


def _improved(counts: Ticks, load_of: Ticks) -> Ticks:
    """Counts after moving one chunk at a time to another order while that lowers the loads, busiest first."""
    counts = counts.copy()
    load = counts @ load_of
    while True:
        sources = np.flatnonzero(counts)
        moved = load[None, None, :] - load_of[sources][:, None, :] + load_of[None, :, :]
        ranked = -np.sort(-moved, axis=2).reshape(-1, len(load))
        best = int(np.lexsort(ranked.T[::-1])[0])
        if tuple(ranked[best].tolist()) >= _busiest_first(load):
            return counts
        counts[sources[best // len(load_of)]] -= 1
        counts[best % len(load_of)] += 1
        load = counts @ load_of


def _busiest_first(load: Ticks) -> tuple[int, ...]:
    return tuple(sorted(load.tolist(), reverse=True))
