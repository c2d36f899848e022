"""Prices of operators on chips: what a price depends on, each distinct combination once, and the kernels run over it.

Few of the columns of a table of chips decide the cost of a matmul, so it is priced on distinct array configurations
(620 in the Phaze space of 29,360), and HBM traffic for distinct buffers; `combine` puts both together for every chip.
"""

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.operator_table import CompiledOperators, MatmulShapes, OperatorColumns, Results, RowTables
from phaze_opt.estimate.protocol import Estimates, EstimatorOptions, FillAndDrain, GlbLimit, GroupedProducts, Multicast
from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.flexibility import CORE_SPLIT, LOOP_ORDER, SWITCHES, TILINGS, shapes_of
from phaze_opt.hardware.pipelining import FoldCycles, fold_cycles
from phaze_opt.record.arrays import Floats, Indices, Ints

if TYPE_CHECKING:
    from phaze_opt.estimate.kernels import Arrays

_ResultT = TypeVar("_ResultT")
DATAFLOWS = ("weight_stationary", "output_stationary", "input_stationary")
"""Names by dataflow code; -1 where there is no matmul."""
MIN_CELLS = 250_000
"""Accelerators x operators below which starting threads costs more than it saves (experiments/estimator)."""
KEPT_PRICES = 1 << 21
"""Matmuls times configurations whose costs are kept, 56 bytes each."""
_MAX_THREADS = 8
_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(29)


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Distinct tensor-core configurations; each column of shape (num_rows,).

    Attributes:
        num_tc: arrays on the chip.
        width, depth: of one array.
        tile_elements: elements of an L2 output tile: half the L2, double-buffered.
        dtype_bytes: bytes of an element.
        glb_cycles_per_byte: chip-wide; zero when the GLB never binds.
        pipelining: how folds overlap, by `hardware.pipelining.Pipelining`.
        sparse_array: which zeros an array skips, by `hardware.sparse_array.SPARSE_ARRAYS`.
        tiling, loop_order, core_split, array_shape: which mappings it allows, by `hardware.flexibility.SWITCHES`.
    """

    num_tc: Ints
    width: Ints
    depth: Ints
    tile_elements: Ints
    dtype_bytes: Ints
    glb_cycles_per_byte: Floats
    pipelining: Ints
    sparse_array: Ints
    tiling: Ints
    loop_order: Ints
    core_split: Ints
    array_shape: Ints

    def __len__(self) -> int:
        """Number of distinct configurations."""
        return len(self.num_tc)

    def take(self, rows: Indices) -> "ArrayRows":
        """Some of them, in the order given."""
        return ArrayRows(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """``columns[i][first]`` holds each distinct row once; ``inverse`` maps every row to its place there."""

    first: Indices
    inverse: Indices


def distinct_rows(*columns: NDArray[np.generic]) -> DistinctRows:
    """Distinct rows of equally long 8-byte columns, sorted by a hash of their bits; checked against collisions."""
    if len(columns[0]) == 1:
        return DistinctRows(np.zeros(1, np.intp), np.zeros(1, np.intp))
    code = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        code = (code ^ np.ascontiguousarray(column).view(np.uint64)) * _HASH_MULTIPLIER
        code ^= code >> _HASH_SHIFT
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    if all(np.array_equal(column, column[first][inverse]) for column in columns):
        return DistinctRows(first, inverse)
    bits = np.stack([np.ascontiguousarray(column).view(np.uint64) for column in columns], axis=1)
    _, first, inverse = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    return DistinctRows(first, inverse.reshape(-1))


def build_array_rows(
    table: AcceleratorTable, glb_limit: GlbLimit, *, reference_glb_bytes: float
) -> tuple[ArrayRows, Indices]:
    """Distinct tensor-core configurations of a table, and which one each accelerator has.

    Args:
        table: accelerators.
        glb_limit: how the GLB's bandwidth is set.
        reference_glb_bytes: size at which a proportional GLB reaches the accelerator's bandwidth.
    """
    per_byte = _glb_cycles_per_byte(table, glb_limit, reference_glb_bytes=reference_glb_bytes)
    sizes = (table.num_tc, table.tc_width, table.tc_depth, table.l2_bytes, table.dtype_bytes)
    kinds = {name: getattr(table, name) for name in ("pipelining", "sparse_array", *SWITCHES)}
    rows = distinct_rows(*sizes, *kinds.values(), per_byte)
    num_tc, width, depth, l2_bytes, dtype_bytes = (column[rows.first] for column in sizes)
    kinds = {name: column[rows.first] for name, column in kinds.items()}
    tile_elements = np.maximum(1, l2_bytes // (2 * dtype_bytes))
    return ArrayRows(num_tc, width, depth, tile_elements, dtype_bytes, per_byte[rows.first], **kinds), rows.inverse


def _glb_cycles_per_byte(table: AcceleratorTable, glb_limit: GlbLimit, *, reference_glb_bytes: float) -> Floats:
    """Cycles the GLB takes for a byte, chip-wide, shape (num_accelerators,); zero for ``none``."""
    if glb_limit is GlbLimit.NONE:
        return np.zeros(len(table))
    bandwidth = table.glb_bandwidth_bytes_per_s
    if glb_limit is GlbLimit.PROPORTIONAL:
        bandwidth = bandwidth * (table.glb_bytes / reference_glb_bytes)
    return table.clock_hz / bandwidth


@dataclass(frozen=True, slots=True)
class MatmulPrices:
    """Costs of distinct matmuls on distinct configurations; every array of shape (num_rows, num_matmuls).

    Attributes:
        cycles: max(compute, GLB) of the best split over all arrays.
        one_core_cycles: the same on one array with its 1/num_tc of the GLB's bandwidth.
        stream_cycles: folds times stream of that best split, without fill and drain.
        fill_cycles: its fill and drain.
        glb_bytes: bytes through the GLB.
        l2_bytes: bytes out of and into the L2s.
        dataflow: index into `DATAFLOWS`.
    """

    cycles: Floats
    one_core_cycles: Floats
    stream_cycles: Floats
    fill_cycles: Floats
    glb_bytes: Floats
    l2_bytes: Floats
    dataflow: Ints


class ChipRates(NamedTuple):
    """Seconds per unit of work on each accelerator; every column of shape (num_accelerators,).

    Attributes:
        cycle_s: a cycle.
        spread_lane_s, one_core_lane_s: a lane cycle, over all lanes and over those of one vector core.
        spread_byte_s: an HBM byte at the whole bandwidth.
        one_tc_byte_s, one_vc_byte_s: an HBM byte at one core's share, 1/num_tc and 1/num_vc of the bandwidth.
    """

    cycle_s: Floats
    spread_lane_s: Floats
    one_core_lane_s: Floats
    spread_byte_s: Floats
    one_tc_byte_s: Floats
    one_vc_byte_s: Floats


class ChipEnergies(NamedTuple):
    """Joules per unit of work on each accelerator: a MAC with its registers, bytes of L2, GLB and HBM, a lane cycle."""

    mac_j: Floats
    l2_byte_j: Floats
    glb_byte_j: Floats
    hbm_byte_j: Floats
    lane_cycle_j: Floats


def price_matmuls(
    shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions, *, threads: int = 1
) -> MatmulPrices:
    """Costs of distinct matmuls on distinct configurations, the same whatever the number of threads.

    Each is the least over the mappings that a configuration allows, over shapes as built where several are as fast.
    """
    prices = _price_as_built(shapes, rows, options, threads=threads)
    for at, others in other_shapes(rows):
        found = _price_as_built(shapes, others, options, threads=threads)
        is_faster = found.cycles < prices.cycles[at]
        alone = np.minimum(found.one_core_cycles, prices.one_core_cycles[at])
        for each in fields(MatmulPrices):
            table = getattr(prices, each.name)
            table[at] = np.where(is_faster, getattr(found, each.name), table[at])
        prices.one_core_cycles[at] = alone
    return prices


def kept_prices(
    compiled: CompiledOperators, rows: ArrayRows, options: EstimatorOptions, *, threads: int = 1
) -> MatmulPrices:
    """`price_matmuls` of operators, where configurations that they were priced on are looked up.

    A space has few configurations, of which each stands for many chips, and a proof asks for them again and again.
    """
    kept, names = compiled.priced, [each.name for each in fields(MatmulPrices)]
    bits = np.stack([np.ascontiguousarray(getattr(rows, each.name)).view(np.uint64) for each in fields(rows)], axis=1)
    keys: list[tuple[Hashable, bytes]] = [(options, row.tobytes()) for row in bits]
    tables: dict[tuple[Hashable, bytes], Floats] = {key: table for key in keys if (table := kept.get(key)) is not None}
    fresh = np.array([place for place, key in enumerate(keys) if key not in tables], dtype=np.intp)
    if len(fresh):
        found = price_matmuls(compiled.shapes, rows.take(fresh), options, threads=threads)
        columns = np.stack([getattr(found, name) for name in names], axis=1)
        tables |= {keys[place]: table.copy() for place, table in zip(fresh.tolist(), columns, strict=True)}
        kept.update(tables)
        most = KEPT_PRICES // max(1, len(compiled.shapes))
        for key in list(kept)[: max(0, len(kept) - most)]:
            kept.pop(key, None)
    costs = dict(zip(names, np.stack([tables[key] for key in keys], axis=1), strict=True))
    return MatmulPrices(**costs | {"dataflow": costs["dataflow"].astype(np.int64)})


def other_shapes(rows: ArrayRows) -> Iterator[tuple[Indices, ArrayRows]]:
    """Configurations that can take other shapes than as built: which, and each as in its next shape, until none can."""
    edges = zip(rows.width.tolist(), rows.depth.tolist(), rows.array_shape.tolist(), strict=True)
    shapes = [shapes_of(*each) for each in edges]
    for place in range(1, max(map(len, shapes))):
        at = np.array([row for row, each in enumerate(shapes) if len(each) > place], dtype=np.intp)
        width, depth = np.array([shapes[row][place] for row in at], dtype=np.int64).T
        yield at, replace(rows.take(at), width=width, depth=depth)


def _price_as_built(shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions, *, threads: int) -> MatmulPrices:
    """Costs of distinct matmuls on arrays of the shapes that rows say.

    One kernel run over the distinct arrays, whatever their number.
    A row whose number of arrays is a power of two reads its level, log2 of it; another has figures of its own.
    """
    from phaze_opt.estimate import kernels

    level = np.frexp(rows.num_tc)[1] - 1
    arrays, array_of = _distinct_arrays(rows, level, options.fill_and_drain)
    num_arrays = len(arrays.width)
    other = np.flatnonzero(rows.num_tc & (rows.num_tc - 1))
    other = other[np.lexsort((rows.num_tc[other], array_of[other]))]
    starts = np.searchsorted(array_of[other], np.arange(num_arrays + 1))
    wanted = kernels.Wanted(np.ascontiguousarray(rows.num_tc[other]), starts.astype(np.int64))
    rules = kernels.Rules(
        is_multicast=options.multicast is Multicast.IDEAL,
        is_packed=options.grouped is not GroupedProducts.ONE_BY_ONE,
        left_scale=1.0,
        right_scale=1.0,
    )
    table = np.empty((num_arrays, len(shapes), int(level.max()) + 1, kernels.NUM_FIELDS))
    others = np.empty((len(shapes), len(other), kernels.NUM_FIELDS))
    sizes, step = shapes.table(), max(1, min(threads, len(shapes)))
    price = partial(kernels.price_arrays, sizes, arrays, wanted, rules, table, others)
    run_all([partial(price, start, step) for start in range(step)])
    alone, best = table[array_of, :, 0], table[array_of, :, level]
    best[other] = others.swapaxes(0, 1)
    share = (rows.glb_cycles_per_byte * rows.num_tc)[:, None]
    return MatmulPrices(
        cycles=best[..., kernels.CYCLES],
        one_core_cycles=np.maximum(
            alone[..., kernels.STREAM] + alone[..., kernels.FILL], alone[..., kernels.GLB_BYTES] * share
        ),
        stream_cycles=best[..., kernels.STREAM],
        fill_cycles=best[..., kernels.FILL],
        glb_bytes=best[..., kernels.GLB_BYTES],
        l2_bytes=best[..., kernels.L2_BYTES],
        dataflow=best[..., kernels.DATAFLOW].astype(np.int64),
    )


def _distinct_arrays(rows: ArrayRows, level: Ints, choice: FillAndDrain) -> "tuple[Arrays, Ints]":
    """The distinct arrays of configurations, by their tiles, and which one each configuration has.

    Args:
        rows: configurations.
        level: log2 of the number of arrays of each, rounded down; an array is priced up to its largest.
        choice: what filling and draining takes.
    """
    from phaze_opt.estimate import kernels

    integers = (rows.width, rows.depth, rows.tile_elements, rows.dtype_bytes, rows.pipelining)
    mappings = (TILINGS[rows.tiling], LOOP_ORDER.masks[rows.loop_order], CORE_SPLIT.masks[rows.core_split])
    distinct = distinct_rows(*integers, *mappings, rows.glb_cycles_per_byte)
    order = np.lexsort((mappings[0][distinct.first], rows.tile_elements[distinct.first]))
    first, array_of = distinct.first[order], np.argsort(order)[distinct.inverse]
    most = np.zeros(len(order), dtype=np.int64)
    np.maximum.at(most, array_of, level)
    width, depth, tile, dtype = (column[first].astype(np.float64) for column in integers[:4])
    folds = _fold_cycles(rows.width[first], rows.depth[first], rows.pipelining[first], choice)
    per_byte, allowed = rows.glb_cycles_per_byte[first], (each[first] for each in mappings)
    arrays = kernels.Arrays(
        width, depth, tile, dtype, per_byte, folds.each, folds.once, folds.least, most, *allowed
    )  # fmt: skip
    return arrays, array_of


def _fold_cycles(width: Ints, depth: Ints, pipelining: Ints, choice: FillAndDrain) -> FoldCycles:
    """What folds take beyond their streams under an option, which may say less than the arrays themselves do."""
    found = fold_cycles(width, depth, pipelining)
    none = np.zeros(len(found.ramp))
    if choice is FillAndDrain.PER_FOLD:
        return found
    once = found.ramp if choice is FillAndDrain.PER_OPERATOR else none
    return FoldCycles(each=none, once=once, least=none, ramp=found.ramp)


def tiled_traffic_elements(shapes: MatmulShapes, glb_elements: Ints) -> Floats:
    """Elements to and from HBM of distinct matmuls for distinct buffers, shape (num_buffers, num_matmuls).

    Half the GLB holds a tile, the other half the next one. If an operand or the result fits that half, each is moved
    once: mk + kn + mn. Otherwise the result is cut into p column strips and q row strips, each tile accumulating over
    the whole of k: p mk + q kn + mn, minimised over all p and q whose tiles fit. Behind a convolution's left operand
    lie u < mk elements, and strips of its rows share at most h with those before: mk is u where it is moved once, and
    min(mk, u + (q - 1) h) where it is cut.

    Args:
        shapes: distinct matmuls.
        glb_elements: elements that half the GLB holds, shape (num_buffers,), at least 1.
    """
    from phaze_opt.estimate import traffic_kernels as kernels

    return kernels.tiled_traffic_elements(shapes.table(), glb_elements.astype(np.float64))


class BufferRates(NamedTuple):
    """Seconds for a byte of the buffer on each accelerator, at its whole bandwidth and at one core's share."""

    spread_byte_s: Floats
    one_tc_byte_s: Floats
    one_vc_byte_s: Floats


