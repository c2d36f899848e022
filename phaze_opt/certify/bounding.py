"""Upper bounds of points of a space by index, with the pool entries that they follow from."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import BOUND_SLACK, Slot
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.best_placement import placement_problem
from phaze_opt.objective.bound_phases import MakespanBounds, PhasePools, PoolKey, phase_slots, pool_key
from phaze_opt.objective.bounds import CHUNK_ROWS, OUT_OF_MEMORY, ThroughputBounder
from phaze_opt.objective.compile import PHASES, CompiledModel
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.scheduled_plan import least_step
from phaze_opt.placement.problem import PlacementStatus
from phaze_opt.placement.solve import solve_placement
from phaze_opt.record.arrays import Floats, Ints, ShortInts
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.space.grid import Grid
from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True, eq=False)
class BoundRows:
    """Bounds of some points, in their order; every column of shape (num_points,).

    Attributes:
        rate_upper: throughput, samples/s; 0 where infeasible.
        reason: 0, or the place in `Infeasibility` of why it is infeasible.
        area_mm2, tdp_w: exact.
        entries: pool entry of every slot, shape (num_points, num_slots); -1 where a budget is broken.
    """

    rate_upper: Floats
    reason: NDArray[np.int8]
    area_mm2: Floats
    tdp_w: Floats
    entries: ShortInts

    @classmethod
    def joined(cls, parts: "Sequence[BoundRows]") -> "BoundRows":
        """Bounds of several parts, one after another."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def take(self, places: Ints | slice) -> "BoundRows":
        """Those at some places, in their order."""
        return BoundRows(*(getattr(self, each.name)[places] for each in fields(self)))


@dataclass(frozen=True, slots=True)
class BoundOptimum:
    """The best placement, or full plan, of one model on bounds of its makespans.

    Attributes:
        option: of the compiled model, whose layers it runs.
        batch_s: its batch, no longer than that of any; infinite if nothing fits, s.
    """

    option: int
    batch_s: float


