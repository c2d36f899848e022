"""Collectives cut into chunks that flow through the dimensions of a network, in a fixed order or Themis's.

Rashidi et al., "Themis: A Network Bandwidth-Aware Collective Scheduling Policy for Distributed Training of DL Models",
ISCA 2022: every chunk of an all-reduce may take the dimensions in an order of its own. The dimension that a
reduce-scatter takes first carries most of it, so chunks begin in the dimension with the least to do so far; the
all-gather goes back the same way. While one chunk is in one dimension, others are in the others.

Times are whole ticks, so that sums and comparisons are exact. In floats the last digit of the CPU's matrix kernels
would choose among orders that load the dimensions alike.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.collective_curves import pass_latency_s, pass_s_per_byte
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, NetworkDimension
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.units import GIGA

NUM_CHUNKS = 64
"""Chunks of a collective; Themis's default."""
MAX_DIMENSIONS = 5
"""All orders of the dimensions are listed: 120 for five."""

THRESHOLD_DIVISOR = 16
"""Loads that differ by less than a sixteenth of a chunk's pass keep the order of the dimensions (Themis, section 4)."""
MAX_STARTS = 24
"""Orders from which balancing begins besides the greedy one's result."""
TICKS = 2**42
"""In the slowest dimension's pass of a whole chunk: passes are rounded by under 1e-12 of it; a million chunks fit."""

Order = tuple[int, ...]

_FALLS_FREE, _ARRIVES = 0, 1

Passes = Sequence[tuple[int, int]]
"""Dimension and busy ticks of one chunk's passes, in order."""


@dataclass(frozen=True, slots=True)
class ChunkSchedule:
    """Orders of the chunks and what they make of the network.

    Attributes:
        orders: dimensions of each chunk's reduce-scatter, first to last; an all-gather takes them backwards.
        load_s: time that each dimension's links are busy.
        seconds: from the first byte to the last.
    """

    orders: tuple[Order, ...]
    load_s: tuple[float, ...]
    seconds: float

    @property
    def bound_s(self) -> float:
        """The busiest dimension's load: no order of the same chunks ends sooner."""
        return max(self.load_s, default=0.0)


def schedule_chunks(
    kind: CollectiveKind,
    payload_bytes: float,
    dimensions: Sequence[NetworkDimension],
    *,
    chunking: Chunking = Chunking.THEMIS,
    num_chunks: int = NUM_CHUNKS,
) -> ChunkSchedule:
    """Cut a collective into chunks and send them through the dimensions.

    Args:
        kind: which collective.
        payload_bytes: its payload S.
        dimensions: innermost first, each with the group's size in it; of measured curves latency and bandwidth count.
        chunking: order of the dimensions. Themis's answer is never worse than the fixed order's: where it is, the fixed
            order is kept.
        num_chunks: chunks of equal size; NONE makes one.

    Raises:
        InputError: more than five dimensions of more than one device, or no chunks.
    """
    if num_chunks < 1:
        message = f"num_chunks = {num_chunks} must be at least 1"
        raise InputError(message, key="num_chunks")
    spanned = [index for index, dimension in enumerate(dimensions) if dimension.size > 1]
    if len(spanned) > MAX_DIMENSIONS:
        message = f"chunks of {len(spanned)} dimensions are not scheduled; give at most {MAX_DIMENSIONS}"
        raise InputError(message, key="dimensions")
    if not spanned:
        return ChunkSchedule((), tuple(0.0 for _ in dimensions), 0.0)
    count = 1 if chunking is Chunking.NONE else num_chunks
    own = [dimensions[index] for index in spanned]
    best = _replayed(kind, payload_bytes, own, [tuple(range(len(own)))] * count)
    if chunking is Chunking.THEMIS and kind is not CollectiveKind.ALL_TO_ALL:
        best = _soonest(best, kind, payload_bytes, own)
    return _widened(best, spanned, len(dimensions))


@lru_cache(maxsize=4096)
def chunked_s_per_byte(kind: CollectiveKind, dimensions: tuple[NetworkDimension, ...], chunking: Chunking) -> float:
    """Seconds per byte of a collective in chunks, latencies left out: without them its time is in proportion to S."""
    without = [replace(dimension, latency_s=0.0) for dimension in dimensions]
    return schedule_chunks(kind, GIGA, without, chunking=chunking).seconds / GIGA


def _soonest(
    best: ChunkSchedule, kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension]
) -> ChunkSchedule:
    """The schedule that ends first: ``best``, or one of balanced orders; of equals the one with the lowest loads."""
    for orders in balanced_orders(dimensions, len(best.orders)):
        found = _replayed(kind, payload_bytes, dimensions, orders)
        if (found.seconds, found.bound_s) < (best.seconds, best.bound_s):
            best = found
    return best


def _replayed(
    kind: CollectiveKind, payload_bytes: float, dimensions: Sequence[NetworkDimension], orders: Sequence[Order]
) -> ChunkSchedule:
    """Run every chunk's passes; latencies of chunks under way overlap.

    A dimension that is free takes the shortest pass waiting for it (Themis's smallest chunk first), then the earliest
    chunk: small passes release their chunk to other dimensions soon. Passes often end together; in whole ticks they do
    so for every payload, and rounding never chooses between two chunks.
    """
    clock = _Clock.of(payload_bytes / len(orders), dimensions)
    known = {order: _steps(kind, dimensions, order) for order in set(orders)}
    ticks = {order: [(index, clock.busy_ticks(load)) for index, load in steps] for order, steps in known.items()}
    latency = [clock.latency_ticks(level) for level in dimensions]
    end = _fewest_ticks(kind, [ticks[order] for order in orders], latency)
    loads = [0.0] * len(dimensions)
    for order in orders:
        for index, load in known[order]:
            loads[index] += load * clock.chunk_bytes
    return ChunkSchedule(tuple(orders), tuple(loads), max(end * clock.tick_s, *loads))


