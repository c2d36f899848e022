"""Upper bounds on the throughput of design points, without solving a schedule or an exact placement.

Lower bounds on every makespan by pooled dual vectors (`bound_phases`), then a lower bound on the batch time by a
relaxed placement (`bound_placement`), both for many designs at once.

The placement relaxed to a closed form: a lower bound on the batch time of every design at once.

`placement.solve` minimises, over tensor degree t, stages s, data degree d (t s d <= devices) and cuts of the chain,

    batch_time = (m + s - 1) max_p stage_time_p + max_p sync_p,    m = ceil(global_batch / (micro_batch d)).

The relaxation drops the order of the layers: the chain is its main kind (the most numerous layer, n of them), a first
and a last layer, and whatever else there is. For one (t, s) it bounds the two maxima apart:

- stage time. At least the mean over stages of all layers and both sides of every transfer; ceil(n / s) main layers
  and one transfer (some stage holds so many); any layer and one transfer. For the (t, s) where that leaves the least
  bound, the least T is sought at which stages of time <= T and within memory hold n main layers in all: the p-th stage
  from the end has its transfers, keeps min(p, m) micro-batches, and the first and last stage their end layer. A stage
  with fewer layers never takes more time or memory, so leaving other layers out keeps the real placement feasible
  there; so does letting a stage stash or recompute as it likes, for AUTO recomputes only where the stash does not fit,
  and stash is faster. m is the least over the d of this (t, s): fewer micro-batches in flight.
- synchronisation. Latency and bytes of the all-reduce of (t, s, d) exactly; the gradient and update of a stage at least
  the mean over stages, ceil(n / s) main layers, or any single layer; of one stage exactly (tied weights once).

Every transfer is priced at the least output of any layer but the last. Each of these never exceeds its counterpart for
the optimal placement, layer times are lower bounds of their schedules, and batch_time rises with every layer time; so
the minimum over (t, s, d) is no more than the optimum's batch time. Nothing fits if no (t, s) holds the main layers:
then no placement does. docs/decisions/0081.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.network import Cluster
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.objective import bound_kernels
from phaze_opt.objective.best_placement import layer_costs
from phaze_opt.objective.bill import own_chips
from phaze_opt.objective.bound_kernels import Relaxation
from phaze_opt.objective.bound_phases import MakespanBounds, PhasePools
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scenario import Scenario
from phaze_opt.objective.scheduled_plan import least_steps_s
from phaze_opt.objective.several_models import combine_rates
from phaze_opt.placement.problem import LayerCosts, RecomputePolicy
from phaze_opt.placement.solve import POLICY_CODE, NetworkTables, build_network_tables
from phaze_opt.record.arrays import Floats, Ints, ShortInts
from phaze_opt.record.pareto import undominated

_FIELDS = ("state_bytes", "gradient_bytes", "stash_bytes", "input_bytes", "working_set_bytes")
"""Fields behind the rows of `Relaxation.per_layer`, in their order."""


@dataclass(frozen=True, slots=True)
class RelaxedPlacement:
    """A model at one micro-batch whose placement is bounded for any number of designs.

    Attributes:
        relaxation: what no design changes.
        collective_s: tensor-parallel collectives of each option, kind and phase, shape (num_options, num_kinds, 3), s.
    """

    relaxation: Relaxation
    collective_s: Floats

    def batch_time_s(self, makespan_s: Floats, memory_bytes: Floats) -> Floats:
        """Lower bound on the batch time of each design, shape (num_designs,), s; inf where nothing fits.

        Args:
            makespan_s: lower bounds on the makespans, shape (num_designs, num_options, num_kinds, 3), s.
            memory_bytes: HBM of each design, shape (num_designs,).
        """
        return bound_batch_times(self.relaxation, makespan_s + self.collective_s, memory_bytes)


def bound_batch_times(relaxation: Relaxation, times: Floats, memory_bytes: Floats) -> Floats:
    """Lower bound on the batch time of each design, shape (num_designs,), s; inf where certainly nothing fits.

    Args:
        relaxation: the model.
        times: of one layer of each kind, shape (num_designs, num_options, num_kinds, 3), s.
        memory_bytes: of each design, shape (num_designs,).
    """
    bounds = np.empty(len(times))
    for capacity in np.unique(memory_bytes):
        rows = np.flatnonzero(memory_bytes == capacity)
        room = bound_kernels.describe_room(relaxation, float(capacity))
        bounds[rows] = bound_kernels.batch_time_bounds(relaxation, room, times[rows])
    return bounds


def relax_placement(compiled: CompiledModel, *, scenario: Scenario) -> RelaxedPlacement:
    """The relaxed placement of one compiled model."""
    graph = compiled.options[0].graph
    # One second each, so that the tied share of the last layer's update can be read off.
    ones = np.ones((len(graph.layers), 3))
    costs = tuple(layer_costs(option, ones, training=compiled.training) for option in compiled.options)
    training = compiled.training
    relaxation = build_relaxation(
        costs,
        graph.chain,
        cluster=scenario.cluster,
        parts=-(-training.global_batch // training.micro_batch),
        recompute=scenario.recompute,
    )
    return RelaxedPlacement(relaxation, np.array([option.collective_s for option in compiled.options]))


def build_relaxation(
    costs: Sequence[LayerCosts], chain: Sequence[int], *, cluster: Cluster, parts: int, recompute: RecomputePolicy
) -> Relaxation:
    """What the kernels need of a chain, whatever its layers take.

    Args:
        costs: per tensor degree; of the times only the ratio of ``tied_update_s`` to the last layer's update counts.
        chain: kind of each layer, numbered from 0; layers of one kind have equal costs.
        cluster: devices and network.
        parts: micro-batches of the whole batch, rounded up.
        recompute: policy.
    """
    num_kinds = max(chain) + 1
    counts = np.bincount(chain, minlength=num_kinds).astype(np.int64)
    main = int(counts.argmax())
    degrees = tuple(cost.tensor_parallel for cost in costs)
    tables = build_network_tables(cluster, degrees, len(chain))
    entry, data = _data_degrees(tables, degrees, len(chain), num_devices=cluster.num_devices, parts=parts)
    transfer_s = np.array([_transfers(cost, tables.transfer[row]) for row, cost in enumerate(costs)])
    # Over the boundaries 1 .. s - 1 of s stages: zero for one stage, column 0 unused.
    sums, least = np.zeros_like(transfer_s), np.zeros_like(transfer_s)
    sums[:, 2:] = np.cumsum(transfer_s[:, 1:-1], axis=1)
    least[:, 2:] = np.minimum.accumulate(transfer_s[:, 1:-1], axis=1)
    tied = [(c.tied_state_bytes, c.tied_gradient_bytes, c.tied_update_s / (c.update_s[-1] or 1.0)) for c in costs]
    return Relaxation(
        degrees=np.array(degrees, dtype=np.int64),
        counts=counts,
        kinds=np.array([main, *(-1 if kind == main else kind for kind in (chain[0], chain[-1]))], dtype=np.int64),
        num_main=int(counts[main]),
        per_layer=np.array([_per_kind(cost, chain, num_kinds) for cost in costs]),
        tied=np.array(tied, dtype=np.float64),
        transfer_s=transfer_s,
        transfer_sum_s=sums,
        transfer_min_s=least,
        entry=entry,
        data=data,
        policy=POLICY_CODE[recompute],
    )


def _per_kind(cost: LayerCosts, chain: Sequence[int], num_kinds: int) -> Floats:
    """Bytes of one layer of each kind, shape (5, num_kinds); zero for a kind that the chain does not have."""
    table = np.zeros((len(_FIELDS), num_kinds))
    for kind in set(chain):
        table[:, kind] = [getattr(cost, name)[chain.index(kind)] for name in _FIELDS]
    return table


def _transfers(cost: LayerCosts, coefficients: Floats) -> Floats:
    """Least time across each boundary, shape (n + 1,), s."""
    least_bytes = float(cost.output_bytes[:-1].min()) if cost.num_layers > 1 else 0.0
    seconds: Floats = coefficients[:, 0] + coefficients[:, 1] * least_bytes
    return seconds


def _data_degrees(
    tables: NetworkTables, degrees: tuple[int, ...], num_layers: int, *, num_devices: int, parts: int
) -> tuple[Ints, Floats]:
    """`Relaxation.entry` and ``data``: the data degrees of each (t, stages) that no other one beats in every column."""
    entry = np.zeros((len(degrees), num_layers + 2), dtype=np.int64)
    rows: list[list[float]] = []
    for option, degree in enumerate(degrees):
        for num_stages in range(1, num_layers + 1):
            entry[option, num_stages] = len(rows)
            stride = degree * num_stages
            if stride <= num_devices:
                offset = int(tables.sync_offset[stride])
                most = num_devices // stride
                sync = tables.sync[offset + 1 : offset + most + 1]
                micro = -(-parts // np.arange(1, most + 1))
                distinct: Floats = np.unique(np.column_stack((micro, sync)).astype(np.float64), axis=0)
                rows += distinct[undominated(distinct)].tolist()
        entry[option, num_layers + 1] = len(rows)
    return entry, np.array(rows, dtype=np.float64).reshape(-1, 3)


CHUNK_ROWS = 4096
"""Designs estimated at a time; a matter of memory only."""
OVER_AREA, OVER_TDP, OUT_OF_MEMORY, OVER_CAPEX = range(1, 5)
_REASONS = ("", "over the area budget", "over the TDP budget", "no placement fits the memory", "over the capex budget")


@dataclass(frozen=True, slots=True)
class ThroughputBound:
    """What one point reaches at most; ``reason`` says why it is certainly infeasible, if it is."""

    throughput_samples_per_s: float
    tdp_w: float
    area_mm2: float
    reason: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class BoundTable:
    """Bounds of many designs at one micro-batch; every column of shape (num_designs,).

    Attributes:
        throughput_samples_per_s: upper bound; 0 where certainly infeasible.
        tdp_w, area_mm2: exact.
        reason: index of the reason for certain infeasibility, 0 where there is none.
    """

    throughput_samples_per_s: Floats
    tdp_w: Floats
    area_mm2: Floats
    reason: Ints

    def bounds(self) -> list[ThroughputBound]:
        """The rows, in order."""
        columns = (self.throughput_samples_per_s.tolist(), self.tdp_w.tolist(), self.area_mm2.tolist())
        reasons = [_REASONS[reason] for reason in self.reason.tolist()]
        return [ThroughputBound(*row) for row in zip(*columns, reasons, strict=True)]


class ThroughputBounder:
    """Bounds the points of one scenario; graphs, dual vectors and relaxations are made once and kept.

    Keeping them changes speed, never a bound: each depends on the scenario, the constants and the point alone.
    """

    def __init__(self, objective: Objective, *, pools: PhasePools | None = None) -> None:
        """Share the objective's graphs; nothing is computed yet.

        Args:
            objective: of the scenario.
            pools: dual vectors for all models, grown by the caller; unless given, each model has its own.
        """
        self.objective = objective
        self._shared = pools
        self._pools: dict[int, PhasePools] = {}
        self._relaxed: dict[tuple[int, int], RelaxedPlacement] = {}
        self._at_links: dict[float, ThroughputBounder] = {}

    def bound_points(self, points: Sequence[DesignPoint]) -> tuple[ThroughputBound, ...]:
        """An upper bound on the throughput of every point, in order."""
        rows_of: dict[int, list[int]] = {}
        for row, point in enumerate(points):
            rows_of.setdefault(point.micro_batch, []).append(row)
        bounds: dict[int, ThroughputBound] = {}
        for micro_batch, rows in rows_of.items():
            for start in range(0, len(rows), CHUNK_ROWS):
                chunk = rows[start : start + CHUNK_ROWS]
                table = self.bound_choices(self._table([points[row] for row in chunk]), micro_batch)[0]
                bounds |= zip(chunk, table.bounds(), strict=True)
        return tuple(bounds[row] for row in range(len(points)))

    def within_budgets(self, points: Sequence[DesignPoint]) -> tuple[bool, ...]:
        """Whether each point keeps to the scenario's budgets of area, TDP and capex."""
        scenario = self.objective.scenario
        if not points or not any((scenario.max_tdp_w, scenario.max_area_mm2, scenario.max_capex_usd)):
            return (True,) * len(points)
        return tuple((self.broken_budgets(self._table(list(points)))[2] == 0).tolist())

    def broken_budgets(self, table: AcceleratorTable) -> tuple[Floats, Floats, Ints]:
        """Area, mm2, TDP, W, and the budget that each chip breaks, 0 for none; by the comparisons of `Objective`."""
        scenario = self.objective.scenario
        area = chip_area_mm2(table, self.objective.constants)
        power = chip_power_w(table, scenario.cluster.network, self.objective.constants)
        reason = np.zeros(len(table), dtype=np.int64)
        if scenario.max_tdp_w is not None:
            reason[power / scenario.max_tdp_w - 1.0 > 0.0] = OVER_TDP
        if scenario.max_area_mm2 is not None:
            reason[area / scenario.max_area_mm2 - 1.0 > 0.0] = OVER_AREA
        if scenario.max_capex_usd is not None:
            capex_usd = own_chips(table, scenario, self.objective.constants).capex_usd
            reason[(reason == 0) & (capex_usd / scenario.max_capex_usd - 1.0 > 0.0)] = OVER_CAPEX
        return area, power, reason

    def bound_choices(self, table: AcceleratorTable, micro_batch: int) -> tuple[BoundTable, ShortInts]:
        """Upper bounds on the throughput of any chips at one micro-batch, and the pool entries behind them.

        Estimates take 32 bytes an operator each; entries have shape (num_designs, slots of all models), -1 over budget.
        """
        area, power, reason = self.broken_budgets(table)
        rate = np.zeros(len(table))
        rows = np.flatnonzero(reason == 0)
        choices = np.full((len(table), 0), -1, dtype=np.int32)
        links = table.link_bytes_per_s[rows]
        for link_bytes_per_s in np.unique(links).tolist():
            mine = rows[links == link_bytes_per_s]
            rate[mine], chosen = self._of_links(link_bytes_per_s)._rates(table.take(mine), micro_batch)
            if choices.shape[1] != chosen.shape[1]:
                choices = np.full((len(table), chosen.shape[1]), -1, dtype=np.int32)
            choices[mine] = chosen
        reason[(reason == 0) & (rate == 0.0)] = OUT_OF_MEMORY
        return BoundTable(rate, power, area, reason), choices

    def _of_links(self, link_bytes_per_s: float) -> "ThroughputBounder":
        """The bounder of chips with links of their own; dual vectors bound schedules, which no network changes."""
        objective = self.objective.at_links(link_bytes_per_s)
        if objective is self.objective:
            return self
        if link_bytes_per_s not in self._at_links:
            other = ThroughputBounder(objective, pools=self._shared)
            other._pools = self._pools
            self._at_links[link_bytes_per_s] = other
        return self._at_links[link_bytes_per_s]

    def makespan_bounds(self, index: int, table: AcceleratorTable, micro_batch: int) -> MakespanBounds:
        """Bounds of every makespan of one model, and the pool entries behind them."""
        compiled, estimates = self.objective.bounded(table, micro_batch, index=index)
        return self._pools_of(index).bounds_and_choices(compiled, estimates, table)

    def combined(self, rates: Floats, micro_batch: int) -> Floats:
        """The scenario's throughput of models' throughputs, (num_designs, num_models); 0 where one of them is."""
        if rates.shape[1] == 1:
            column: Floats = rates[:, 0]
            return column
        objective = self.objective
        ideals = [1.0 / objective.compiled(index, micro_batch).flops_per_sample for index in range(rates.shape[1])]
        common = objective.scenario.common
        rows = rates.tolist()
        return np.array([combine_rates(row, ideals, common=common) if min(row) > 0.0 else 0.0 for row in rows])

    def _rates(self, table: AcceleratorTable, micro_batch: int) -> tuple[Floats, ShortInts]:
        """Bounds of the scenario's throughput within budgets, samples/s; 0 where a model certainly does not fit."""
        models = range(len(self.objective.scenario.models))
        columns, choices = zip(*(self._model_rates(index, table, micro_batch) for index in models), strict=True)
        return self.combined(np.column_stack(columns), micro_batch), np.concatenate(choices, axis=1)

    def _model_rates(self, index: int, table: AcceleratorTable, micro_batch: int) -> tuple[Floats, ShortInts]:
        """Bounds of one model's throughput, samples/s, 0 where it certainly does not fit; and the entries behind."""
        bounds, memory_bytes = self.makespan_bounds(index, table, micro_batch), table.hbm_bytes.astype(np.float64)
        if self.objective.scenario.plans is None:
            relaxed = self._relaxed_of(index, micro_batch, self.objective.compiled(index, micro_batch))
            batch_s = relaxed.batch_time_s(bounds.makespan_s, memory_bytes)
        else:
            batch_s = least_steps_s(self.objective.planned(index), bounds, memory_bytes=memory_bytes)
        rates: Floats = self.objective.scenario.global_batch / batch_s
        return rates, bounds.choices

    def _pools_of(self, index: int) -> PhasePools:
        """The dual vectors of one model."""
        if self._shared is not None:
            return self._shared
        if index not in self._pools:
            self._pools[index] = PhasePools(self.objective.scenario.exclusivity)
            self.objective.grow_pools(self._pools[index], index=index)
        return self._pools[index]

    def _relaxed_of(self, index: int, micro_batch: int, compiled: CompiledModel) -> RelaxedPlacement:
        """The relaxed placement of one model at one micro-batch."""
        key = (index, micro_batch)
        if key not in self._relaxed:
            self._relaxed[key] = relax_placement(compiled, scenario=self.objective.scenario)
        return self._relaxed[key]

    def _table(self, points: Sequence[DesignPoint]) -> AcceleratorTable:
        """The designed chips of points; row i equals `Objective.accelerator` of point i."""
        return chips_of(PointColumns.of(points), self.objective.constants)


def bound_points(objective: Objective, points: Sequence[DesignPoint]) -> tuple[ThroughputBound, ...]:
    """An upper bound on the throughput of every point; keep a `ThroughputBounder` to bound again and again."""
    return ThroughputBounder(objective).bound_points(points)
