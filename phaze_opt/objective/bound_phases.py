"""Lower bounds on the makespans of every layer phase of a model, for many designs at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.objective import bound_kernels
from phaze_opt.objective.compile import CompiledModel, CompiledPhase
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.schedule.problem import Exclusivity

Floats = NDArray[np.float64]
PoolKey = tuple[tuple[CoreType, ...], tuple[tuple[int, int], ...]]


class PhasePools:
    """Dual vectors of every distinct scheduling problem of a model; problems of equal topology share theirs.

    A vector bounds the makespan on every design (`schedule.duals`), whichever design it was made for; so what it was
    made for decides how tight a bound is, never whether it holds.
    """

    def __init__(self, exclusivity: Exclusivity) -> None:
        """Start without any pool."""
        self._exclusivity = exclusivity
        self._pools: dict[PoolKey, DualPool] = {}

    def grow(self, compiled: CompiledModel, estimates: Estimates, table: AcceleratorTable) -> None:
        """Add the vectors that are best for one phase of each topology on each design of a table.

        The tensor degree rotates with the design, as the same topology serves several degrees.
        """
        for row in range(len(table)):
            turn = row % len(compiled.options)
            options = (*compiled.options[turn:], *compiled.options[:turn])
            done: set[PoolKey] = set()
            for phase in (phase for option in options for layer in option.phases for phase in layer):
                key = (phase.core_types, phase.edges)
                if key not in done and max(len(block) for block in phase.structure.blocks) > 1:
                    done.add(key)
                    self._pool(phase).add(
                        estimates.one_core_s[row, phase.columns],
                        estimates.spread_s[row, phase.columns],
                        num_tc=int(table.num_tc[row]),
                        num_vc=int(table.num_vc[row]),
                    )

    def makespan_bounds(self, compiled: CompiledModel, estimates: Estimates, table: AcceleratorTable) -> Floats:
        """Lower bounds, the HBM floor included, shape (num_designs, num_options, num_layers, 3), s."""
        bounds = np.empty((len(table), len(compiled.options), len(compiled.options[0].phases), 3))
        for option, entry in enumerate(compiled.options):
            for row, layer in enumerate(entry.phases):
                for column, phase in enumerate(layer):
                    bounds[:, option, row, column] = self._bound(phase, estimates, table)
        return bounds

    def _bound(self, phase: CompiledPhase, estimates: Estimates, table: AcceleratorTable) -> Floats:
        """Bounds of one problem."""
        traffic = bound_kernels.column_sums(estimates.hbm_bytes, phase.columns)
        return self._pool(phase).lower_bounds(
            estimates.one_core_s[:, phase.columns],
            estimates.spread_s[:, phase.columns],
            num_tc=table.num_tc,
            num_vc=table.num_vc,
            floor_s=traffic / table.hbm_bandwidth_bytes_per_s,
        )

    def _pool(self, phase: CompiledPhase) -> DualPool:
        """The pool of a problem's topology, made when first needed."""
        key = (phase.core_types, phase.edges)
        if key not in self._pools:
            self._pools[key] = DualPool(phase.structure, self._exclusivity)
        return self._pools[key]

    def __len__(self) -> int:
        """Vectors of all pools."""
        return sum(len(pool) for pool in self._pools.values())