class SpaceBounder:
    """Bounds the points of one problem; graphs, dual vectors and relaxations are made once and kept.

    One pool for each topology, whichever models, degrees and layers have it. The pools may be handed on from problem
    to problem: vectors hold whatever the constants are.
    """

    def __init__(self, objective: Objective, space: SearchSpace | Grid, *, pools: PhasePools | None = None) -> None:
        """Grow the pools unless given."""
        self.objective = objective
        self.space = space
        models = range(len(objective.scenario.models))
        if pools is None:
            pools = PhasePools(objective.scenario.exclusivity)
            for index in models:
                objective.grow_pools(pools, index=index)
        self.pools = pools
        self.bounder = ThroughputBounder(objective, pools=pools)
        compiled = [objective.compiled(index, space.axes.micro_batch[0]) for index in models]
        self.topologies = _topologies(pools, compiled)
        self.slots = _slots(compiled, self.topologies, is_planned=objective.scenario.plans is not None)

    def pool(self, topology: int) -> DualPool:
        """The pool of a topology of ``topologies``."""
        return self.pools.pools()[self.topologies[topology]]

    def chips(self, indices: Ints) -> tuple[AcceleratorTable, Ints]:
        """The chips and micro-batches of points."""
        columns = self.space.columns(indices)
        return chips_of(columns, self.objective.constants), columns.micro_batch

    def bound(self, indices: Ints) -> BoundRows:
        """Bounds by the relaxed placement."""
        return self.bound_columns(self.space.columns(indices))

    def bound_columns(self, columns: PointColumns) -> BoundRows:
        """The same of any designs, whether the space has them or not."""
        chips, micro_batches = chips_of(columns, self.objective.constants), columns.micro_batch
        rows = _blank_rows(len(columns), len(self.slots))
        for micro_batch in np.unique(micro_batches).tolist():
            same = np.flatnonzero(micro_batches == micro_batch)
            for start in range(0, len(same), CHUNK_ROWS):
                picked = same[start : start + CHUNK_ROWS]
                table, entries = self.bounder.bound_choices(chips.take(picked), micro_batch)
                rows.rate_upper[picked] = table.throughput_samples_per_s
                rows.reason[picked] = table.reason
                rows.area_mm2[picked], rows.tdp_w[picked] = table.area_mm2, table.tdp_w
                # Where every point breaks a budget no model was looked at, and there are no choices.
                if entries.shape[1] == len(self.slots):
                    rows.entries[picked] = entries
        return rows

    def bound_exactly(self, indices: Ints) -> BoundRows:
        """Bounds by the optimal placement; of points within budgets."""
        rows = _blank_rows(len(indices), len(self.slots))
        for row, rate_upper, choices in self._optima(self.space.columns(indices), enough_rate=0.0):
            rows.rate_upper[row], rows.entries[row] = rate_upper, choices
        rows.reason[rows.rate_upper == 0.0] = OUT_OF_MEMORY
        return rows

    def rates_exactly(self, columns: PointColumns, *, enough_rate: float) -> Floats:
        """Upper bounds on the throughput of any designs by the optimal placement, samples/s, shape (num_designs,).

        Args:
            columns: the designs.
            enough_rate: a bound need not be lower than this.
        """
        rates = np.zeros(len(columns))
        for row, rate_upper, _ in self._optima(columns, enough_rate=enough_rate):
            rates[row] = rate_upper
        return rates

    def _optima(self, columns: PointColumns, *, enough_rate: float) -> Iterator[tuple[int, float, ShortInts]]:
        """Of each design its place, its bound by the optimal placement and the pool entries behind that."""
        chips, micro_batches = chips_of(columns, self.objective.constants), columns.micro_batch
        models = range(len(self.objective.scenario.models))
        for micro_batch in np.unique(micro_batches).tolist():
            rows = np.flatnonzero(micro_batches == micro_batch)
            table = chips.take(rows)
            bounds = [self.bounder.makespan_bounds(index, table, micro_batch) for index in models]
            for place, row in enumerate(rows.tolist()):
                chip, own = table.take(np.array([place])), [each.of_design(place) for each in bounds]
                optima = [
                    self.optimum(i, micro_batch, b, chip, enough_rate=enough_rate)
                    for i, b in zip(models, own, strict=True)
                ]
                yield row, self.rate_upper(optima, micro_batch), np.concatenate([each.choices[0] for each in own])

    def optimum(
        self, index: int, micro_batch: int, bounds: MakespanBounds, chip: AcceleratorTable, *, enough_rate: float = 0.0
    ) -> BoundOptimum:
        """The optimal placement or plan of one model on one chip.

        Of a single model under full plans only what is needed to bound its throughput by ``enough_rate``, samples/s.
        """
        objective = self.objective.at_links(float(chip.link_bytes_per_s[0]))
        compiled, scenario = objective.compiled(index, micro_batch), objective.scenario
        memory_bytes = float(chip.hbm_bytes[0])
        if scenario.plans is not None:
            is_alone = len(scenario.models) == 1 and enough_rate > 0.0
            # A hair more, as the rate follows from a time that is lowered by the slack.
            enough_s = scenario.global_batch / enough_rate * (1.0 + 2.0 * BOUND_SLACK) if is_alone else math.inf
            planned = objective.planned(index)
            return BoundOptimum(*least_step(planned, bounds, memory_bytes=memory_bytes, enough_s=enough_s))
        result = solve_placement(placement_problem(compiled, bounds.makespan_s[0], memory_bytes, scenario=scenario))
        if result.status is PlacementStatus.INFEASIBLE:
            return BoundOptimum(0, math.inf)
        degrees = [option.graph.tensor_parallel for option in compiled.options]
        return BoundOptimum(degrees.index(result.tensor_parallel), result.batch_time_s)

    def rate_upper(self, optima: Sequence[BoundOptimum], micro_batch: int) -> float:
        """Upper bound of the throughput that optima on lower bounds give, samples/s; 0 if a model does not fit."""
        if any(math.isinf(each.batch_s) for each in optima):
            return 0.0
        batch = self.objective.scenario.global_batch
        # Sums of a batch time may round up: a bound must not.
        rates = np.array([[batch / (each.batch_s * (1.0 - BOUND_SLACK)) for each in optima]])
        return float(self.bounder.combined(rates, micro_batch)[0])


def _blank_rows(count: int, num_slots: int) -> BoundRows:
    return BoundRows(
        rate_upper=np.zeros(count),
        reason=np.zeros(count, dtype=np.int8),
        area_mm2=np.zeros(count),
        tdp_w=np.zeros(count),
        entries=np.full((count, num_slots), -1, dtype=np.int32),
    )


def _topologies(pools: PhasePools, compiled: Sequence[CompiledModel]) -> tuple[PoolKey, ...]:
    """Topologies of all models in the order of models, degrees, layers and phases; each has a pool afterwards."""
    keys: dict[PoolKey, None] = {}
    for model in compiled:
        for option in model.options:
            for layer in option.phases:
                for phase in layer:
                    pools.pool(phase)
                    keys.setdefault(pool_key(phase))
    return tuple(keys)


def _slots(compiled: Sequence[CompiledModel], topologies: Sequence[PoolKey], *, is_planned: bool) -> tuple[Slot, ...]:
    """Columns of the multipliers' tables; the same for every micro-batch, as it changes sizes and no topology."""
    position = {key: number for number, key in enumerate(topologies)}
    return tuple(
        Slot(
            model=index,
            tensor_parallel=model.options[slot.option].graph.tensor_parallel,
            layer=slot.layer,
            phase=model.options[slot.option].phases[slot.layer][slot.phase].phase,
            topology=position[slot.key],
            block=slot.block,
            set_number=slot.option if is_planned else -1,
            is_again=slot.phase >= len(PHASES),
        )
        for index, model in enumerate(compiled)
        for slot in phase_slots(model)
    )