def resident_traffic(
    compiled: CompiledOperators, glb_bytes: Ints, dtype_bytes: Ints, *, tile_bytes: float
) -> tuple[Floats, Floats]:
    """HBM bytes of operators where buffers hold tensors between them, and bytes that they take from there instead.

    The latter are beyond operands and results of matmuls. Both have shape (num_buffers, num_operators).

    Args:
        compiled: operators.
        glb_bytes: of distinct buffers.
        dtype_bytes: of an element on each.
        tile_bytes: of a buffer that hold no tensor.
    """
    from phaze_opt.estimate import traffic_kernels as kernels

    owners = np.concatenate([np.empty(0, np.intp), *(each for each, _ in compiled.terms)])
    matmuls = np.concatenate([np.empty(0, np.intp), *(each for _, each in compiled.terms)])
    starts = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(compiled)))])
    sizes = compiled.shapes.table()[matmuls[np.argsort(owners, kind="stable")]]
    traffic, passed = (np.empty((len(glb_bytes), len(compiled))) for _ in range(2))
    kernels.fill_resident_traffic(
        kernels.Moved(compiled.traffic_bytes, compiled.tiled_elements, compiled.is_tiled, *compiled.state_reads),
        kernels.Products(starts.astype(np.int64), sizes),
        compiled.buffer,
        kernels.Buffers(glb_bytes, np.maximum(0, glb_bytes - int(tile_bytes)), dtype_bytes),
        traffic,
        passed,
    )
    return traffic, passed


