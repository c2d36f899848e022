"""Compiled kernels of the analytic estimator: matmuls split over arrays, latencies and energies.

A matmul b x (m x n x k) on c arrays of w (width) x d (depth) is split (c_b, r_m, r_n, r_k) with c_b r_m r_n r_k <= c,
into b' = ceil(b/c_b), m' = ceil(m/r_m), n' = ceil(n/r_n), k' = ceil(k/r_k) per array. The four are powers of two; where
c is none, one of them may be any number (docs/decisions/0140). Of all splits the first with the least max(compute, GLB)
is taken, fewest arrays first; HBM does not depend on the split, so max with it afterwards is the exact minimum of
max(compute, GLB, HBM).

Compute cycles = b' folds (stream + 2d + w - 2) where a fold ends before the next begins. Where sub-stages overlap
(`hardware.pipelining`) they are F stream + F each + once + (F - 1) max(0, least - stream) with F = b' folds.
Weight-stationary folds ceil(k'/d) ceil(n'/w) and streams m', output-stationary ceil(m'/d) ceil(n'/w) and k',
input-stationary ceil(k'/d) ceil(m'/w) and n'. Elements through the GLB: c' b' [m'k' ceil(n'/t_n) + k'n' ceil(m'/t_m) +
m'n' (3 times if r_k > 1)] without multicast; with ideal multicast an operand that r_n (or r_m) arrays share is read
once for all of them. Operands of sparse products count with the scales of `MatmulShapes`. t_m = t_n =
floor(sqrt(tile)), stretched when an edge is shorter.

Not every chip allows every mapping (`hardware.flexibility`): splits along dimensions, dataflows and tiles that a
configuration does not have are left out (`estimate.traffic_kernels`).

Grouped products may share an array block-diagonally: where one product's part of what stands in the array takes x
rows and y columns of it, p = min(floor(d/x), floor(w/y)) of them stand side by side, and ceil(b'/p) fills replace b'
(docs/decisions/0280).

Import this module lazily: it pulls in numba. Compiled code is kept on disk where a cache folder is writable and is
compiled anew in every process where none is.
"""

import math
from typing import NamedTuple

import numpy as np

from phaze_opt.estimate.operator_table import OperatorColumns, Results, RowTables
from phaze_opt.estimate.traffic_kernels import pass_buffer, set_passes
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled

NUM_FIELDS = 6
"""Figures kept per configuration, level and matmul: cycles, stream, fill, GLB bytes, L2 bytes, dataflow."""
CYCLES, STREAM, FILL, GLB_BYTES, L2_BYTES, DATAFLOW = range(NUM_FIELDS)
NEVER = 1e200
"""Folds of a dataflow that cannot be; large and finite, as a rule of 0 cycles a fold multiplies it."""
EVERY_ORDER = 0b111
"""All dataflows allowed."""
NO_AXIS = -1
"""Passed through `int`: numba compiles a kernel anew for every literal that it is called with."""


class Arrays(NamedTuple):
    """Array configurations as columns, sorted by ``tile``; ``most`` is the largest s of the 2**s arrays wanted.

    ``each``, ``once`` and ``least`` are those of `hardware.pipelining.FoldCycles`; ``tiling``, ``order`` and ``split``
    what `hardware.flexibility` makes of the switches, sorted by ``tiling`` where tiles are alike.
    """

    width: Floats
    depth: Floats
    tile: Floats
    dtype: Floats
    cycles_per_byte: Floats
    each: Floats
    once: Floats
    least: Floats
    most: Ints
    tiling: Ints
    order: Ints
    split: Ints


class Wanted(NamedTuple):
    """Numbers of arrays that are no powers of two: counts[starts[r]:starts[r+1]] of configuration r, increasing."""

    counts: Ints
    starts: Ints


class Rules(NamedTuple):
    """Options: is a shared operand read once; do grouped products share arrays, and of one matmul: do its own.

    ``left_scale`` and ``right_scale`` are those of one matmul (`MatmulShapes`).
    """

    is_multicast: bool
    is_packed: bool
    left_scale: float
    right_scale: float


class Array(NamedTuple):
    """One array configuration; ``ideal`` are the compute cycles of one fully busy array, `Arrays` has the others."""

    width: float
    depth: float
    tile: float
    dtype: float
    cycles_per_byte: float
    each: float
    once: float
    least: float
    ideal: float
    tiling: int
    order: int
    split: int


