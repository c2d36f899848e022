"""The two backends behind one signature: compiled kernels, and the numpy oracle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate import matmul_oracle, traffic
from phaze_opt.estimate.array_rows import ArrayRows, distinct_rows
from phaze_opt.estimate.matmul_oracle import MatmulPrices
from phaze_opt.estimate.operator_table import MatmulShapes
from phaze_opt.estimate.options import Backend, EstimatorOptions, FillAndDrain, Multicast

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
    hbm_bytes: Floats
    lane_cycles: Floats
    macs: Floats
    on_tc: NDArray[np.bool_]
    on_vc: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Combined:
    """Latencies in s, energy in J and HBM bytes, each of shape (num_accelerators, num_operators)."""

    one_core_s: Floats
    spread_s: Floats
    energy_j: Floats
    hbm_bytes: Floats


def price_matmuls(shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions) -> MatmulPrices:
    """Costs of distinct matmuls on distinct configurations."""
    if options.backend is Backend.NUMPY:
        return matmul_oracle.price_matmuls(
            shapes, rows, fill_and_drain=options.fill_and_drain, multicast=options.multicast
        )
    return _price_compiled(shapes, rows, options)


def tiled_traffic_elements(shapes: MatmulShapes, glb_elements: NDArray[np.int64], backend: Backend) -> Floats:
    """HBM elements of distinct matmuls for distinct buffers; see `estimate.traffic`."""
    if backend is Backend.NUMPY:
        return traffic.tiled_traffic_elements(shapes, glb_elements)
    from phaze_opt.estimate import kernels

    return kernels.tiled_traffic_elements(_sizes(shapes), glb_elements.astype(np.float64))


def combine(work: Workload, rates: ChipRates, energies: ChipEnergies, backend: Backend) -> Combined:
    """Every operator on every accelerator."""
    if backend is Backend.NUMPY:
        return _combine_numpy(work, rates, energies)
    return _combine_compiled(work, rates, energies)


def _sizes(shapes: MatmulShapes) -> Floats:
    """b, m, n, k as floats, shape (num_matmuls, 4)."""
    return np.stack([shapes.batch, shapes.m, shapes.n, shapes.k], axis=1).astype(np.float64)


def _price_compiled(shapes: MatmulShapes, rows: ArrayRows, options: EstimatorOptions) -> MatmulPrices:
    """One kernel run over the distinct arrays, whatever their number; each row then reads its level floor(log2 c)."""
    from phaze_opt.estimate import kernels

    level = np.frexp(rows.num_tc)[1] - 1
    arrays = distinct_rows(rows.tile_elements, rows.width, rows.depth, rows.dtype_bytes, rows.glb_bytes_per_cycle)
    order = np.argsort(rows.tile_elements[arrays.first], kind="stable")
    first = arrays.first[order]
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    array_of = place[arrays.inverse]
    most = np.zeros(len(order), dtype=np.int64)
    np.maximum.at(most, array_of, level)
    ramp_rule = {
        FillAndDrain.PER_FOLD: kernels.RAMP_PER_FOLD,
        FillAndDrain.PER_OPERATOR: kernels.RAMP_PER_OPERATOR,
        FillAndDrain.NONE: kernels.RAMP_NEVER,
    }[options.fill_and_drain]
    columns = (rows.width, rows.depth, rows.tile_elements, rows.dtype_bytes, rows.glb_bytes_per_cycle)
    table = kernels.price_levels(
        _sizes(shapes),
        *(column[first].astype(np.float64) for column in columns),
        most,
        ramp_rule,
        options.multicast is Multicast.IDEAL,
    )
    alone = table[array_of, 0]
    share = (rows.glb_bytes_per_cycle / rows.num_tc)[:, None]
    one_core = np.maximum(alone[..., kernels.STREAM] + alone[..., kernels.FILL], alone[..., kernels.GLB_BYTES] / share)
    best = table[array_of, level]
    return MatmulPrices(
        cycles=best[..., kernels.CYCLES],
        one_core_cycles=one_core,
        stream_cycles=best[..., kernels.STREAM],
        fill_cycles=best[..., kernels.FILL],
        glb_bytes=best[..., kernels.GLB_BYTES],
        l2_bytes=best[..., kernels.L2_BYTES],
        dataflow=best[..., kernels.DATAFLOW].astype(np.int64),
    )


def _columns(*columns: Floats) -> Floats:
    """Columns side by side, shape (num_accelerators, num_columns)."""
    return np.stack(columns, axis=1)


def _combine_compiled(work: Workload, rates: ChipRates, energies: ChipEnergies) -> Combined:
    """The compiled kernel writes straight into the four results."""
    from phaze_opt.estimate import kernels

    shape = (len(work.row_of), len(work.macs))
    combined = Combined(*(np.empty(shape) for _ in range(4)))
    kernels.combine(
        work.row_of,
        work.buffer_of,
        work.cycles,
        work.one_core_cycles,
        work.glb_bytes,
        work.l2_bytes,
        work.hbm_bytes,
        work.lane_cycles,
        work.macs,
        work.on_tc.astype(np.float64),
        work.on_vc.astype(np.float64),
        _columns(
            rates.cycle_s,
            rates.spread_lane_s,
            rates.one_core_lane_s,
            rates.spread_byte_s,
            rates.one_tc_byte_s,
            rates.one_vc_byte_s,
        ),
        _columns(energies.mac_j, energies.l2_byte_j, energies.glb_byte_j, energies.hbm_byte_j, energies.lane_cycle_j),
        combined.one_core_s,
        combined.spread_s,
        combined.energy_j,
        combined.hbm_bytes,
    )
    return combined


def _combine_numpy(work: Workload, rates: ChipRates, energies: ChipEnergies) -> Combined:
    """The same, `matmul_oracle.CHUNK_ROWS` accelerators at a time."""
    shape = (len(work.row_of), len(work.macs))
    combined = Combined(*(np.empty(shape) for _ in range(4)))
    on_core = work.on_tc | work.on_vc
    for start in range(0, shape[0], matmul_oracle.CHUNK_ROWS):
        chunk = slice(start, start + matmul_oracle.CHUNK_ROWS)
        row, moved = work.row_of[chunk], work.hbm_bytes[work.buffer_of[chunk]] * on_core

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
        combined.spread_s[chunk] = np.maximum.reduce(latencies) * on_core
        combined.one_core_s[chunk] = np.maximum.reduce(alone) * on_core
        combined.hbm_bytes[chunk] = moved
        combined.energy_j[chunk] = on_core * (
            work.macs * rate(energies.mac_j)
            + work.l2_bytes[row] * rate(energies.l2_byte_j)
            + work.glb_bytes[row] * rate(energies.glb_byte_j)
            + moved * rate(energies.hbm_byte_j)
            + work.lane_cycles * rate(energies.lane_cycle_j)
        )
    return combined
