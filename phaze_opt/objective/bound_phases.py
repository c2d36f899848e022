"""Lower bounds on the makespans of every layer phase of a model, for many designs at once."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.protocol import Estimates
from phaze_opt.graph.operator import CoreType
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective import bound_kernels
from phaze_opt.objective.compile import CompiledModel, CompiledPhase
from phaze_opt.record.arrays import Floats, Ints, ShortInts
from phaze_opt.schedule.dual_pool import DualPool
from phaze_opt.schedule.problem import Cores, Exclusivity, cores_of_each
from phaze_opt.units import MEBI, gib_to_bytes

PoolKey = tuple[tuple[CoreType, ...], tuple[tuple[int, int], ...]]


POOL_MICRO_BATCHES = (1, 8)
"""Micro-batches whose problems the dual vectors are made for; those of any micro-batch use them."""
POOL_DESIGNS = (
    (1, 1, 256, 256, 128),
    (1, 64, 256, 128, 32),
    (2, 2, 256, 256, 32),
    (4, 16, 128, 256, 16),
    (8, 2, 128, 128, 128),
    (16, 64, 64, 128, 8),
    (32, 4, 64, 64, 64),
    (64, 128, 32, 64, 4),
    (128, 16, 32, 32, 32),
    (256, 512, 16, 32, 2),
    (1024, 64, 8, 16, 16),
    (4096, 4096, 4, 4, 2),
)
"""What they are made for: num_tc, num_vc, tc_width, tc_depth and GLB in MiB. Spread over Phaze's space, and fixed, so
that the bound of a point never depends on what else is bounded."""
POOL_HBM_BYTES = gib_to_bytes(64)


def pool_chips(constants: Constants) -> AcceleratorTable:
    """The designs that dual vectors are made for."""
    points = [DesignPoint(tc, vc, w, depth, w, glb * MEBI, POOL_HBM_BYTES, 1) for tc, vc, w, depth, glb in POOL_DESIGNS]
    return chips_of(PointColumns.of(points), constants)


@dataclass(frozen=True, slots=True)
class PhaseSlot:
    """A block of one phase that a pool bounds.

    Attributes:
        option, layer, phase: position of the phase in `CompiledModel.options`.
        key: its topology.
        block: number of the block in the phase's structure.
    """

    option: int
    layer: int
    phase: int
    key: PoolKey
    block: int


@dataclass(frozen=True, slots=True, eq=False)
class MakespanBounds:
    """Lower bounds on the makespans of one model on many designs, and what gives them.

    Attributes:
        makespan_s: the HBM floor included, shape (num_designs, num_options, num_layers, num_phases), s.
        choices: entry used for each of `phase_slots`, shape (num_designs, num_slots).
        attention_s: what selective recomputation runs again, as it is, shape (num_designs, num_options, num_layers), s;
            of full plans.
    """

    makespan_s: Floats
    choices: ShortInts
    attention_s: Floats

    def of_design(self, row: int) -> "MakespanBounds":
        """Those of one design."""
        here = slice(row, row + 1)
        return MakespanBounds(self.makespan_s[here], self.choices[here], self.attention_s[here])


def pool_key(phase: CompiledPhase) -> PoolKey:
    """What phases with the same pool share."""
    return phase.core_types, phase.edges


def phase_slots(compiled: CompiledModel) -> tuple[PhaseSlot, ...]:
    """The blocks of two or more operators of every phase, in the order of options, layers, phases and blocks."""
    return tuple(
        PhaseSlot(option, row, column, pool_key(phase), block)
        for option, entry in enumerate(compiled.options)
        for row, layer in enumerate(entry.phases)
        for column, phase in enumerate(layer)
        for block, operators in enumerate(phase.structure.blocks)
        if len(operators) > 1
    )


class PhasePools:
    """Dual vectors of every distinct scheduling problem of a model; problems of equal topology share theirs.

    A vector bounds the makespan on every design (`schedule.duals`), whichever design it was made for; so what it was
    made for decides how tight a bound is, never whether it holds.
    """

    def __init__(self, exclusivity: Exclusivity) -> None:
        """Start without any pool."""
        self._exclusivity = exclusivity
        self._pools: dict[PoolKey, DualPool] = {}

    def copied(self) -> "PhasePools":
        """Pools of the same vectors that grow by themselves."""
        other = PhasePools(self._exclusivity)
        other._pools = {key: pool.copied() for key, pool in self._pools.items()}
        return other

    def grow(self, compiled: CompiledModel, estimates: Estimates, table: AcceleratorTable) -> None:
        """Add the vectors that are best for one phase of each topology on each design of a table.

        The tensor degree rotates with the design, as the same topology serves several degrees.
        """
        cores = cores_of_each(table)
        for row in range(len(table)):
            turn = row % len(compiled.options)
            options = (*compiled.options[turn:], *compiled.options[:turn])
            done: set[PoolKey] = set()
            for phase in (phase for option in options for layer in option.phases for phase in layer):
                key = pool_key(phase)
                if key not in done and max(len(block) for block in phase.structure.blocks) > 1:
                    done.add(key)
                    self.pool(phase).add(
                        estimates.one_core_s[row, phase.columns],
                        estimates.spread_s[row, phase.columns],
                        Cores(*cores[row].tolist()),
                    )

    def bounds_and_choices(
        self, compiled: CompiledModel, estimates: Estimates, table: AcceleratorTable
    ) -> MakespanBounds:
        """Lower bounds of every makespan, and the entries that give them."""
        first = compiled.options[0]
        bounds = np.empty((len(table), len(compiled.options), len(first.phases), first.num_phases))
        choices = [np.zeros((len(table), 0), dtype=np.int32)]
        # Options of full plans have problems in common: the same operators in the same order.
        known: dict[tuple[PoolKey, bytes], tuple[Floats, ShortInts]] = {}
        for option, entry in enumerate(compiled.options):
            for row, layer in enumerate(entry.phases):
                for column, phase in enumerate(layer):
                    key = pool_key(phase), b"".join(own.tobytes() for way in phase.ways for _, own in way)
                    if key not in known:
                        known[key] = self._bound(phase, estimates, table)
                    bounds[:, option, row, column], chosen = known[key]
                    choices.append(chosen)
        return MakespanBounds(bounds, np.concatenate(choices, axis=1), attention_seconds(compiled, estimates))

    def _bound(self, phase: CompiledPhase, estimates: Estimates, table: AcceleratorTable) -> tuple[Floats, ShortInts]:
        """Bounds of one problem, and the entries behind them.

        Of alternatives the entries are those of the least one, by which all are bounded then.
        """
        pool, cores = self.pool(phase), cores_of_each(table)
        least_s, choices = self._ways_s(phase, estimates, table)
        if len(least_s) == 1:
            return least_s[0], choices[0]
        chosen = np.take_along_axis(np.array(choices), least_s.argmin(axis=0)[None, :, None], axis=0)[0]

        def of_columns(columns: Ints) -> Floats:
            latencies, floor_s = _latencies(columns, estimates, table)
            return pool.bounds_by(chosen, *latencies, cores, floor_s=floor_s)

        known = {columns.tobytes(): of_columns(columns) for way in phase.ways for _, columns in way}
        ways_s = [np.sum([share * known[columns.tobytes()] for share, columns in way], axis=0) for way in phase.ways]
        return np.min(ways_s, axis=0), chosen

    def _ways_s(
        self, phase: CompiledPhase, estimates: Estimates, table: AcceleratorTable
    ) -> tuple[Floats, list[ShortInts]]:
        """Bounds of the alternatives of a problem, shape (alternatives, num_designs), and the entries of their last."""
        pool, cores = self.pool(phase), cores_of_each(table)
        known: dict[bytes, tuple[Floats, ShortInts]] = {}
        for columns in (columns for way in phase.ways for _, columns in way):
            if columns.tobytes() not in known:
                latencies, floor_s = _latencies(columns, estimates, table)
                known[columns.tobytes()] = pool.bounds_and_choices(*latencies, cores, floor_s=floor_s)
        ways_s = [np.sum([share * known[columns.tobytes()][0] for share, columns in way], axis=0) for way in phase.ways]
        return np.array(ways_s), [known[way[-1][1].tobytes()][1] for way in phase.ways]

    def ways_s(self, phase: CompiledPhase, estimates: Estimates, table: AcceleratorTable) -> Floats:
        """Bounds of the alternatives of a problem, each by its own entries, shape (alternatives, num_designs), s."""
        return self._ways_s(phase, estimates, table)[0]

    def pool(self, phase: CompiledPhase) -> DualPool:
        """The pool of a problem's topology, made when first needed."""
        key = pool_key(phase)
        if key not in self._pools:
            self._pools[key] = DualPool(phase.structure, self._exclusivity)
        return self._pools[key]

    def pools(self) -> dict[PoolKey, DualPool]:
        """All pools by topology, in the order in which they were first needed."""
        return dict(self._pools)

    def __len__(self) -> int:
        """Vectors of all pools."""
        return sum(len(pool) for pool in self._pools.values())


def _latencies(columns: Ints, estimates: Estimates, table: AcceleratorTable) -> tuple[tuple[Floats, Floats], Floats]:
    """Latencies of operators, and the floor of all their traffic, s."""
    traffic = bound_kernels.column_sums(estimates.traffic_bytes, columns)
    latencies = estimates.one_core_s[:, columns], estimates.spread_s[:, columns]
    return latencies, traffic / table.hbm_bandwidth_bytes_per_s


def attention_seconds(compiled: CompiledModel, estimates: Estimates) -> Floats:
    """What selective recomputation runs again, one operator after the other, (num_designs, num_options, layers), s."""
    rows = [
        [bound_kernels.column_sums(estimates.spread_s, columns) for columns in option.partly_columns]
        for option in compiled.options
    ]
    shape = (len(rows), len(rows[0]), len(estimates.spread_s))
    return np.moveaxis(np.array(rows, dtype=np.float64).reshape(shape), -1, 0)