class SplitTables(NamedTuple):
    """What splits of each dimension leave; the last place of every table is for a number that is no power of two.

    Attributes:
        shares: of b, m, n, k split 2**e: share, folds across the width, folds down the depth, shape (4, levels + 1, 3).
        passes: GLB passes ceil(n'/t_n) and ceil(m'/t_m) by e of m and n, shape (levels + 1, levels + 1, 2).
        limits: largest useful e of b, m, n and k.
        is_useful: numbers of parts of each that are worth trying, see `_mark_useful`, shape (4, largest count + 1).
    """

    shares: Floats
    passes: Floats
    limits: Ints
    is_useful: Flags


@compiled
def _log2_ceil(value: float, most: int) -> int:
    """Smallest e <= most with 2**e >= value, or most."""
    exponent = 0
    reach = 1.0
    while reach < value and exponent < most:
        reach *= 2.0
        exponent += 1
    return exponent


@compiled
def _weights(rules: Rules, parts_m: float, parts_n: float) -> tuple[float, float]:
    """What an element of the left and of the right operand counts for on each of so many arrays."""
    if rules.is_multicast:
        return rules.left_scale / parts_n, rules.right_scale / parts_m
    return rules.left_scale, rules.right_scale


@compiled
def _fill_passes(  # noqa: PLR0917
    tables: SplitTables, size: Floats, tile: float, most: int, tiling: int, rules: Rules
) -> None:
    """GLB passes of every split of m and n by powers of two whose product is at most 2**most."""
    for e_m in range(tables.limits[1] + 1):
        m = float(math.ceil(size[1] / (1 << e_m)))
        for e_n in range(min(tables.limits[2], most - e_m) + 1):
            n = float(math.ceil(size[2] / (1 << e_n)))
            left, right = _weights(rules, float(1 << e_m), float(1 << e_n))
            set_passes(tables.passes[e_m, e_n], m, n, tile, tiling, left, right)


@compiled
def _set_share(share: Floats, extent: float, parts: float, array: Array) -> None:
    """Share of a dimension split into ``parts``, and its folds across the width and down the depth."""
    share[0] = math.ceil(extent / parts)
    share[1] = math.ceil(share[0] / array.width)
    share[2] = math.ceil(share[0] / array.depth)


@compiled
def _fills(batch: float, down: float, across: float, array: Array) -> float:
    """How often an array is filled for ``batch`` products that take so much of its depth and width."""
    return math.ceil(batch / max(1.0, min(math.floor(array.depth / down), math.floor(array.width / across))))


@compiled
def _fill(folds: float, stream: float, array: Array) -> float:
    """Cycles of folds beyond their streams."""
    return folds * array.each + array.once + (folds - 1.0) * max(0.0, array.least - stream)


@compiled
def _allowed(folds: float, array: Array, dataflow: int) -> float:
    """Folds of a dataflow; as good as endless where the array does not have it."""
    return folds if array.order >> dataflow & 1 else float(NEVER)


@compiled
def _record(out: Floats, flows: tuple[tuple[float, float], ...], array: Array, rules: Rules, scale: float) -> None:
    """Stream, fill, L2 bytes and dataflow of the split just found; ``scale`` = dtype bytes x arrays used."""
    least = math.inf
    for code in range(3):
        folds, stream = flows[code]
        fill = _fill(folds, stream, array)
        if folds * stream + fill < least:
            least = folds * stream + fill
            across, down = array.width * rules.right_scale, array.depth * rules.left_scale
            l2_elements = folds * (stream * (across + down) + across * array.depth)
            out[STREAM], out[FILL], out[L2_BYTES], out[DATAFLOW] = folds * stream, fill, scale * l2_elements, code


