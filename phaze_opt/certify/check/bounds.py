"""Every upper bound worked out again: layer times from the entries that bound their blocks, then the placement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import BOUND_SLACK, MULTIPLIERS_FILE, POINTS_FILE, Infeasibility, PlacementBound
from phaze_opt.certify.check.exact import Memory, exact_batch_time
from phaze_opt.certify.check.files import CertificateFiles
from phaze_opt.certify.check.pipelines import Batch
from phaze_opt.certify.check.pool import PricedBlock, PricedPool, check_slots
from phaze_opt.certify.check.problem_data import CheckedProblem, PreparedModel, throughput
from phaze_opt.certify.check.relaxed import PipelineChoice, list_choices, relaxed_batch_time, start_values
from phaze_opt.certify.check.report import refuse
from phaze_opt.certify.check.sharded import ModelData, PhaseGraph, Sharded
from phaze_opt.certify.check.trees import PricedTree
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.design import chips_of
from phaze_opt.hardware.template import PointColumns

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
CHUNK_ROWS = 4096
"""Rows worked on at once: latencies of some hundred operators on so many chips stay within some hundred MB."""
BOUND_TOLERANCE = 2e-9
"""Relative difference of bounds that flows and sums within their own tolerance explain."""


class RowBounds:
    """Bounds of the makespans of some rows on their accelerators.

    Args:
        pool: priced entries.
        estimates: of the model's operators on the rows' accelerators.
        chips: those accelerators.
        entries: entry of every slot of the model, shape (rows, slots of the model).
        rows: of ``points.parquet``, for messages, shape (rows,).
    """

    def __init__(
        self, pool: PricedPool, estimates: Estimates, chips: AcceleratorTable, *, entries: Ints, rows: Ints
    ) -> None:
        """Keep all of it."""
        self._pool = pool
        self._estimates = estimates
        self._num_cores = np.stack([chips.num_tc, chips.num_vc], axis=1).astype(np.float64)
        self._bandwidth = chips.hbm_bandwidth_bytes_per_s
        self._entries = entries
        self._rows = rows
        self._slot = 0

    def layer_times(self, data: ModelData) -> list[Floats]:
        """Bounds of forward, backward and update of every distinct layer of every tensor degree, collectives included.

        Returns:
            For each degree an array of shape (rows, num_distinct_layers, 3), s.
        """
        self._slot = 0
        return [self._option_times(option) for option in data.options]

    def _option_times(self, option: Sharded) -> Floats:
        makespans = [[self._makespan(phase) for phase in layer] for layer in option.phases]
        times: Floats = np.moveaxis(np.array(makespans), 2, 0) + option.collective_s
        return times

    def _makespan(self, phase: PhaseGraph) -> Floats:
        """The sum over blocks, or the HBM floor where that is more; shape (rows,), s."""
        blocks = self._pool.blocks[self._pool.find(phase)]
        spread = self._estimates.spread_s[:, phase.columns]
        single = self._estimates.one_core_s[:, phase.columns]
        total = np.zeros(len(self._rows))
        for block in blocks:
            chosen = list(block.operators)
            if len(chosen) == 1:
                total += np.minimum(spread[:, chosen[0]], single[:, chosen[0]])
            else:
                total += self._block_bound(block, spread[:, chosen], single[:, chosen], self._entries[:, self._slot])
                self._slot += 1
        floor = self._estimates.traffic_bytes[:, phase.columns].sum(axis=1) / self._bandwidth
        makespan: Floats = np.maximum(total, floor)
        return makespan

    def _block_bound(self, block: PricedBlock, spread: Floats, single: Floats, entry_of: Ints) -> Floats:
        """Bound of one block by the entry that each row names."""
        bounds = np.empty(len(entry_of))
        for number in np.unique(entry_of).tolist():
            chosen = np.flatnonzero(entry_of == number)
            if not 0 <= number < len(block.entries):
                message = f"slot {self._slot} names entry {number} of {len(block.entries)} ({MULTIPLIERS_FILE})"
                refuse(message, file=POINTS_FILE, row=int(self._rows[chosen[0]]))
            entry = block.entries[number]
            if isinstance(entry, PricedTree):
                self._check_tree(entry, spread[chosen], single[chosen], chosen)
            bounds[chosen] = entry.lower_s(spread[chosen], single[chosen], self._num_cores[chosen])
        return bounds

    def _check_tree(self, tree: PricedTree, spread: Floats, single: Floats, chosen: Ints) -> None:
        """The tree holds for these rows' designs."""
        good = (self._num_cores[chosen] <= np.array(tree.max_cores, dtype=np.float64)).all(axis=1)
        if not good.all():
            row = int(self._rows[chosen[int(np.argmin(good))]])
            message = f"slot {self._slot} is bounded by a tree that holds for at most {tree.max_cores} cores"
            refuse(message, file=POINTS_FILE, row=row)
        timed = ((spread > 0.0) & (single > 0.0)).all(axis=1)
        if tree.needs_time and not timed.all():
            row = int(self._rows[chosen[int(np.argmin(timed))]])
            message = (
                f"slot {self._slot} is bounded by a tree that orders operators, which takes operators of some length"
            )
            refuse(message, file=POINTS_FILE, row=row)


