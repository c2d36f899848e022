"""The analytic estimator of semantics 3."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.estimate.operator_table import (
    VECTOR_KINDS,
    CompiledOperators,
    OperatorColumns,
    RowTables,
    compile_operators,
)
from phaze_opt.estimate.pricing import (
    DATAFLOWS,
    BufferRates,
    ChipEnergies,
    ChipRates,
    MatmulPrices,
    build_array_rows,
    combine,
    distinct_rows,
    kept_prices,
    num_threads,
    resident_traffic,
    tiled_traffic_elements,
)
from phaze_opt.estimate.protocol import (
    Bound,
    Estimates,
    EstimatorOptions,
    GroupedProducts,
    OperatorBreakdown,
    Residency,
)
from phaze_opt.estimate.sparse_products import run_sparse, spared_bytes, sparse_codes
from phaze_opt.graph.operator import Operator, VectorKind
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable, table_of
from phaze_opt.hardware.constants import Constants, load_constants
from phaze_opt.hardware.silicon.chip_silicon import chip_energies, fed_chips
from phaze_opt.hardware.silicon.die_columns import LANE_BYTES_PER_CYCLE
from phaze_opt.record.arrays import Flags, Floats, Indices, Ints

ROUNDS_HELD = 2
"""What lanes take and give in a cycle stands in their L2 twice: one round at work, one on its way."""
LANES = "lanes"
"""What stands in place of a dataflow where products run on vector lanes."""
_PARTS = (Bound.COMPUTE, Bound.FILL_AND_DRAIN, Bound.EDGE_WASTE, Bound.GLB, Bound.VECTOR, Bound.HBM)


@dataclass(frozen=True, slots=True)
class OperatorPrices:
    """What operators cost on a table of chips whatever its rates.

    Attributes:
        matmuls: prices of distinct matmuls on distinct rows.
        row_of, buffer_of: row and buffer of each chip.
        traffic_bytes: HBM bytes of operators for distinct buffers.
        passed_bytes: that they take from the buffer instead, beyond operands and results of matmuls; no rows where
            buffers hold nothing.
        glb_cycles_per_byte: of each chip's buffer.
        skipped_macs: multiply-accumulates that operators have less on distinct rows; none where no array skips zeros.
    """

    matmuls: MatmulPrices
    row_of: Indices
    buffer_of: Indices
    traffic_bytes: Floats
    passed_bytes: Floats
    glb_cycles_per_byte: Floats
    skipped_macs: Floats


class AnalyticEstimator:
    """Closed-form latencies and energies: systolic arrays, vector lanes, a shared buffer and HBM.

    Deterministic and without side effects. A fused epilogue runs beside its matmul, and several matmuls of one
    operator (fused attention) run one after the other: latency = max(sum over matmuls of max(compute, GLB), vector,
    HBM). One core alone has one array (or the lanes of one vector core) and 1/num_cores of the GLB and HBM bandwidth;
    an operator on both types takes its tensor core's share (docs/decisions/0030).

    Args:
        constants: vector cycles, energies and the options in force; the package's own when None.
        options: choices that override those of ``constants``.
    """

    def __init__(self, constants: Constants | None = None, options: EstimatorOptions | None = None) -> None:
        """Keep the constants; resolve the options."""
        self._constants = load_constants() if constants is None else constants
        self._given_options = options
        self._options = EstimatorOptions.from_constants(self._constants) if options is None else options
        self._cycles = np.array([self._constants.value(f"vector_cycles.{kind}") for kind in VECTOR_KINDS])

    @property
    def name(self) -> str:
        """Name it is registered under."""
        return "analytic"

    @property
    def options(self) -> EstimatorOptions:
        """Choices in force."""
        return self._options

    @property
    def constants(self) -> Constants:
        """Constants in force."""
        return self._constants

    def with_constants(self, constants: Constants) -> "AnalyticEstimator":
        """The same estimator under other constants; options given at construction stay."""
        return AnalyticEstimator(constants, self._given_options)

    @staticmethod
    def compile(operators: Sequence[Operator]) -> CompiledOperators:
        """Operators as columns, to be estimated again and again; `estimate` and `explain` accept it."""
        return compile_operators(operators)

    def estimate(self, operators: Sequence[Operator] | CompiledOperators, accelerators: AcceleratorTable) -> Estimates:
        """Latency and energy of every operator on every accelerator.

        Args:
            operators: operators, or what `compile` made of them.
            accelerators: table of accelerators.

        Returns:
            Arrays of shape (num_accelerators, num_operators).
        """
        return self.estimate_at(operators, accelerators, chip_rates(accelerators))

    def estimate_at(
        self,
        operators: Sequence[Operator] | CompiledOperators,
        accelerators: AcceleratorTable,
        rates: ChipRates,
        *,
        prices: OperatorPrices | None = None,
    ) -> Estimates:
        """The same with arrays, lanes and memory at other rates than the accelerators' own; energy does not change.

        Args:
            operators: operators, or what `compile` made of them.
            accelerators: table of accelerators.
            rates: seconds per unit of work.
            prices: what `price` made of both, for those who ask again and again at other rates.
        """
        compiled = as_compiled(operators)
        if len(accelerators) == 0 or len(compiled) == 0:
            return Estimates(*(np.zeros((len(accelerators), len(compiled))) for _ in range(4)))
        prices = prices or self.price(compiled, accelerators)
        tables = RowTables(
            row_of=prices.row_of,
            buffer_of=prices.buffer_of,
            cycles=compiled.add_up(prices.matmuls.cycles),
            one_core_cycles=compiled.add_up(prices.matmuls.one_core_cycles),
            glb_bytes=compiled.add_up(prices.matmuls.glb_bytes),
            l2_bytes=compiled.add_up(prices.matmuls.l2_bytes),
            traffic_bytes=prices.traffic_bytes,
            passed_bytes=prices.passed_bytes,
        )
        if self._options.grouped is GroupedProducts.LANES:
            tables.cycles[:, compiled.is_grouped] = np.inf
            tables.one_core_cycles[:, compiled.is_grouped] = np.inf
        columns = self._columns(compiled)
        threads = num_threads(len(accelerators) * len(compiled))
        both = rates, _buffer_rates(accelerators, prices.glb_cycles_per_byte * rates.cycle_s)
        energies = self._energies(accelerators)
        found = combine(tables, columns, both, energies, threads=threads)
        if len(prices.skipped_macs):
            found.energy_j[:] -= prices.skipped_macs[prices.row_of] * energies.mac_j[:, None]
        return found

    def explain(
        self, operators: Sequence[Operator] | CompiledOperators, accelerator: Accelerator
    ) -> tuple[OperatorBreakdown, ...]:
        """What bounds each operator on one accelerator when spread over all its cores."""
        table = table_of(accelerator)
        return self.explain_at(as_compiled(operators), table, chip_rates(table))

    def explain_at(
        self, compiled: CompiledOperators, table: AcceleratorTable, rates: ChipRates
    ) -> tuple[OperatorBreakdown, ...]:
        """The same, of a table's first chip, with arrays, lanes and memory at other rates than its own."""
        if len(compiled) == 0:
            return ()
        prices, lane_s = self.price(compiled, table), rates.spread_lane_s[0]
        product_lane_cycles, step_cycles, is_serial = self._step_columns(compiled)
        skipped = prices.skipped_macs[prices.row_of[0]] if len(prices.skipped_macs) else np.zeros(len(compiled))
        resources = Resources(
            cycle_s=float(rates.cycle_s[0]),
            num_macs=int(table.num_tc[0] * table.tc_width[0] * table.tc_depth[0]),
            vector_s=np.maximum(self._lane_cycles(compiled) * lane_s, step_cycles * rates.cycle_s[0]),
            lanes_only_s=(self._lane_cycles(compiled) + product_lane_cycles) * lane_s,
            is_serial=is_serial,
            is_off_arrays=compiled.is_grouped & (self._options.grouped is GroupedProducts.LANES),
            hbm_s=prices.traffic_bytes[0] * rates.spread_byte_s[0],
            traffic_bytes=prices.traffic_bytes[0],
            buffer_s=_buffer_s(compiled, prices, rates),
            macs=compiled.macs - skipped,
        )
        return explain_operators(compiled, prices.matmuls, resources)

    def _lane_cycles(self, compiled: CompiledOperators) -> Floats:
        """Of each operator on one lane; added up in one order, which a product of matrices leaves to the CPU."""
        return np.asarray((compiled.vector_elements * self._cycles).sum(axis=1))

    def _columns(self, compiled: CompiledOperators) -> OperatorColumns:
        """What `combine` reads of every operator; columns of steps only where some operator needs them."""
        on_tc = compiled.on_tc.astype(np.float64)
        steps = self._step_columns(compiled)
        if not (compiled.is_grouped.any() or steps[2].any()):
            steps = (np.empty(0), np.empty(0), np.empty(0))
        return OperatorColumns(self._lane_cycles(compiled), compiled.macs, on_tc, compiled.traffic_bytes, *steps)

    def _step_columns(self, compiled: CompiledOperators) -> tuple[Floats, Floats, Floats]:
        """Lane cycles of products, infinite where none may run there; least cycles of all steps; recurrences as 1.0."""
        has_lanes = self._options.grouped in (GroupedProducts.FASTER, GroupedProducts.LANES)
        cycles_a_mac = self._cycles[VECTOR_KINDS.index(VectorKind.ADD)]
        product_lane_cycles = np.where(compiled.is_grouped & has_lanes, compiled.macs * cycles_a_mac, np.inf)
        is_serial = compiled.serial_steps > 1.0
        of_a_step = ((compiled.vector_elements > 0) * self._cycles).sum(axis=1)
        step_cycles = np.where(is_serial, compiled.serial_steps * of_a_step, 0.0)
        return product_lane_cycles, step_cycles, is_serial.astype(np.float64)

    def price(self, compiled: CompiledOperators, table: AcceleratorTable) -> OperatorPrices:
        """Cycles of matmuls and HBM bytes, which no rate changes."""
        reference = self._constants.value("glb.proportional_reference_bytes")
        fed = fed_chips(table, self._constants)
        rows, row_of = build_array_rows(fed, self._options.glb_limit, reference_glb_bytes=reference)
        skips = len(compiled.sparse.index) > 0 and bool(sparse_codes(table.sparse_array))
        kinds = (table.sparse_array,) if skips else ()
        buffers = distinct_rows(table.glb_bytes, table.dtype_bytes, *kinds)
        glb_bytes, dtype_bytes = table.glb_bytes[buffers.first], table.dtype_bytes[buffers.first]
        passed_bytes = np.empty((0, len(compiled)))
        if self._options.residency is Residency.NONE or not len(compiled.buffer.held):
            traffic_bytes = operator_traffic_bytes(compiled, glb_bytes, dtype_bytes)
        else:
            tile_bytes = self._constants.value("glb.tile_bytes")
            traffic_bytes, passed_bytes = resident_traffic(compiled, glb_bytes, dtype_bytes, tile_bytes=tile_bytes)
        threads = num_threads(len(table) * len(compiled))
        matmuls = kept_prices(compiled, rows, self._options, threads=threads)
        skipped_macs = np.empty((0, len(compiled)))
        if skips:
            skipped_macs = run_sparse(matmuls, compiled, rows, self._options, threads=threads)
            traffic_bytes -= spared_bytes(compiled, table.sparse_array[buffers.first], dtype_bytes)
        per_byte = rows.glb_cycles_per_byte[row_of]
        return OperatorPrices(matmuls, row_of, buffers.inverse, traffic_bytes, passed_bytes, per_byte, skipped_macs)

    def _energies(self, table: AcceleratorTable) -> ChipEnergies:
        """Joules per unit of work on each accelerator."""
        energies = chip_energies(table, self._constants)
        return ChipEnergies(
            mac_j=energies.mac_j + energies.l1_j_per_mac,
            l2_byte_j=energies.l2_j_per_byte,
            glb_byte_j=energies.glb_j_per_byte,
            hbm_byte_j=energies.hbm_j_per_byte,
            lane_cycle_j=energies.lane_j,
        )