@compiled
def _price_level(  # noqa: PLR0917
    tables: SplitTables, array: Array, rules: Rules, level: int, axis: int, factor: float, out: Floats
) -> None:
    """Best split over exactly factor x 2**level arrays, into ``out`` if it beats the cycles already there.

    Dimension ``axis`` is split into ``factor`` parts, the others by powers of two; all of them where it is -1 and the
    factor 1. A split's dataflows are looked at only while its own GLB time is below the best so far.
    """
    used = factor * (1 << level)
    shares, passes, limits = tables.shares, tables.passes, tables.limits
    spare = shares.shape[1] - 1
    factor_m, factor_n = factor if axis == 1 else 1.0, factor if axis == 2 else 1.0
    last_m, last_n = 0 if axis == 1 else limits[1], 0 if axis == 2 else limits[2]
    last_k = 0 if axis == 3 else limits[3]
    best = out[CYCLES]
    for e_b in range((0 if axis == 0 else min(level, limits[0])) + 1):
        batch = shares[0, spare if axis == 0 else e_b, 0]
        for e_m in range(min(level - e_b, last_m) + 1):
            at_m = spare if axis == 1 else e_m
            m, m_across, m_down = shares[1, at_m, 0], shares[1, at_m, 1], shares[1, at_m, 2]
            rest = level - e_b - e_m
            for e_n in range(max(0, rest - last_k), min(rest, last_n) + 1):
                at_n, at_k = spare if axis == 2 else e_n, spare if axis == 3 else rest - e_n
                n, n_across = shares[2, at_n, 0], shares[2, at_n, 1]
                k, k_down = shares[3, at_k, 0], shares[3, at_k, 2]
                left = m * k * passes[at_m, at_n, 0] * rules.left_scale
                right = k * n * passes[at_m, at_n, 1] * rules.right_scale
                result = m * n * (3.0 if at_k > 0 else 1.0)
                if rules.is_multicast:
                    left /= factor_n * (1 << e_n)
                    right /= factor_m * (1 << e_m)
                glb_bytes = array.dtype * (used * batch * (left + right + result))
                glb_cycles = glb_bytes * array.cycles_per_byte
                if glb_cycles >= best:
                    continue
                fills = (batch, batch, batch)
                if rules.is_packed:
                    fills = (_fills(batch, k, n, array), _fills(batch, m, n, array), _fills(batch, k, m, array))
                weight, output, inputs = (
                    fills[0] * (k_down * n_across),
                    fills[1] * (m_down * n_across),
                    fills[2] * (k_down * m_across),
                )
                if array.order != EVERY_ORDER:
                    weight, output = _allowed(weight, array, 0), _allowed(output, array, 1)
                    inputs = _allowed(inputs, array, 2)
                # Columns of sparse weights meet other inputs each, so that none can stand in the array for all.
                if rules.right_scale > 1.0:
                    inputs = float(NEVER)
                least = min(
                    weight * m + _fill(weight, m, array),
                    output * k + _fill(output, k, array),
                    inputs * n + _fill(inputs, n, array),
                )
                if least < best:
                    best = max(least, glb_cycles)
                    out[CYCLES], out[GLB_BYTES] = best, glb_bytes
                    _record(out, ((weight, m), (output, k), (inputs, n)), array, rules, array.dtype * used)


@compiled
def _price_powers(size: Floats, tables: SplitTables, array: Array, rules: Rules, out: Floats) -> None:
    """Best split of one matmul over at most 2**s arrays, for every s; ``out`` has shape (levels, fields).

    Levels go upwards and only strict improvements count, so ties go to the fewest arrays. A level
    whose ideal compute time is no better than the best so far cannot improve on it.
    """
    most = len(out) - 1
    for axis in range(4):
        for exponent in range(min(tables.limits[axis], most) + 1):
            _set_share(tables.shares[axis, exponent], size[axis], float(1 << exponent), array)
    out[0, CYCLES] = math.inf
    for level in range(most + 1):
        if level > 0:
            out[level] = out[level - 1]
        if array.ideal / (1 << level) < out[level, CYCLES]:
            _price_level(tables, array, rules, level, int(NO_AXIS), 1.0, out[level])


@compiled
def _mark_useful(is_useful: Flags, size: Floats) -> None:
    """Of every dimension the numbers of parts, no powers of two, that leave smaller shares than one part less."""
    for axis in range(4):
        power = 4
        for parts in range(3, is_useful.shape[1]):
            is_useful[axis, parts] = math.ceil(size[axis] / parts) < math.ceil(size[axis] / (parts - 1))
            if parts == power:
                is_useful[axis, parts] = False
                power *= 2


@compiled
def _price_count(  # noqa: PLR0917
    size: Floats, tables: SplitTables, array: Array, rules: Rules, count: int, out: Floats
) -> None:
    """Best split over exactly ``count`` arrays that is not of powers of two alone, if it beats the cycles in ``out``.

    Dimensions go in the order b, m, n, k, then the number of parts upwards.
    """
    odd, most = count, 0
    while odd % 2 == 0:
        odd //= 2
        most += 1
    spare = tables.shares.shape[1] - 1
    for axis in range(4):
        for exponent in range(most + 1):
            if not (tables.is_useful[axis, odd << exponent] and array.split >> axis & 1):
                continue
            parts, level = float(odd << exponent), most - exponent
            _set_share(tables.shares[axis, spare], size[axis], parts, array)
            share = tables.shares[axis, spare, 0]
            if axis == 1:
                for e_n in range(min(tables.limits[2], level) + 1):
                    left, right = _weights(rules, parts, float(1 << e_n))
                    n = tables.shares[2, e_n, 0]
                    set_passes(tables.passes[spare, e_n], share, n, array.tile, array.tiling, left, right)
            elif axis == 2:
                for e_m in range(min(tables.limits[1], level) + 1):
                    left, right = _weights(rules, float(1 << e_m), parts)
                    m = tables.shares[1, e_m, 0]
                    set_passes(tables.passes[e_m, spare], m, share, array.tile, array.tiling, left, right)
            _price_level(tables, array, rules, level, axis, parts, out)


