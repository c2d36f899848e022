"""Every upper bound worked out again: layer times from the entries that bound their blocks, then the placement."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK, MULTIPLIERS_FILE, Infeasibility, PlacementBound
from phaze_opt.certify.check.exact import exact_batch_time
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.pipelines import Batch, Memory
from phaze_opt.certify.check.pool import PricedBlock, PricedPool, check_slots
from phaze_opt.certify.check.prices import PricedTree
from phaze_opt.certify.check.problem_data import CheckedProblem, ModelData, PhaseGraph, PreparedModel, throughput
from phaze_opt.certify.check.relaxed import PipelineChoice, list_choices, relaxed_batch_time, start_values
from phaze_opt.certify.check.report import demand
from phaze_opt.certify.check.searches import PricedSearch
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.scenario import Scenario
from phaze_opt.record.arrays import Flags, Floats, Ints, ShortInts
from phaze_opt.schedule.problem import cores_of_each

_NONE_KNOWN: Mapping[tuple[int, int], Floats] = MappingProxyType({})
CHUNK_ROWS = 4096
"""Rows worked on at once: latencies of some hundred operators on so many chips stay within some hundred MB."""
BOUND_TOLERANCE = 2e-9
"""Relative difference of bounds that flows and sums within their own tolerance explain."""


@dataclass(slots=True)
class RowBounds:
    """Bounds of the makespans of some rows on their accelerators.

    Attributes:
        pool: priced entries.
        estimates: of the model's operators on the rows' accelerators.
        chips: those accelerators.
        entries: entry of every slot of the model, shape (rows, slots of the model).
        rows: of ``points.parquet``, for messages, shape (rows,).
    """

    pool: PricedPool
    estimates: Estimates
    chips: AcceleratorTable
    entries: Ints
    rows: Ints
    _num_cores: Floats = field(init=False)
    _slot: int = 0

    def __post_init__(self) -> None:
        """Count cores once."""
        self._num_cores = cores_of_each(self.chips).astype(np.float64)

    def layer_times(self, data: ModelData) -> list[Floats]:
        """Bounds of forward, backward and update of every distinct layer of every tensor degree, collectives included.

        Returns:
            For each degree an array of shape (rows, num_distinct_layers, 3), s.
        """
        makespans = self.makespans([option.phases for option in data.options])
        return [m + o.collective_s for m, o in zip(makespans, data.options, strict=True)]

    def makespans(
        self, phases: Sequence[Sequence[Sequence[PhaseGraph]]], *, known: Mapping[tuple[int, int], Floats] = _NONE_KNOWN
    ) -> list[Floats]:
        """Bounds of all phases of a model, in the order of its slots.

        Args:
            phases: by groups of layers, layers and passes.
            known: bounds of phases by where their operators are, which need not be worked out, s.

        Returns:
            For each group of layers an array of shape (rows, layers, phases), s.
        """
        self._slot = 0
        groups = [[[self._known(phase, known) for phase in layer] for layer in layers] for layers in phases]
        return [np.moveaxis(np.array(group), 2, 0) for group in groups]

    def _known(self, phase: PhaseGraph, known: Mapping[tuple[int, int], Floats]) -> Floats:
        if phase.span not in known:
            return self._makespan(phase)
        self._slot += sum(len(block.operators) > 1 for block in self.pool.blocks[self.pool.find(phase)])
        return known[phase.span]

    def _makespan(self, phase: PhaseGraph) -> Floats:
        """The sum over blocks, as they follow one another, or the HBM floor where that is more; shape (rows,), s."""
        spread = self.estimates.spread_s[:, phase.columns]
        single = self.estimates.one_core_s[:, phase.columns]
        total = np.zeros(len(self.rows))
        for block in self.pool.blocks[self.pool.find(phase)]:
            chosen = list(block.operators)
            if len(chosen) == 1:
                total += np.minimum(spread[:, chosen[0]], single[:, chosen[0]])
            else:
                total += self._block_bound(block, spread[:, chosen], single[:, chosen], self.entries[:, self._slot])
                self._slot += 1
        floor = self.estimates.traffic_bytes[:, phase.columns].sum(axis=1) / self.chips.hbm_bandwidth_bytes_per_s
        makespan: Floats = np.maximum(total, floor)
        return makespan

    def _block_bound(self, block: PricedBlock, spread: Floats, single: Floats, entry_of: Ints) -> Floats:
        """Bound of one block by the entry that each row names."""
        demand(
            (entry_of >= 0) & (entry_of < len(block.entries)),
            lambda at: f"slot {self._slot} names entry {entry_of[at]} of {len(block.entries)} ({MULTIPLIERS_FILE})",
            rows=self.rows,
        )
        bounds = np.empty(len(entry_of))
        for number in np.unique(entry_of).tolist():
            chosen, entry = np.flatnonzero(entry_of == number), block.entries[number]
            if isinstance(entry, PricedTree | PricedSearch):
                self._check_reach(entry, spread[chosen], single[chosen], chosen)
            bounds[chosen] = entry.lower_s(spread[chosen], single[chosen], self._num_cores[chosen])
        return bounds

    def _check_reach(self, entry: PricedTree | PricedSearch, spread: Floats, single: Floats, chosen: Ints) -> None:
        """The tree or search holds for these rows' designs."""
        kind = "tree" if isinstance(entry, PricedTree) else "search"
        demand(
            (self._num_cores[chosen] <= np.array(entry.max_cores, dtype=np.float64)).all(axis=1),
            f"slot {self._slot} is bounded by a {kind} that holds for at most {entry.max_cores} cores",
            rows=self.rows[chosen],
        )
        if entry.needs_time:
            demand(
                ((spread > 0.0) & (single > 0.0)).all(axis=1),
                f"slot {self._slot} is bounded by a tree that orders operators, which takes operators of some length",
                rows=self.rows[chosen],
            )