def _fewest_ticks(kind: CollectiveKind, passes: Sequence[Passes], latency: Sequence[int]) -> int:
    """When the last chunk is done; a reduce-scatter or an all-gather is also played backwards, and the sooner end kept.

    One is the other with time reversed, so they take equally long; taking the shortest pass first does not see to that.
    """
    end = _last_arrival(passes, latency)
    if kind not in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER):
        return end
    return min(end, _last_arrival([each[::-1] for each in passes], latency))


@dataclass(frozen=True, slots=True)
class _Clock:
    """Ticks of a replay: so many in the slowest dimension's pass of a whole chunk and the longest latency."""

    chunk_bytes: float
    slowest_s_per_byte: float
    longest_latency_s: float

    @classmethod
    def of(cls, chunk_bytes: float, dimensions: Sequence[NetworkDimension]) -> "_Clock":
        slowest = max(pass_s_per_byte(dimension) for dimension in dimensions)
        return cls(chunk_bytes, slowest, max(pass_latency_s(dimension) for dimension in dimensions))

    @property
    def tick_s(self) -> float:
        return (self.chunk_bytes * self.slowest_s_per_byte + self.longest_latency_s) / TICKS

    def busy_ticks(self, load_s_per_byte: float) -> int:
        """Of a pass, from its time per byte: without latencies the same for every payload, to the last digit."""
        return round(TICKS * load_s_per_byte / (self.slowest_s_per_byte + self._latency_s_per_byte))

    def latency_ticks(self, dimension: NetworkDimension) -> int:
        return round(pass_latency_s(dimension) / self.tick_s) if self.tick_s > 0.0 else 0

    @property
    def _latency_s_per_byte(self) -> float:
        if self.longest_latency_s == 0.0:
            return 0.0
        return self.longest_latency_s / self.chunk_bytes if self.chunk_bytes > 0.0 else math.inf


def _last_arrival(steps: Sequence[Passes], latency: Sequence[int]) -> int:
    """Tick at which the last chunk leaves its last dimension; ``steps`` are dimension and busy ticks of its passes."""
    queues: list[list[tuple[int, int, int]]] = [[] for _ in latency]
    is_busy = [False] * len(latency)
    # Events: time, kind (a dimension falls free before chunks arrive), dimension or chunk, number of its pass.
    events = [(0, _ARRIVES, chunk, 0) for chunk in range(len(steps))]
    end = 0
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, what, which, number = heapq.heappop(events)
            if what == _FALLS_FREE:
                is_busy[which] = False
            elif number < len(steps[which]):
                index, busy = steps[which][number]
                heapq.heappush(queues[index], (busy, which, number))
        for index, queue in enumerate(queues):
            if queue and not is_busy[index]:
                busy, chunk, number = heapq.heappop(queue)
                is_busy[index] = True
                done = now + busy + latency[index]
                end = max(end, done)
                heapq.heappush(events, (now + busy, _FALLS_FREE, index, 0))
                heapq.heappush(events, (done, _ARRIVES, chunk, number + 1))
    return end


def _steps(kind: CollectiveKind, dimensions: Sequence[NetworkDimension], order: Order) -> list[tuple[int, float]]:
    """Dimension and busy time of every pass of one chunk, s per byte of the chunk."""
    if kind is CollectiveKind.ALL_TO_ALL:
        return [(index, pass_s_per_byte(dimensions[index])) for index in order]
    loads = order_loads(dimensions, order)
    scatter = [(index, float(loads[index])) for index in order]
    gather = scatter[::-1]
    if kind is CollectiveKind.REDUCE_SCATTER:
        return scatter
    return gather if kind is CollectiveKind.ALL_GATHER else scatter + gather


def _widened(schedule: ChunkSchedule, spanned: Sequence[int], num_dimensions: int) -> ChunkSchedule:
    """The schedule in the numbers of all dimensions, also those with a single device."""
    load_s = [0.0] * num_dimensions
    for index, load in zip(spanned, schedule.load_s, strict=True):
        load_s[index] = load
    orders = tuple(tuple(spanned[index] for index in order) for order in schedule.orders)
    return ChunkSchedule(orders, tuple(load_s), schedule.seconds)


def order_loads(
    dimensions: Sequence[NetworkDimension], order: Order, kind: CollectiveKind = CollectiveKind.ALL_REDUCE
) -> Floats:
    """Busy time of each dimension for one pass of one byte in this order, shape (num_dimensions,), s/byte."""
    loads = np.zeros(len(dimensions))
    share = 1.0
    for index in order:
        loads[index] = pass_s_per_byte(dimensions[index], share, kind)
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


def _greedy(orders: Sequence[Order], load_of: Ints, num_chunks: int) -> list[int]:
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


def _improved(counts: Ints, load_of: Ints) -> Ints:
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


def _busiest_first(load: Ints) -> tuple[int, ...]:
    return tuple(sorted(load.tolist(), reverse=True))
