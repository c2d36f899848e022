"""Compiled kernels of the estimator; same formulas, in the same order of operations, as the numpy oracle.

Import this module lazily: it pulls in numba. Compiled code is kept on disk where a cache folder is writable and is
compiled anew in every process where none is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., object])
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NUM_FIELDS = 6
"""Figures kept per configuration, level and matmul: cycles, stream, fill, GLB bytes, L2 bytes, dataflow."""
CYCLES, STREAM, FILL, GLB_BYTES, L2_BYTES, DATAFLOW = range(NUM_FIELDS)
RAMP_PER_FOLD, RAMP_PER_OPERATOR, RAMP_NEVER = range(3)


def _compiled(function: _FunctionT) -> _FunctionT:
    """Compile without fast-math; cached on disk if any cache folder is writable (numba refuses otherwise)."""
    try:
        return cast(_FunctionT, njit(cache=True)(function))
    except RuntimeError:
        return cast(_FunctionT, njit(function))


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
def _fill_passes(
    m: float, n: float, most_m: int, most_n: int, most: int, tile: float, over_n: Floats, over_m: Floats
) -> None:
    """GLB passes ceil(n'/t_n) and ceil(m'/t_m) of every split of m and n, into ``over_n`` and ``over_m``."""
    edge = math.floor(math.sqrt(tile))
    for e_m in range(most_m + 1):
        share_m = math.ceil(m / (1 << e_m))
        for e_n in range(min(most_n, most - e_m) + 1):
            share_n = math.ceil(n / (1 << e_n))
            t_m, t_n = edge, edge
            if share_m < edge:
                t_m, t_n = share_m, math.floor(tile / share_m)
            elif share_n < edge:
                t_m, t_n = math.floor(tile / share_n), share_n
            over_n[e_m, e_n] = math.ceil(share_n / t_n)
            over_m[e_m, e_n] = math.ceil(share_m / t_m)


@_compiled
def _fill_folds(extent: float, most: int, width: float, depth: float, folds: Floats) -> None:
    """Share, folds across the width and folds down the depth of every split of one dimension, into ``folds``."""
    for exponent in range(most + 1):
        share = math.ceil(extent / (1 << exponent))
        folds[exponent, 0] = share
        folds[exponent, 1] = math.ceil(share / width)
        folds[exponent, 2] = math.ceil(share / depth)


@_compiled
def _best_flow(batch: float, m: Floats, n: Floats, k: Floats, ramp: float, ramp_rule: int, flow: Floats) -> None:
    """Least compute cycles over the three dataflows, into ``flow``: stream, fill, folds, stream length, code."""
    least = math.inf
    for code in range(3):
        if code == 0:
            folds, stream = batch * (k[2] * n[1]), m[0]
        elif code == 1:
            folds, stream = batch * (m[2] * n[1]), k[0]
        else:
            folds, stream = batch * (k[2] * m[1]), n[0]
        ramps = folds if ramp_rule == RAMP_PER_FOLD else (1.0 if ramp_rule == RAMP_PER_OPERATOR else 0.0)
        streaming = folds * stream
        filling = ramps * ramp
        if streaming + filling < least:
            least = streaming + filling
            flow[0], flow[1], flow[2], flow[3], flow[4] = streaming, filling, folds, stream, code


@_compiled
def _price_levels(
    size: Floats,
    width: float,
    depth: float,
    dtype: float,
    bandwidth: float,
    most: int,
    ramp_rule: int,
    is_multicast: bool,
    limits: Ints,
    over_n: Floats,
    over_m: Floats,
    folds_b: Floats,
    folds_m: Floats,
    folds_n: Floats,
    folds_k: Floats,
    flow: Floats,
    out: Floats,
) -> None:
    """Best split of one matmul over at most 2**s arrays, for s = 0 .. most, into ``out`` of shape (levels, fields).

    Exact pruning: a split is looked at only while its own GLB time, and the ideal compute time of its level, are
    below the best so far; ties go to the split with fewest arrays that comes first, as in the oracle.
    """
    _fill_folds(size[0], min(limits[0], most), width, depth, folds_b)
    _fill_folds(size[1], min(limits[1], most), width, depth, folds_m)
    _fill_folds(size[2], min(limits[2], most), width, depth, folds_n)
    _fill_folds(size[3], min(limits[3], most), width, depth, folds_k)
    ramp = 2.0 * depth + width - 2.0
    ideal = size[0] * size[1] * size[2] * size[3] / (width * depth)
    best = math.inf
    for level in range(most + 1):
        if level > 0:
            out[level] = out[level - 1]
        used = float(1 << level)
        if ideal / used >= best:
            continue
        for e_b in range(min(level, limits[0]) + 1):
            batch = folds_b[e_b, 0]
            for e_m in range(min(level - e_b, limits[1]) + 1):
                m = folds_m[e_m, 0]
                rest = level - e_b - e_m
                for e_n in range(max(0, rest - limits[3]), min(rest, limits[2]) + 1):
                    n = folds_n[e_n, 0]
                    e_k = rest - e_n
                    k = folds_k[e_k, 0]
                    left = m * k * over_n[e_m, e_n]
                    right = k * n * over_m[e_m, e_n]
                    result = m * n * (3.0 if e_k > 0 else 1.0)
                    if is_multicast:
                        left /= float(1 << e_n)
                        right /= float(1 << e_m)
                    glb_bytes = dtype * (used * batch * (left + right + result))
                    glb_cycles = glb_bytes / bandwidth
                    if glb_cycles >= best:
                        continue
                    _best_flow(batch, folds_m[e_m], folds_n[e_n], folds_k[e_k], ramp, ramp_rule, flow)
                    cycles = max(flow[0] + flow[1], glb_cycles)
                    if cycles < best:
                        best = cycles
                        l2_elements = flow[2] * (flow[3] * (width + depth) + width * depth)
                        out[level, CYCLES] = cycles
                        out[level, STREAM] = flow[0]
                        out[level, FILL] = flow[1]
                        out[level, GLB_BYTES] = glb_bytes
                        out[level, L2_BYTES] = dtype * used * l2_elements
                        out[level, DATAFLOW] = flow[4]


@_compiled
def price_levels(
    sizes: Floats,
    width: Floats,
    depth: Floats,
    tile: Floats,
    dtype: Floats,
    bandwidth: Floats,
    most: Ints,
    ramp_rule: int,
    is_multicast: bool,
) -> Floats:
    """Best costs of every matmul on every array configuration for every number 2**s of arrays.

    Args:
        sizes: b, m, n, k of each matmul, shape (num_matmuls, 4).
        width, depth, tile, dtype, bandwidth, most: columns of the configurations, sorted by ``tile``; ``most`` is the
            largest s wanted.
        ramp_rule: `RAMP_PER_FOLD`, `RAMP_PER_OPERATOR` or `RAMP_NEVER`.
        is_multicast: whether shared operands are read once.

    Returns:
        Shape (num_configurations, levels, num_matmuls, NUM_FIELDS).
    """
    levels = most.max() + 1
    table = np.zeros((len(width), levels, len(sizes), NUM_FIELDS))
    over_n, over_m = np.empty((levels, levels)), np.empty((levels, levels))
    folds_b, folds_m = np.empty((levels, 3)), np.empty((levels, 3))
    folds_n, folds_k = np.empty((levels, 3)), np.empty((levels, 3))
    flow = np.empty(5)
    limits = np.empty(4, dtype=np.int64)
    for u in range(len(sizes)):
        for axis in range(4):
            limits[axis] = _log2_ceil(sizes[u, axis], levels - 1)
        for r in range(len(width)):
            if r == 0 or tile[r] != tile[r - 1]:
                _fill_passes(sizes[u, 1], sizes[u, 2], limits[1], limits[2], levels - 1, tile[r], over_n, over_m)
            _price_levels(
                sizes[u],
                width[r],
                depth[r],
                dtype[r],
                bandwidth[r],
                most[r],
                ramp_rule,
                is_multicast,
                limits,
                over_n,
                over_m,
                folds_b,
                folds_m,
                folds_n,
                folds_k,
                flow,
                table[r, :, u],
            )
    return table


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
            strips = math.ceil(n / room[h])
            while strips <= n and strips * (m * k) + k * n + m * n < best:
                rows_per_tile = math.floor(room[h] / math.ceil(n / strips))
                best = min(best, strips * (m * k) + math.ceil(m / rows_per_tile) * (k * n) + m * n)
                strips += 1
            traffic[h, u] = best * batch
    return traffic


@_compiled
def combine(
    row_of: Ints,
    buffer_of: Ints,
    cycles: Floats,
    one_core_cycles: Floats,
    glb_bytes: Floats,
    l2_bytes: Floats,
    hbm_bytes: Floats,
    lane_cycles: Floats,
    macs: Floats,
    on_tc: Floats,
    on_vc: Floats,
    rates: Floats,
    energies: Floats,
    one_core_s: Floats,
    spread_s: Floats,
    energy_j: Floats,
    traffic_bytes: Floats,
) -> None:
    """Latency and energy of every operator on every accelerator, into the last four arrays.

    ``rates`` and ``energies`` are the columns of `analytic.chip_rates` and `analytic.chip_energies`.
    """
    for a in range(len(row_of)):
        q, h = row_of[a], buffer_of[a]
        cycle_s, lanes_s, lane_s, byte_s = rates[a, 0], rates[a, 1], rates[a, 2], rates[a, 3]
        tc_byte_s, vc_byte_s = rates[a, 4], rates[a, 5]
        for o in range(len(macs)):
            moved = hbm_bytes[h, o]
            work = lane_cycles[o]
            if on_tc[o] + on_vc[o] == 0.0:
                one_core_s[a, o] = spread_s[a, o] = energy_j[a, o] = traffic_bytes[a, o] = 0.0
                continue
            spread_s[a, o] = max(cycles[q, o] * cycle_s, work * lanes_s, moved * byte_s)
            core_byte_s = tc_byte_s if on_tc[o] > 0.0 else vc_byte_s
            one_core_s[a, o] = max(one_core_cycles[q, o] * cycle_s, work * lane_s, moved * core_byte_s)
            traffic_bytes[a, o] = moved
            energy_j[a, o] = (
                macs[o] * energies[a, 0]
                + l2_bytes[q, o] * energies[a, 1]
                + glb_bytes[q, o] * energies[a, 2]
                + moved * energies[a, 3]
                + work * energies[a, 4]
            )