def same_rows(micro_batches: Sequence[int], space: PointColumns) -> Iterator[tuple[int, int, int]]:
    """Micro-batch, HBM capacity and rate of links of rows that are worked on together."""
    yield from product(micro_batches, np.unique(space.hbm_bytes).tolist(), np.unique(space.link_bytes_per_s).tolist())


def rows_of(space: PointColumns, micro_batch: int, capacity_bytes: int, link_bytes_per_s: int) -> Ints:
    """Their rows."""
    is_same = (space.micro_batch == micro_batch) & (space.hbm_bytes == capacity_bytes)
    return np.flatnonzero(is_same & (space.link_bytes_per_s == link_bytes_per_s))


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """Rows of one HBM, rate of links and micro-batch: every (t, S) of every model that this memory has room for."""

    memory: Memory
    micro_batch: int
    models: tuple[PreparedModel, ...]
    choices: tuple[tuple[PipelineChoice, ...], ...]


@dataclass(frozen=True, slots=True)
class BoundCheck:
    """Works out the bounds of all rows of a certificate.

    Attributes:
        problem: scenario, space and estimator.
        files: rows and multipliers.
        pool: priced entries.
        space: every point of it.
    """

    problem: CheckedProblem
    files: CertificateFiles
    pool: PricedPool
    space: PointColumns

    def check(self) -> Iterator[int]:
        """Check every row; yields how many are done.

        Raises:
            CertificateError: names the first row whose bound does not follow.
        """
        num_done = 0
        for micro_batch, capacity, links in same_rows(self.problem.certificate.space.axes.micro_batch, self.space):
            problem = self.problem.at_links(float(links))
            models = problem.models(micro_batch)
            check_slots(problem.certificate.slots, self.pool, [model.data for model in models])
            group = self._group(models, capacity, micro_batch, problem.certificate.scenario)
            rows = rows_of(self.space, micro_batch, capacity, links)
            for start in range(0, len(rows), CHUNK_ROWS):
                chunk = rows[start : start + CHUNK_ROWS]
                self._check_chunk(group, chunk[self.files.points.has_bound[chunk]])
                num_done += len(chunk)
                yield num_done

    def _group(
        self, models: tuple[PreparedModel, ...], capacity_bytes: int, micro_batch: int, scenario: Scenario
    ) -> _RowGroup:
        memory = Memory(float(capacity_bytes), scenario.recompute)
        batch = Batch(scenario.global_batch, micro_batch)
        choices = (list_choices(m.data.options, scenario.cluster, batch=batch, memory=memory) for m in models)
        return _RowGroup(memory, micro_batch, models, tuple(choices))

    def _check_chunk(self, group: _RowGroup, rows: Ints) -> None:
        """Stated bounds and reasons of some rows of a group against those worked out."""
        points = self.files.points
        if len(rows) == 0:
            return
        is_exact = points.bound[rows] == PlacementBound.EXACT.value
        chips = chips_of(self.space.take(rows), self.problem.constants)
        entries = self._entries(rows, group.micro_batch)
        batch_s = np.empty((len(group.models), len(rows)))
        for position, model in enumerate(group.models):
            estimates = self.problem.estimate(model, chips)
            bounds = RowBounds(self.pool, estimates, chips, entries[:, list(model.slots)].astype(np.int64), rows)
            times = bounds.layer_times(model.data)
            batch_s[position] = _batch_times(group.choices[position], times, is_exact, group.memory)
        # Lower batch times by what the rounding of flows and sums may have added: the bound stays one.
        upper = throughput(self.problem.certificate.scenario, batch_s * (1.0 - BOUND_SLACK))
        stated, reason = points.throughput_upper_samples_per_s[rows], points.reason[rows]
        says_full, is_full = reason == Infeasibility.OUT_OF_MEMORY.value, upper == 0.0

        def rule(at: int) -> str:
            if says_full[at]:
                return f"reason is '{reason[at]}' but a placement fits"
            if is_full[at]:
                return "no placement fits the memory but the row is not infeasible"
            return f"throughput_upper_samples_per_s is {stated[at]:.9g} but its multipliers give {upper[at]:.9g}"

        demand((says_full == is_full) & (np.abs(stated - upper) <= BOUND_TOLERANCE * upper), rule, rows=rows)

    def _entries(self, rows: Ints, micro_batch: int) -> ShortInts:
        """The entries that rows name, shape (rows, slots)."""
        table, index = self.files.multipliers[micro_batch], self.files.points.multipliers_index[rows]
        where = f"mb{micro_batch} of {MULTIPLIERS_FILE}"
        demand(
            (index >= 0) & (index < len(table)),
            lambda at: f"multipliers_index is {index[at]} but {where} has {len(table)} rows",
            rows=rows,
        )
        return table[index]


def _batch_times(choices: tuple[PipelineChoice, ...], times: list[Floats], is_exact: Flags, memory: Memory) -> Floats:
    """Batch times by each row's own placement bound, shape (rows,), s; infinite where nothing fits."""
    batch_s: Floats = np.full(len(is_exact), np.inf)
    if not choices:
        return batch_s
    relaxed, exact = np.flatnonzero(~is_exact), np.flatnonzero(is_exact)
    if len(relaxed):
        batch_s[relaxed] = relaxed_batch_time(choices, [of_option[relaxed] for of_option in times])
    if len(exact):
        of_exact = [of_option[exact] for of_option in times]
        floor_s, value = start_values(choices, of_exact)
        for at, row in enumerate(exact.tolist()):
            of_row = [of_option[at] for of_option in of_exact]
            batch_s[row] = exact_batch_time(choices, of_row, (floor_s[:, at], value[:, at]), memory=memory)
    return batch_s
