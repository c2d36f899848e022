"""Compiled kernels of HBM traffic and of what an estimate is combined from; same formulas as the numpy oracle.

Import this module lazily: it pulls in numba. Compiled code is kept on disk where a cache folder is writable and is
compiled anew in every process where none is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phaze_opt.record.compiled import compiled

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class RowTables(NamedTuple):
    """Operators on distinct rows or buffers, and which row and buffer each accelerator has."""

    row_of: Ints
    buffer_of: Ints
    cycles: Floats
    one_core_cycles: Floats
    glb_bytes: Floats
    l2_bytes: Floats
    traffic_bytes: Floats


class OperatorColumns(NamedTuple):
    """Per operator: lane cycles, MACs, and 1.0 where it occupies a tensor core."""

    lane_cycles: Floats
    macs: Floats
    on_tc: Floats


class Results(NamedTuple):
    """The four matrices of `Estimates`, written by `combine`."""

    one_core_s: Floats
    spread_s: Floats
    energy_j: Floats
    traffic_bytes: Floats


@compiled
def tiled_traffic_elements(sizes: Floats, room: Floats) -> Floats:
    """HBM elements of every matmul for every half GLB; see `estimate.traffic`. Shape (num_buffers, num_matmuls)."""
    traffic = np.empty((len(room), len(sizes)))
    for u in range(len(sizes)):
        batch, m, n, k = sizes[u, 0], sizes[u, 1], sizes[u, 2], sizes[u, 3]
        once = m * k + k * n + m * n
        smallest = min(m * k, k * n, m * n)
        for h in range(len(room)):
            best = once if smallest <= room[h] else math.inf
            strips = float(math.ceil(n / room[h]))
            while strips <= n and strips * (m * k) + k * n + m * n < best:
                rows_per_tile = math.floor(room[h] / math.ceil(n / strips))
                best = min(best, strips * (m * k) + math.ceil(m / rows_per_tile) * (k * n) + m * n)
                strips += 1.0
            traffic[h, u] = best * batch
    return traffic


@compiled
def _fill_latency(latency_s: Floats, cycles: Floats, cycle_s: float, work: Floats, lane_s: float) -> None:
    """The later of tensor and vector cores, for every operator on one accelerator."""
    for o in range(len(latency_s)):
        latency_s[o] = max(cycles[o] * cycle_s, work[o] * lane_s)


@compiled
def combine(tables: RowTables, columns: OperatorColumns, rates: Floats, energies: Floats, results: Results) -> None:
    """Latency and energy of every operator on every accelerator, into ``results``.

    Short loops over one accelerator's operators, each over few arrays, so that they vectorise and stay in cache.

    Args:
        tables: per-row costs.
        columns: per-operator work.
        rates: seconds a cycle, a spread lane cycle, one core's lane cycle, an HBM byte, and one at the share of one
            tensor core and of one vector core; shape (num_accelerators, 6).
        energies: joules a MAC, L2 byte, GLB byte, HBM byte and lane cycle; shape (num_accelerators, 5).
        results: matrices to fill.
    """
    work, macs, on_tc = columns.lane_cycles, columns.macs, columns.on_tc
    count = len(macs)
    for a in range(len(tables.row_of)):
        moved = tables.traffic_bytes[tables.buffer_of[a]]
        row = tables.row_of[a]
        spread_s, one_core_s, energy_j = results.spread_s[a], results.one_core_s[a], results.energy_j[a]
        byte_s, tc_byte_s, vc_byte_s = rates[a, 3], rates[a, 4], rates[a, 5]
        _fill_latency(spread_s, tables.cycles[row], rates[a, 0], work, rates[a, 1])
        _fill_latency(one_core_s, tables.one_core_cycles[row], rates[a, 0], work, rates[a, 2])
        for o in range(count):
            spread_s[o] = max(spread_s[o], moved[o] * byte_s)
        for o in range(count):
            core_byte_s = on_tc[o] * tc_byte_s + (1.0 - on_tc[o]) * vc_byte_s
            one_core_s[o] = max(one_core_s[o], moved[o] * core_byte_s)
        glb, l2 = tables.glb_bytes[row], tables.l2_bytes[row]
        mac_j, l2_j, glb_j, hbm_j, lane_j = (
            energies[a, 0],
            energies[a, 1],
            energies[a, 2],
            energies[a, 3],
            energies[a, 4],
        )
        for o in range(count):
            energy_j[o] = macs[o] * mac_j + l2[o] * l2_j + glb[o] * glb_j + moved[o] * hbm_j + work[o] * lane_j
        results.traffic_bytes[a] = moved
