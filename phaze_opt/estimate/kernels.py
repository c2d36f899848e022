"""Compiled kernels of the estimator; same formulas, in the same order of operations, as the numpy oracle.

Import this module lazily: it pulls in numba. Compiled code is kept on disk where a cache folder is writable and is
compiled anew in every process where none is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., object])
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUM_FIELDS = 6
"""Figures kept per configuration, level and matmul: cycles, stream, fill, GLB bytes, L2 bytes, dataflow."""
CYCLES, STREAM, FILL, GLB_BYTES, L2_BYTES, DATAFLOW = range(NUM_FIELDS)


class Arrays(NamedTuple):
    """Array configurations as columns, sorted by ``tile``; ``most`` is the largest s of the 2**s arrays wanted."""

    width: Floats
    depth: Floats
    tile: Floats
    dtype: Floats
    cycles_per_byte: Floats
    most: Ints


class Rules(NamedTuple):
    """Options as numbers: fill and drain = (per_fold x folds + per_operator) x ramp; is a shared operand read once."""

    per_fold: float
    per_operator: float
    is_multicast: bool


class Array(NamedTuple):
    """One array configuration; ``ramp`` = 2d + w - 2, ``ideal`` the compute cycles of one fully busy array."""

    width: float
    depth: float
    dtype: float
    cycles_per_byte: float
    ramp: float
    ideal: float


class SplitTables(NamedTuple):
    """Of every split 2**e of each dimension: share, folds across the width, folds down the depth; GLB passes.

    ``limits`` holds the largest useful e of b, m, n and k; ``over_n`` is ceil(n'/t_n), ``over_m`` ceil(m'/t_m).
    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    over_n: Floats
    over_m: Floats
    limits: Ints


class RowTables(NamedTuple):
    """Operators on distinct rows or buffers, and which row and buffer each accelerator has."""

    row_of: Ints
    buffer_of: Ints
    cycles: Floats
    one_core_cycles: Floats
    glb_bytes: Floats
    l2_bytes: Floats
    hbm_bytes: Floats


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
    hbm_bytes: Floats


