"""What the collectives of a step ask of each dimension of a network, and the split of a budget that ends them soonest.

Loads are traffic in bytes, whatever the bandwidth; of all splits of a budget the one is found that ends them soonest.

Won et al., "LIBRA: Enabling Workload-Aware Multi-Dimensional Network Topology Optimization for Distributed Training of
Large AI Models", ISPASS 2024, poses the problem and hands it to a quadratic solver. Here it is solved to a proven gap:
with 1/time of a load as a variable, every constraint is linear (traffic per second that goes each way against
bandwidth) and the objective, the sum of reciprocals, is convex; linear programs with tangents of it bound the optimum
from below, and each solution is an allocation, which bounds it from above.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.estimate.chunk_schedule import order_loads, schedule_chunks
from phaze_opt.estimate.collective_curves import pass_s_per_byte, ring_pass, runs_as_one_ring
from phaze_opt.estimate.collectives import collective_s
from phaze_opt.graph.operator import CollectiveKind
from phaze_opt.hardware.network import Chunking, NetworkDimension
from phaze_opt.record.arrays import Floats

GAP = 1e-6
"""Relative distance between the allocation found and the bound at which the search ends."""
MAX_ROUNDS = 60
FLOOR_SHARE = 0.001
"""Least share of the budget that a dimension gets: a link of no bandwidth is no link."""
START_FACTORS = np.geomspace(0.05, 20.0, 25)
"""Rates, relative to an equal split's, at which the first tangents touch."""


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
        return (Load(collective.name, scale * _ring_way(collective.kind, dimensions)),)
    inside_out = tuple(range(len(dimensions)))
    if is_exchange:
        ways = [np.array([pass_s_per_byte(dimension, kind=collective.kind) for dimension in dimensions])]
    elif chunking is Chunking.THEMIS:
        spanned = [index for index in inside_out if dimensions[index].size > 1]
        ways = [order_loads(dimensions, order) for order in permutations(spanned)]
    else:
        ways = [order_loads(dimensions, inside_out, collective.kind)]
    traffic = scale * np.array(ways)
    if chunking is Chunking.NONE:
        return tuple(Load(collective.name, row[None, :]) for row in np.diag(traffic[0]) if row.any())
    return (Load(collective.name, traffic),) if traffic.any() else ()


def _ring_way(kind: CollectiveKind, dimensions: Sequence[NetworkDimension]) -> Floats:
    """Seconds per byte of every level of one ring through all of them, shape (1, num_dimensions)."""
    levels = iter(ring_pass(dimensions, kind).levels)
    return np.array([[next(levels)[0] if dimension.size > 1 else 0.0 for dimension in dimensions]])


