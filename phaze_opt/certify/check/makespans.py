"""Layer times of all rows from the entries that bound their blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import MULTIPLIERS_FILE, POINTS_FILE
from phaze_opt.certify.check.pool import PricedBlock, PricedPool
from phaze_opt.certify.check.refusal import refuse
from phaze_opt.certify.check.sharded import ModelData, PhaseGraph, Sharded
from phaze_opt.certify.check.trees import PricedTree
from phaze_opt.estimate.protocol import Estimates
from phaze_opt.hardware.accelerator import AcceleratorTable

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