def operator_traffic_bytes(compiled: CompiledOperators, glb_bytes: Ints, dtype_bytes: Ints) -> Floats:
    """HBM bytes of every operator for every buffer, shape (num_buffers, num_operators).

    MATMUL: the tiled traffic of its matmuls, plus what its compulsory bytes exceed theirs by (a fused epilogue's
    operands); all others: their compulsory bytes, exactly. A recurrence reads in every step but the first what half
    the buffer does not hold of its right operands.
    """
    elements = np.maximum(1, glb_bytes // (2 * dtype_bytes))
    tiled = compiled.add_up(tiled_traffic_elements(compiled.shapes, elements)) * dtype_bytes[:, None]
    excess = np.maximum(0.0, compiled.traffic_bytes - compiled.tiled_elements * dtype_bytes[:, None])
    again = compiled.state_reads
    if not again.elements.any():
        return np.where(compiled.is_tiled, tiled + excess, compiled.traffic_bytes)
    missing = np.maximum(0.0, again.elements - elements[:, None]) * dtype_bytes[:, None]
    return np.where(compiled.is_tiled, tiled + excess, compiled.traffic_bytes + again.times * missing)


def _buffer_rates(table: AcceleratorTable, byte_s: Floats) -> BufferRates:
    """Rates of each accelerator's buffer, which takes ``byte_s`` for a byte."""
    return BufferRates(byte_s, byte_s * table.num_tc, byte_s * table.num_vc)


def _buffer_s(compiled: CompiledOperators, prices: OperatorPrices, rates: ChipRates) -> Floats:
    """Time in which every operator's bytes pass the first chip's buffer, or come from HBM where that is the faster."""
    if not len(prices.passed_bytes):
        return np.zeros(len(compiled))
    byte_s = min(prices.glb_cycles_per_byte[0] * rates.cycle_s[0], rates.spread_byte_s[0])
    return np.asarray(compiled.traffic_bytes * byte_s)


def chip_rates(table: AcceleratorTable) -> ChipRates:
    """Seconds per unit of work on each accelerator, all cores together and one core alone."""
    bandwidth, busy = table.hbm_bandwidth_bytes_per_s, _busy_lanes(table)
    return ChipRates(
        cycle_s=1.0 / table.clock_hz,
        spread_lane_s=1.0 / (table.num_vc * table.vc_width * table.clock_hz) / busy,
        one_core_lane_s=1.0 / (table.vc_width * table.clock_hz) / busy,
        spread_byte_s=1.0 / bandwidth,
        one_tc_byte_s=1.0 / (bandwidth / table.num_tc),
        one_vc_byte_s=1.0 / (bandwidth / table.num_vc),
    )


def _busy_lanes(table: AcceleratorTable) -> Floats:
    """Share of the lanes that the L2 beside them keeps busy: it holds two rounds of what they take and give.

    An L2 that follows from its lanes has 16 bytes for each and keeps all of them busy.
    """
    rounds = table.vc_l2_bytes / (ROUNDS_HELD * LANE_BYTES_PER_CYCLE * table.vc_width)
    return np.where(table.vc_l2_bytes > 0, np.minimum(rounds, 1.0), 1.0)


def as_compiled(operators: Sequence[Operator] | CompiledOperators) -> CompiledOperators:
    """Operators compiled, unless they are already."""
    return operators if isinstance(operators, CompiledOperators) else compile_operators(operators)


@dataclass(frozen=True, slots=True)
class Resources:
    """One chip's rates and its other resources' times; arrays of shape (num_operators,).

    ``buffer_s`` is what an operator's bytes take to pass the buffer, 0 where the buffer holds none between operators;
    ``lanes_only_s`` what products on lanes take with the vector work, infinite where they may not run there.
    ``is_serial`` is 1.0 where products and lanes wait for each other, ``is_off_arrays`` says where arrays may not be
    used. ``macs`` are those that arrays do not skip.
    """

    cycle_s: float
    num_macs: int
    vector_s: Floats
    hbm_s: Floats
    traffic_bytes: Floats
    buffer_s: Floats
    lanes_only_s: Floats
    is_serial: Floats
    is_off_arrays: Flags
    macs: Floats


def explain_operators(
    compiled: CompiledOperators, prices: MatmulPrices, resources: Resources
) -> tuple[OperatorBreakdown, ...]:
    """Break the spread latency of every operator into `Bound` parts that sum to it.

    The tensor cores' time is ideal compute (all multiply-accumulate units busy), fill and drain, edge waste (ceilings
    and idle arrays) and what the GLB adds to them; vector lanes, HBM or the bytes that pass the GLB take the excess
    where they bind.

    Args:
        compiled: the operators.
        prices: of their matmuls on the one chip, one row.
        resources: the chip's rates and other times.
    """
    on_arrays = 1.0 - _is_on_lanes(compiled.add_up(prices.cycles)[0] * resources.cycle_s, resources)
    cycles, stream, fill = (
        compiled.add_up(table)[0] * on_arrays for table in (prices.cycles, prices.stream_cycles, prices.fill_cycles)
    )
    ideal = resources.macs * on_arrays / resources.num_macs
    tensor_s = cycles * resources.cycle_s
    vector_s = np.where(on_arrays > 0.0, resources.vector_s, resources.lanes_only_s)
    cores_s = np.maximum(tensor_s, vector_s) + resources.is_serial * np.minimum(tensor_s, vector_s)
    hbm_s, buffer_s = resources.hbm_s, resources.buffer_s
    latency_s = np.maximum.reduce((cores_s, hbm_s, buffer_s))
    is_buffer = buffer_s > np.maximum(cores_s, hbm_s)
    is_vector = (cores_s > tensor_s) & (cores_s >= hbm_s) & ~is_buffer
    is_hbm = (hbm_s > tensor_s) & ~is_vector & ~is_buffer
    excess_s = latency_s - tensor_s
    parts = np.stack(
        [
            ideal * resources.cycle_s,
            fill * resources.cycle_s,
            (stream - ideal) * resources.cycle_s,
            (cycles - stream - fill) * resources.cycle_s + excess_s * is_buffer,
            excess_s * is_vector,
            excess_s * is_hbm,
        ],
        axis=1,
    )
    bounds = _bounds(parts, is_vector & (vector_s > tensor_s), is_hbm)
    flows = _dataflows(compiled, prices, on_arrays > 0.0)
    return tuple(
        OperatorBreakdown(
            operator=operator.name,
            latency_s=float(latency_s[column]),
            bound=bounds[column],
            parts_s=tuple(zip(_PARTS, map(float, parts[column]), strict=True)),
            dataflow=flows[column],
            traffic_bytes=float(resources.traffic_bytes[column]),
        )
        for column, operator in enumerate(compiled.operators)
    )


def _is_on_lanes(tensor_s: Floats, resources: Resources) -> Flags:
    """Where products run on lanes: where arrays may not be used, or lanes are faster."""
    is_faster = resources.lanes_only_s < np.maximum(tensor_s, resources.vector_s)
    return np.asarray(resources.is_off_arrays | is_faster)


def _bounds(parts: Floats, is_vector: Flags, is_hbm: Flags) -> list[Bound]:
    """VECTOR or HBM where they bind; else GLB where it adds time; else the largest of the three compute parts."""
    compute = parts[:, :3].argmax(axis=1)
    index = np.where(parts[:, 3] > 0, 3, compute)
    index = np.where(is_vector, 4, np.where(is_hbm, 5, index))
    return [_PARTS[position] for position in index]


def _dataflows(compiled: CompiledOperators, prices: MatmulPrices, on_arrays: Flags) -> list[str]:
    """Dataflow of each operator's matmuls, ``+`` between several, empty without any, ``lanes`` where these do them."""
    names: list[list[str]] = [[] for _ in range(len(compiled))]
    for owners, matmuls in compiled.terms:
        for owner, matmul in zip(owners, matmuls, strict=True):
            names[owner].append(DATAFLOWS[prices.dataflow[0, matmul]] if on_arrays[owner] else LANES)
    return ["+".join(flows) for flows in names]