def _compiled(function: _FunctionT) -> _FunctionT:
    """Compile without fast-math; cached on disk if any cache folder is writable (numba refuses otherwise)."""
    try:
        return cast(_FunctionT, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(_FunctionT, njit(nogil=True)(function))


@_compiled
def _log2_ceil(value: float, most: int) -> int:
    """Smallest e <= most with 2**e >= value, or most."""
    exponent = 0
    reach = 1.0
    while reach < value and exponent < most:
        reach *= 2.0
        exponent += 1
    return exponent


@_compiled
def _fill_passes(tables: SplitTables, size: Floats, tile: float) -> None:
    """GLB passes of every split of m and n into ``over_n`` and ``over_m``; see `matmul_oracle._glb_elements`."""
    edge = math.floor(math.sqrt(tile))
    most = len(tables.over_n) - 1
    for e_m in range(tables.limits[1] + 1):
        m = math.ceil(size[1] / (1 << e_m))
        for e_n in range(min(tables.limits[2], most - e_m) + 1):
            n = math.ceil(size[2] / (1 << e_n))
            t_m, t_n = edge, edge
            if m < edge:
                t_m, t_n = m, math.floor(tile / m)
            elif n < edge:
                t_m, t_n = math.floor(tile / n), n
            tables.over_n[e_m, e_n] = math.ceil(n / t_n)
            tables.over_m[e_m, e_n] = math.ceil(m / t_m)


@_compiled
def _fill_folds(folds: Floats, extent: float, limit: int, array: Array) -> None:
    """Share, folds across the width and folds down the depth of every split of one dimension."""
    for exponent in range(limit + 1):
        share = math.ceil(extent / (1 << exponent))
        folds[exponent, 0] = share
        folds[exponent, 1] = math.ceil(share / array.width)
        folds[exponent, 2] = math.ceil(share / array.depth)


@_compiled
def _record(out: Floats, flows: tuple[tuple[float, float], ...], array: Array, rules: Rules, scale: float) -> None:
    """Stream, fill, L2 bytes and dataflow of the split just found; ``scale`` = dtype bytes x arrays used."""
    least = math.inf
    for code in range(3):
        folds, stream = flows[code]
        fill = (rules.per_fold * folds + rules.per_operator) * array.ramp
        if folds * stream + fill < least:
            least = folds * stream + fill
            l2_elements = folds * (stream * (array.width + array.depth) + array.width * array.depth)
            out[STREAM], out[FILL], out[L2_BYTES], out[DATAFLOW] = folds * stream, fill, scale * l2_elements, code


@_compiled
def _price_level(tables: SplitTables, array: Array, rules: Rules, level: int, out: Floats) -> None:
    """Best split over exactly 2**level arrays, into ``out`` if it beats the cycles already there.

    A split's dataflows are looked at only while its own GLB time is below the best so far.
    """
    used = float(1 << level)
    limits = tables.limits
    best = out[CYCLES]
    for e_b in range(min(level, limits[0]) + 1):
        batch = tables.batch[e_b, 0]
        for e_m in range(min(level - e_b, limits[1]) + 1):
            m, m_across, m_down = tables.m[e_m, 0], tables.m[e_m, 1], tables.m[e_m, 2]
            rest = level - e_b - e_m
            for e_n in range(max(0, rest - limits[3]), min(rest, limits[2]) + 1):
                n, n_across = tables.n[e_n, 0], tables.n[e_n, 1]
                k, k_down = tables.k[rest - e_n, 0], tables.k[rest - e_n, 2]
                left = m * k * tables.over_n[e_m, e_n]
                right = k * n * tables.over_m[e_m, e_n]
                result = m * n * (3.0 if rest > e_n else 1.0)
                if rules.is_multicast:
                    left /= float(1 << e_n)
                    right /= float(1 << e_m)
                glb_bytes = array.dtype * (used * batch * (left + right + result))
                glb_cycles = glb_bytes * array.cycles_per_byte
                if glb_cycles >= best:
                    continue
                weight, output, inputs = (
                    batch * (k_down * n_across),
                    batch * (m_down * n_across),
                    batch * (k_down * m_across),
                )
                least = min(
                    weight * m + (rules.per_fold * weight + rules.per_operator) * array.ramp,
                    output * k + (rules.per_fold * output + rules.per_operator) * array.ramp,
                    inputs * n + (rules.per_fold * inputs + rules.per_operator) * array.ramp,
                )
                if least < best:
                    best = max(least, glb_cycles)
                    out[CYCLES], out[GLB_BYTES] = best, glb_bytes
                    _record(out, ((weight, m), (output, k), (inputs, n)), array, rules, array.dtype * used)


@_compiled
def _price_matmul(size: Floats, tables: SplitTables, array: Array, rules: Rules, out: Floats) -> None:
    """Best split of one matmul over at most 2**s arrays, for every s; ``out`` has shape (levels, fields).

    Levels go upwards and only strict improvements count, so ties go to the fewest arrays, as in the oracle. A level
    whose ideal compute time is no better than the best so far cannot improve on it.
    """
    most = len(out) - 1
    _fill_folds(tables.batch, size[0], min(tables.limits[0], most), array)
    _fill_folds(tables.m, size[1], min(tables.limits[1], most), array)
    _fill_folds(tables.n, size[2], min(tables.limits[2], most), array)
    _fill_folds(tables.k, size[3], min(tables.limits[3], most), array)
    out[0, CYCLES] = math.inf
    for level in range(most + 1):
        if level > 0:
            out[level] = out[level - 1]
        if array.ideal / (1 << level) < out[level, CYCLES]:
            _price_level(tables, array, rules, level, out[level])


@_compiled
def price_levels(  # noqa: PLR0917
    sizes: Floats, arrays: Arrays, rules: Rules, table: Floats, start: int, step: int
) -> None:
    """Best costs of every matmul on every array configuration for every number 2**s of arrays, into ``table``.

    Args:
        sizes: b, m, n, k of each matmul, shape (num_matmuls, 4).
        arrays: the configurations.
        rules: options in force.
        table: shape (num_configurations, levels, num_matmuls, NUM_FIELDS); levels above a configuration's ``most``
            stay as they are.
        start: first matmul of this thread's share.
        step: distance to its next one.
    """
    levels = table.shape[1]
    tables = SplitTables(
        np.empty((levels, 3)),
        np.empty((levels, 3)),
        np.empty((levels, 3)),
        np.empty((levels, 3)),
        np.empty((levels, levels)),
        np.empty((levels, levels)),
        np.empty(4, dtype=np.int64),
    )
    for u in range(start, len(sizes), step):
        size = sizes[u]
        for axis in range(4):
            tables.limits[axis] = _log2_ceil(size[axis], levels - 1)
        macs = size[0] * size[1] * size[2] * size[3]
        for r in range(len(arrays.width)):
            if r == 0 or arrays.tile[r] != arrays.tile[r - 1]:
                _fill_passes(tables, size, arrays.tile[r])
            width, depth = arrays.width[r], arrays.depth[r]
            array = Array(
                width,
                depth,
                arrays.dtype[r],
                arrays.cycles_per_byte[r],
                2.0 * depth + width - 2.0,
                macs / (width * depth),
            )
            _price_matmul(size, tables, array, rules, table[r, : arrays.most[r] + 1, u])


@_compiled
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


@_compiled
def _fill_latency(latency_s: Floats, cycles: Floats, cycle_s: float, work: Floats, lane_s: float) -> None:
    """The later of tensor and vector cores, for every operator on one accelerator."""
    for o in range(len(latency_s)):
        latency_s[o] = max(cycles[o] * cycle_s, work[o] * lane_s)


@_compiled
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
        moved = tables.hbm_bytes[tables.buffer_of[a]]
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
        results.hbm_bytes[a] = moved
