"""The two backends behind one signature: compiled kernels, and the numpy oracle."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate import matmul_oracle, traffic
from phaze_opt.estimate.array_rows import ArrayRows, distinct_rows
from phaze_opt.estimate.matmul_oracle import MatmulPrices
from phaze_opt.estimate.operator_table import MatmulShapes
from phaze_opt.estimate.options import Backend, EstimatorOptions, FillAndDrain, Multicast
from phaze_opt.estimate.threads import run_all

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ChipRates:
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


@dataclass(frozen=True, slots=True)
class ChipEnergies:
    """Joules per unit of work on each accelerator: a MAC with its registers, bytes of L2, GLB and HBM, a lane cycle."""

    mac_j: Floats
    l2_byte_j: Floats
    glb_byte_j: Floats
    hbm_byte_j: Floats
    lane_cycle_j: Floats


@dataclass(frozen=True, slots=True)
class Workload:
    """What is combined: per-row tables of shape (num_rows or num_buffers, num_operators) and per-operator columns."""

    row_of: NDArray[np.intp]
    buffer_of: NDArray[np.intp]
    cycles: Floats
    one_core_cycles: Floats
    glb_bytes: Floats
    l2_bytes: Floats
    traffic_bytes: Floats
    lane_cycles: Floats
    macs: Floats
    on_tc: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Combined:
    """Latencies in s, energy in J and HBM bytes, each of shape (num_accelerators, num_operators)."""

    one_core_s: Floats
    spread_s: Floats
    energy_j: Floats
    traffic_bytes: Floats


def price_matmuls(
    shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions, *, threads: int = 1
) -> MatmulPrices:
    """Costs of distinct matmuls on distinct configurations, the same whatever the number of threads."""
    if options.backend is Backend.NUMPY:
        return matmul_oracle.price_matmuls(
            shapes, rows, fill_and_drain=options.fill_and_drain, multicast=options.multicast
        )
    return _price_compiled(shapes, rows, options, threads=threads)


def tiled_traffic_elements(shapes: MatmulShapes, glb_elements: NDArray[np.int64], backend: Backend) -> Floats:
    """HBM elements of distinct matmuls for distinct buffers; see `estimate.traffic`."""
    if backend is Backend.NUMPY:
        return traffic.tiled_traffic_elements(shapes, glb_elements)
    from phaze_opt.estimate import kernels

    return kernels.tiled_traffic_elements(_sizes(shapes), glb_elements.astype(np.float64))


def combine(
    work: Workload, rates: ChipRates, energies: ChipEnergies, backend: Backend, *, threads: int = 1
) -> Combined:
    """Every operator on every accelerator, the same whatever the number of threads."""
    if backend is Backend.NUMPY:
        return _combine_numpy(work, rates, energies)
    return _combine_compiled(work, rates, energies, threads=threads)


def _sizes(shapes: MatmulShapes) -> Floats:
    """b, m, n, k as floats, shape (num_matmuls, 4)."""
    return np.stack([shapes.batch, shapes.m, shapes.n, shapes.k], axis=1).astype(np.float64)


def _price_compiled(shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions, *, threads: int) -> MatmulPrices:
    """One kernel run over the distinct arrays, whatever their number.

    A row whose number of arrays is a power of two reads its level, log2 of it; another has figures of its own.
    """
    from phaze_opt.estimate import matmul_kernels as kernels

    level = np.frexp(rows.num_tc)[1] - 1
    integers = (rows.width, rows.depth, rows.tile_elements, rows.dtype_bytes)
    distinct = distinct_rows(*integers, rows.glb_cycles_per_byte)
    order = np.argsort(rows.tile_elements[distinct.first], kind="stable")
    first = distinct.first[order]
    array_of = np.argsort(order)[distinct.inverse]
    most = np.zeros(len(order), dtype=np.int64)
    np.maximum.at(most, array_of, level)
    width, depth, tile, dtype = (column[first].astype(np.float64) for column in integers)
    arrays = kernels.Arrays(width, depth, tile, dtype, rows.glb_cycles_per_byte[first], most)
    other = np.flatnonzero(rows.num_tc & (rows.num_tc - 1))
    other = other[np.lexsort((rows.num_tc[other], array_of[other]))]
    starts = np.searchsorted(array_of[other], np.arange(len(order) + 1))
    wanted = kernels.Wanted(np.ascontiguousarray(rows.num_tc[other]), starts.astype(np.int64))
    rules = kernels.Rules(
        per_fold=float(options.fill_and_drain is FillAndDrain.PER_FOLD),
        per_operator=float(options.fill_and_drain is FillAndDrain.PER_OPERATOR),
        is_multicast=options.multicast is Multicast.IDEAL,
    )
    table = np.empty((len(order), len(shapes), int(most.max()) + 1, kernels.NUM_FIELDS))
    others = np.empty((len(shapes), len(other), kernels.NUM_FIELDS))
    sizes, step = _sizes(shapes), max(1, min(threads, len(shapes)))
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


def _combine_compiled(work: Workload, rates: ChipRates, energies: ChipEnergies, *, threads: int) -> Combined:
    """The compiled kernel writes straight into the four results, each thread into rows of its own."""
    from phaze_opt.estimate import kernels

    shape = (len(work.row_of), len(work.macs))
    results = kernels.Results(np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape))
    tables = (work.cycles, work.one_core_cycles, work.glb_bytes, work.l2_bytes, work.traffic_bytes)
    columns = kernels.OperatorColumns(work.lane_cycles, work.macs, work.on_tc.astype(np.float64))
    rate_table = np.stack([getattr(rates, field.name) for field in fields(rates)], axis=1)
    energy_table = np.stack([getattr(energies, field.name) for field in fields(energies)], axis=1)
    cuts = np.linspace(0, shape[0], max(1, min(threads, shape[0])) + 1).astype(int)
    run_all(
        [
            partial(
                kernels.combine,
                kernels.RowTables(work.row_of[start:stop], work.buffer_of[start:stop], *tables),
                columns,
                rate_table[start:stop],
                energy_table[start:stop],
                kernels.Results(*(table[start:stop] for table in results)),
            )
            for start, stop in pairwise(cuts)
        ]
    )
    return Combined(results.one_core_s, results.spread_s, results.energy_j, results.traffic_bytes)


def _combine_numpy(work: Workload, rates: ChipRates, energies: ChipEnergies) -> Combined:
    """The same, `matmul_oracle.CHUNK_ROWS` accelerators at a time."""
    shape = (len(work.row_of), len(work.macs))
    combined = Combined(*(np.empty(shape) for _ in range(4)))
    for start in range(0, shape[0], matmul_oracle.CHUNK_ROWS):
        chunk = slice(start, start + matmul_oracle.CHUNK_ROWS)
        row, moved = work.row_of[chunk], work.traffic_bytes[work.buffer_of[chunk]]

        def rate(column: Floats, chunk: slice = chunk) -> Floats:
            return column[chunk, None]

        latencies = (
            work.cycles[row] * rate(rates.cycle_s),
            work.lane_cycles * rate(rates.spread_lane_s),
            moved * rate(rates.spread_byte_s),
        )
        core_byte_s = np.where(work.on_tc, rate(rates.one_tc_byte_s), rate(rates.one_vc_byte_s))
        alone = (
            work.one_core_cycles[row] * rate(rates.cycle_s),
            work.lane_cycles * rate(rates.one_core_lane_s),
            moved * core_byte_s,
        )
        combined.spread_s[chunk] = np.maximum.reduce(latencies)
        combined.one_core_s[chunk] = np.maximum.reduce(alone)
        combined.traffic_bytes[chunk] = moved
        combined.energy_j[chunk] = (
            work.macs * rate(energies.mac_j)
            + work.l2_bytes[row] * rate(energies.l2_byte_j)
            + work.glb_bytes[row] * rate(energies.glb_byte_j)
            + moved * rate(energies.hbm_byte_j)
            + work.lane_cycles * rate(energies.lane_cycle_j)
        )
    return combined