@compiled
def _price_counts(  # noqa: PLR0917
    size: Floats, tables: SplitTables, array: Array, rules: Rules, levels: Floats, counts: Ints, out: Floats
) -> None:
    """Best split of one matmul over at most each of ``counts`` arrays, into ``out``, shape (num_counts, fields).

    What can be had with all of a count bounds its answer from above, so that smaller numbers whose ideal compute time
    exceeds it are passed over. The others go upwards and only strict improvements count, as in `_price_powers`.

    Args:
        size: b, m, n, k.
        tables: filled by `_price_powers` for this configuration.
        array: the configuration.
        rules: options in force.
        levels: best costs for every number 2**s, shape (levels, fields).
        counts: numbers of arrays, increasing, none a power of two.
        out: to fill.
    """
    best, whole = levels[0].copy(), np.empty(NUM_FIELDS)
    level, priced = 0, 1
    for i in range(len(counts)):
        count = counts[i]
        while (2 << level) <= count:
            level += 1
        whole[CYCLES] = min(best[CYCLES], levels[level, CYCLES])
        _price_count(size, tables, array, rules, count, whole)
        power = 1
        for used in range(priced + 1, count + 1):
            while (1 << power) < used:
                power += 1
            ideal = array.ideal / used
            if (1 << power) == used:
                if levels[power, CYCLES] < best[CYCLES]:
                    best[:] = levels[power]
            elif ideal <= whole[CYCLES] and ideal < best[CYCLES]:
                _price_count(size, tables, array, rules, used, best)
        priced = count
        out[i] = best


@compiled
def price_arrays(  # noqa: PLR0917
    sizes: Floats, arrays: Arrays, wanted: Wanted, rules: Rules, table: Floats, others: Floats, start: int, step: int
) -> None:
    """Best costs of every matmul on every array configuration, for every number 2**s of arrays and the wanted others.

    Args:
        sizes: of each matmul, a row as of `MatmulShapes.table`.
        arrays: the configurations.
        wanted: their numbers of arrays that are no powers of two.
        rules: options in force.
        table: for powers of two, shape (num_configurations, num_matmuls, levels, NUM_FIELDS); levels above a
            configuration's ``most`` stay as they are.
        others: for the others, shape (num_matmuls, num_wanted, NUM_FIELDS).
        start: first matmul of this thread's share.
        step: distance to its next one.
    """
    levels = table.shape[2]
    tables = SplitTables(
        np.empty((4, levels + 1, 3)),
        np.empty((levels + 1, levels + 1, 2)),
        np.empty(4, dtype=np.int64),
        np.zeros((4, wanted.counts.max() + 1 if len(wanted.counts) else 0), dtype=np.bool_),
    )
    for u in range(start, len(sizes), step):
        size = sizes[u]
        _mark_useful(tables.is_useful, size)
        is_packed = rules.is_packed and size[6] > 0.0
        own = Rules(rules.is_multicast, is_packed, size[7], size[8])
        macs = size[0] * size[1] * size[2] * size[3]
        for r in range(len(arrays.width)):
            tile, width, depth = arrays.tile[r], arrays.width[r], arrays.depth[r]
            tiling, split = arrays.tiling[r], arrays.split[r]
            if r == 0 or split != arrays.split[r - 1] or tile != arrays.tile[r - 1] or tiling != arrays.tiling[r - 1]:
                for axis in range(4):
                    tables.limits[axis] = _log2_ceil(size[axis], levels - 1) if split >> axis & 1 else 0
                _fill_passes(tables, size, tile, levels - 1, tiling, own)
            array = Array(
                width, depth, tile, arrays.dtype[r], arrays.cycles_per_byte[r], arrays.each[r], arrays.once[r],
                arrays.least[r], macs / (width * depth), tiling, arrays.order[r], split,
            )  # fmt: skip
            costs = table[r, u, : arrays.most[r] + 1]
            _price_powers(size, tables, array, own, costs)
            first, last = wanted.starts[r], wanted.starts[r + 1]
            if last > first:
                _price_counts(size, tables, array, own, costs, wanted.counts[first:last], others[u, first:last])