def entries_of_rows(
    table: NDArray[np.int32], index: Ints, *, slots: Sequence[int], rows: Ints, micro_batch: int
) -> Ints:
    """The entries that rows name for the slots of one model, shape (rows, len(slots)).

    Raises:
        CertificateError: an index is outside the table.
    """
    good = (index >= 0) & (index < len(table))
    if not good.all():
        at = int(np.argmin(good))
        message = f"multipliers_index is {index[at]} but mb{micro_batch} of {MULTIPLIERS_FILE} has {len(table)} rows"
        refuse(message, file=POINTS_FILE, row=int(rows[at]))
    entries: Ints = table[index][:, list(slots)].astype(np.int64)
    return entries


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """Rows of one HBM capacity and micro-batch."""

    hbm_bytes: int
    micro_batch: int
    models: tuple[PreparedModel, ...]
    choices: tuple[tuple[PipelineChoice, ...], ...]


class BoundCheck:
    """Works out the bounds of all rows of a certificate.

    Args:
        problem: scenario, space and estimator.
        files: rows and multipliers.
        pool: priced entries.
        space: every point of it.
    """

    def __init__(self, problem: CheckedProblem, files: CertificateFiles, pool: PricedPool, space: PointColumns) -> None:
        """Keep all of it."""
        self._problem = problem
        self._files = files
        self._pool = pool
        self._space = space

    def check(self, on_rows: Callable[[int], None]) -> None:
        """Check every row; ``on_rows`` is told how many were done.

        Raises:
            CertificateError: names the first row whose bound does not follow.
        """
        axes = self._problem.certificate.space.axes
        for micro_batch in axes.micro_batch:
            models = self._problem.models(micro_batch)
            check_slots(self._problem.certificate.slots, self._pool, models)
            prepared = self._problem.prepare(models)
            for hbm_bytes in axes.hbm_bytes:
                choices = self._choices(prepared, hbm_bytes, micro_batch)
                group = _RowGroup(hbm_bytes, micro_batch, prepared, choices)
                rows = np.flatnonzero((self._space.micro_batch == micro_batch) & (self._space.hbm_bytes == hbm_bytes))
                for start in range(0, len(rows), CHUNK_ROWS):
                    chunk = rows[start : start + CHUNK_ROWS]
                    self._check_chunk(group, chunk)
                    on_rows(len(chunk))

    def _choices(
        self, models: Sequence[PreparedModel], hbm_bytes: int, micro_batch: int
    ) -> tuple[tuple[PipelineChoice, ...], ...]:
        """The (t, S) of every model that one HBM capacity has room for."""
        scenario = self._problem.certificate.scenario
        return tuple(
            list_choices(
                model.data.options,
                scenario.cluster,
                batch=Batch(scenario.global_batch, micro_batch),
                memory_bytes=float(hbm_bytes),
                policy=scenario.recompute,
            )
            for model in models
        )

    def _check_chunk(self, group: _RowGroup, every: Ints) -> None:
        """Bounds of some rows."""
        points = self._files.points
        rows = every[points.has_bound[every]]
        if len(rows) == 0:
            return
        is_exact = points.bound[rows] == PlacementBound.EXACT.value
        chips = chips_of(self._space.take(rows), self._problem.constants)
        batch_s = np.empty((len(group.models), len(rows)))
        for position, model in enumerate(group.models):
            entries = entries_of_rows(
                self._files.multipliers[group.micro_batch],
                points.multipliers_index[rows],
                slots=model.slots,
                rows=rows,
                micro_batch=group.micro_batch,
            )
            estimates = self._problem.estimate(model, chips)
            times = RowBounds(self._pool, estimates, chips, entries=entries, rows=rows).layer_times(model.data)
            batch_s[position] = self._batch_times(group, group.choices[position], times, is_exact)
        self._compare(rows, throughput(self._problem.certificate.scenario, batch_s * (1.0 - BOUND_SLACK)))

    def _batch_times(
        self, group: _RowGroup, choices: tuple[PipelineChoice, ...], times: list[Floats], is_exact: NDArray[np.bool_]
    ) -> Floats:
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
            memory = Memory(float(group.hbm_bytes), self._problem.certificate.scenario.recompute)
            for at, row in enumerate(exact.tolist()):
                of_row = [of_option[at] for of_option in of_exact]
                batch_s[row] = exact_batch_time(choices, of_row, (floor_s[:, at], value[:, at]), memory=memory)
        return batch_s

    def _compare(self, rows: Ints, upper: Floats) -> None:
        """Stated bounds and reasons against those worked out."""
        points = self._files.points
        stated, reason = points.throughput_upper_samples_per_s[rows], points.reason[rows]
        says_full = reason == Infeasibility.OUT_OF_MEMORY.value
        is_full = upper == 0.0
        good = (says_full == is_full) & (np.abs(stated - upper) <= BOUND_TOLERANCE * upper)
        if good.all():
            return
        at = int(np.argmin(good))
        if says_full[at]:
            message = f"reason is '{reason[at]}' but a placement fits"
        elif is_full[at]:
            message = "no placement fits the memory but the row is not infeasible"
        else:
            message = f"throughput_upper_samples_per_s is {stated[at]:.9g} but its multipliers give {upper[at]:.9g}"
        refuse(message, file=POINTS_FILE, row=int(rows[at]))
