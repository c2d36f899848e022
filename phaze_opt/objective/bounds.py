"""Upper bounds on the throughput of design points, without solving a schedule or an exact placement.

Lower bounds on every makespan by pooled dual vectors (`bound_phases`), then a lower bound on the batch time by a
relaxed placement (`bound_placement`), both for many designs at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_area_mm2, chip_power_w
from phaze_opt.objective.bill import own_chips
from phaze_opt.objective.bound_phases import MakespanBounds, PhasePools
from phaze_opt.objective.bound_placement import RelaxedPlacement, relax_placement
from phaze_opt.objective.compile import CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scheduled_plan import least_steps_s
from phaze_opt.objective.several_models import combine_rates
from phaze_opt.record.arrays import Floats, Ints, ShortInts

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