@compiled
def _fill_latency(latency_s: Floats, cycles: Floats, cycle_s: float, work: Floats, lane_s: float) -> None:
    """The later of tensor and vector cores, for every operator on one accelerator."""
    for o in range(len(latency_s)):
        latency_s[o] = max(cycles[o] * cycle_s, work[o] * lane_s)


@compiled
def _is_on_lanes(columns: OperatorColumns, operator: int, products_s: float, lane_s: float) -> bool:
    """Whether an operator's products run on lanes: one after the other with its vector work, and yet faster."""
    work = columns.lane_cycles[operator]
    return bool((work + columns.product_lane_cycles[operator]) * lane_s < max(products_s, work * lane_s))


@compiled
def _fill_steps(latency_s: Floats, cycles: Floats, cycle_s: float, columns: OperatorColumns, lane_s: float) -> None:
    """`_fill_latency` where some operators are recurrences or have grouped products.

    Products and lanes of a recurrence wait for each other in every step, and a step takes its lanes at least what one
    element does. Grouped products run on lanes where that is the faster.
    """
    for o in range(len(latency_s)):
        products_s, work = cycles[o] * cycle_s, columns.lane_cycles[o]
        lanes_s = max(work * lane_s, columns.step_cycles[o] * cycle_s)
        both_s = max(products_s, lanes_s) + columns.is_serial[o] * min(products_s, lanes_s)
        latency_s[o] = min(both_s, (work + columns.product_lane_cycles[o]) * lane_s)


@compiled
def combine(tables: RowTables, columns: OperatorColumns, rates: Floats, energies: Floats, results: Results) -> None:
    """Latency and energy of every operator on every accelerator, into ``results``.

    Short loops over one accelerator's operators, each over few arrays, so that they vectorise and stay in cache.

    Args:
        tables: per-row costs.
        columns: per-operator work.
        rates: seconds a cycle, a spread lane cycle, one core's lane cycle, an HBM byte, and one at the share of one
            tensor core and of one vector core; the last three again of a byte of the buffer; shape
            (num_accelerators, 9).
        energies: joules a MAC, L2 byte, GLB byte, HBM byte and lane cycle; shape (num_accelerators, 5).
        results: matrices to fill.
    """
    work, macs, on_tc = columns.lane_cycles, columns.macs, columns.on_tc
    count, has_steps = len(macs), len(columns.is_serial) > 0
    for a in range(len(tables.row_of)):
        moved = tables.traffic_bytes[tables.buffer_of[a]]
        row = tables.row_of[a]
        spread_s, one_core_s, energy_j = results.spread_s[a], results.one_core_s[a], results.energy_j[a]
        byte_s, tc_byte_s, vc_byte_s = rates[a, 3], rates[a, 4], rates[a, 5]
        _fill_latency(spread_s, tables.cycles[row], rates[a, 0], work, rates[a, 1])
        _fill_latency(one_core_s, tables.one_core_cycles[row], rates[a, 0], work, rates[a, 2])
        if has_steps:
            _fill_steps(spread_s, tables.cycles[row], rates[a, 0], columns, rates[a, 1])
            _fill_steps(one_core_s, tables.one_core_cycles[row], rates[a, 0], columns, rates[a, 2])
        for o in range(count):
            spread_s[o] = max(spread_s[o], moved[o] * byte_s)
        for o in range(count):
            core_byte_s = on_tc[o] * tc_byte_s + (1.0 - on_tc[o]) * vc_byte_s
            one_core_s[o] = max(one_core_s[o], moved[o] * core_byte_s)
        glb, l2 = tables.glb_bytes[row], tables.l2_bytes[row]
        mac_j, l2_j, glb_j = energies[a, 0], energies[a, 1], energies[a, 2]
        hbm_j, lane_j = energies[a, 3], energies[a, 4]
        for o in range(count):
            energy_j[o] = macs[o] * mac_j + l2[o] * l2_j + glb[o] * glb_j + moved[o] * hbm_j + work[o] * lane_j
        results.traffic_bytes[a] = moved
        if has_steps:
            for o in range(count):
                if _is_on_lanes(columns, o, tables.cycles[row, o] * rates[a, 0], rates[a, 1]):
                    energy_j[o] = moved[o] * hbm_j + (work[o] + columns.product_lane_cycles[o]) * lane_j
        if len(tables.passed_bytes) > 0:
            pass_buffer(spread_s, one_core_s, columns, rates[a])
            passed = tables.passed_bytes[tables.buffer_of[a]]
            for o in range(count):
                energy_j[o] += passed[o] * glb_j