def combine(
    tables: RowTables,
    columns: OperatorColumns,
    rates: tuple[ChipRates, BufferRates],
    energies: ChipEnergies,
    *,
    threads: int = 1,
) -> Estimates:
    """Every operator on every accelerator, the same whatever the number of threads: each writes rows of its own."""
    from phaze_opt.estimate import kernels

    count = len(tables.row_of)
    results = Results._make(np.empty((count, len(columns.macs))) for _ in range(4))
    rate_table, energy_table = np.stack([*rates[0], *rates[1]], axis=1), np.stack(energies, axis=1)
    cuts = np.linspace(0, count, max(1, min(threads, count)) + 1).astype(int)

    def run(start: int, stop: int) -> None:
        part = slice(start, stop)
        kernels.combine(
            tables._replace(row_of=tables.row_of[part], buffer_of=tables.buffer_of[part]),
            columns,
            rate_table[part],
            energy_table[part],
            Results._make(table[part] for table in results),
        )

    run_all([partial(run, start, stop) for start, stop in pairwise(cuts)])
    return Estimates(*results)


def num_threads(num_cells: int) -> int:
    """Threads worth starting for a table of ``num_cells`` entries: one, or one for every core this process may use."""
    if num_cells < MIN_CELLS:
        return 1
    is_limited = hasattr(os, "sched_getaffinity")
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)) if is_limited else os.cpu_count() or 1)


def run_all(tasks: Sequence[Callable[[], _ResultT]]) -> list[_ResultT]:
    """Results of all tasks in order, one thread each; exceptions propagate."""
    if len(tasks) == 1:
        return [tasks[0]()]
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