@dataclass(frozen=True, slots=True)
class Allocation:
    """Bandwidths that were found.

    Attributes:
        bandwidth_bytes_per_s: of each dimension, innermost first.
        seconds: time of the loads at these, s.
        bound_s: no allocation of the budget takes less, s.
    """

    bandwidth_bytes_per_s: tuple[float, ...]
    seconds: float
    bound_s: float

    @property
    def gap(self) -> float:
        """Relative distance to the bound."""
        return 1.0 - self.bound_s / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class BandwidthBudget:
    """What may be spent: the sum over dimensions of cost times bandwidth.

    Attributes:
        total: in bytes/s where every cost is 1, else in the costs' unit.
        costs: of a byte/s in each dimension.
    """

    total: float
    costs: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse budgets and costs that are not positive."""
        for key, values in (("total", (self.total,)), ("costs", self.costs)):
            if not all(math.isfinite(value) and value > 0 for value in values):
                message = f"{key} = {values} must be positive and finite"
                raise InputError(message, key=key)

    @property
    def floors(self) -> Floats:
        """Least bandwidth of each dimension, bytes/s."""
        return FLOOR_SHARE * self.total / np.array(self.costs)

    def equal_split(self) -> Floats:
        """The same bandwidth in every dimension, bytes/s."""
        return np.full(len(self.costs), self.total / sum(self.costs))


def loads_s(loads: Sequence[Load], bandwidth_bytes_per_s: Floats) -> float:
    """Time of loads at some bandwidths, each split over its ways as well as can be, s."""
    return sum(1.0 / _rate(load, bandwidth_bytes_per_s) for load in loads)


def allocate_bandwidth(loads: Sequence[Load], budget: BandwidthBudget) -> Allocation:
    """The allocation of a budget under which loads end soonest, to a gap of 1e-6.

    Every dimension keeps at least a thousandth of the budget.

    Raises:
        InputError: there is nothing to allocate for: no load asks anything of any dimension.
    """
    loads = [load for load in loads if load.ways.any()]
    if not loads:
        message = "no collective of this step leaves a device; give degrees of parallelism above 1"
        raise InputError(message, key="collectives")
    if all(np.count_nonzero(load.ways) == 1 for load in loads):
        bandwidth = square_root_rule(sum((load.ways[0] for load in loads), np.zeros(len(budget.costs))), budget)
        seconds = loads_s(loads, bandwidth)
        return Allocation(tuple(bandwidth.tolist()), seconds, seconds)
    return _by_tangents(loads, budget)


def square_root_rule(traffic_bytes: Floats, budget: BandwidthBudget) -> Floats:
    """Bandwidths that minimise the sum of traffic over bandwidth: proportional to sqrt(traffic / cost).

    From the KKT conditions: traffic_i / (cost_i B_i**2) is the same wherever B_i is above its floor.
    """
    costs, floors = np.array(budget.costs), budget.floors
    is_free = np.ones(len(costs), dtype=bool)
    bandwidth = floors.copy()
    while True:
        left = budget.total - float((costs * floors)[~is_free].sum())
        weight = np.sqrt(traffic_bytes * costs)
        scale = left / float(weight[is_free].sum()) if weight[is_free].any() else 0.0
        bandwidth = np.where(is_free, scale * weight / costs, floors)
        below = is_free & (bandwidth < floors)
        if not below.any():
            return bandwidth
        is_free &= ~below


def _rate(load: Load, bandwidth: Floats) -> float:
    """How often a second the load could be carried: a linear program over its ways."""
    if len(load.ways) == 1:
        return float(np.min(bandwidth[load.ways[0] > 0] / load.ways[0][load.ways[0] > 0]))
    from scipy.optimize import linprog

    found = linprog(-np.ones(len(load.ways)), A_ub=(load.ways / bandwidth).T, b_ub=np.ones(len(bandwidth)))
    return float(-found.fun)


def _by_tangents(loads: Sequence[Load], budget: BandwidthBudget) -> Allocation:
    """Kelley's method: tangents of 1/rate at the rates of the last solution, until bound and value meet."""
    from scipy.optimize import linprog

    equal = budget.equal_split()
    unit_s = loads_s(loads, equal)
    problem = _LinearProgram(loads, budget, equal, unit_s)
    best, value = equal, unit_s
    bound = 0.0
    for _ in range(MAX_ROUNDS):
        found = linprog(problem.costs, A_ub=problem.rows, b_ub=problem.limits, bounds=problem.bounds, method="highs")
        bound = max(bound, float(found.fun) * unit_s)
        bandwidth = found.x[: len(equal)] * equal
        seconds = loads_s(loads, bandwidth)
        if seconds < value:
            best, value = bandwidth, seconds
        if value - bound <= GAP * value:
            break
        problem.add_tangents(problem.rates(found.x))
    return Allocation(tuple(float(b) for b in best), value, min(bound, value))


class _LinearProgram:
    """Variables: bandwidths over an equal split's, rates each way of every load, and every load's time; units of 1."""

    def __init__(self, loads: Sequence[Load], budget: BandwidthBudget, equal: Floats, unit_s: float) -> None:
        self._num_dimensions = len(equal)
        self._ways = [load.ways / equal / unit_s for load in loads]
        num_ways = sum(len(ways) for ways in self._ways)
        self._width = self._num_dimensions + num_ways + len(loads)
        self.costs = np.zeros(self._width)
        self.costs[-len(loads) :] = 1.0
        floors = budget.floors / equal
        self.bounds = [(floor, None) for floor in floors] + [(0.0, None)] * (self._width - self._num_dimensions)
        self.rows = np.zeros((0, self._width))
        self.limits = np.zeros(0)
        self._add(np.array(budget.costs) * equal / budget.total, 1.0)
        self._starts = np.cumsum([self._num_dimensions, *(len(ways) for ways in self._ways)])
        for number, ways in enumerate(self._ways):
            for index in range(self._num_dimensions):
                row = np.zeros(self._width)
                row[self._starts[number] : self._starts[number + 1]] = ways[:, index]
                row[index] = -1.0
                self._add(row, 0.0)
        first = np.array([_rate(load, equal) * unit_s for load in loads])
        for factor in START_FACTORS:
            self.add_tangents(factor * first)

    def rates(self, solution: Floats) -> Floats:
        """Rate of each load in a solution, per unit of time."""
        pairs = zip(self._starts[:-1], self._starts[1:], strict=True)
        return np.array([solution[start:end].sum() for start, end in pairs])

    def add_tangents(self, rates: Floats) -> None:
        """Time >= 2/r - rate/r**2 for every load, with r its rate here."""
        for number, rate in enumerate(rates):
            if rate > 0:
                row = np.zeros(self._width)
                row[self._starts[number] : self._starts[number + 1]] = -1.0 / rate**2
                row[self._starts[-1] + number] = -1.0
                self._add(row, -2.0 / rate)

    def _add(self, row: Floats, limit: float) -> None:
        full = np.zeros(self._width)
        full[: len(row)] = row
        self.rows = np.vstack([self.rows, full])
        self.limits = np.append(self.limits, limit)
