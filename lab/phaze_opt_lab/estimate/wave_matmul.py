"""Matmuls of modern GPUs: the best of a few tiles and splits of k in whole waves, a launch floor and a power limit.

A matmul takes

    t = launch + norm(C, M)            C = (W^8 + P^8)^(1/8)
    W = least of tiles and splits: (k / s + k_ramp) (X^2 + L^2)^(1/2), and partial sums x split_sums
    X = 2 SM a c waves x tile cost / (peak e)     L = waves (a left + c right bytes) SM / (16-bit peak x unit_loads)
    P = FLOPs / (peak x sustained)     M = bytes / (bandwidth x share x cache)

waves = ceil(batch x ceil(m / a) x ceil(n / c) x s / SM). L is what one multiprocessor takes to load the operands of a
tile: where few tiles walk a long k, neither the peak nor the memory is what shows. Multiprocessors load in step with
what they multiply, some 2 bytes for 100 FLOPs of the peak on HBM and on boards; where a maker halves the rate of sums
in 32 bits, tiles and loads go at the whole one. P is the rate that the power limit
leaves over long matmuls. M grows faster where the operands of repeated calls still lie in the last cache. Quantising
the left operand before has launches, bytes, and rows that one block each reads and that take turns at one sum. Every
constant is an array that holds a value for every matmul priced (`estimate.kernel_constants` says where they come from).
"""

import math
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64))
"""Rows and columns of the output tiles that libraries choose among."""
SLIM_TILES = ((16, 64), (32, 64), (32, 128))
"""Tiles of few rows, for the steps of a decoder."""
K_SPLITS = (1, 2, 4, 8, 16, 32)
"""Parts that k may be cut into, each summed by multiprocessors of its own."""
GOOD_TILE = 128
"""Rows and columns from which tiles run at nearly the full rate."""
SUM_BYTES = 4.0
"""Of a partial sum."""
SUM_BANDWIDTHS = 2.0
"""Rate of partial sums, which mostly stay in the last cache, over that of memory (assumption, 1 to 4)."""
SUM_S = 1e-6
"""Of adding partial sums up (assumption, 0.5 to 2 us)."""
LIMIT_ORDER = 8.0
"""Order of the norm of waves and power limit: nearly the longer (assumption, 4 to infinite)."""
RESIDENT_STEEPNESS = 4.0
"""How sharply operands leave the last cache as they outgrow it (assumption, 2 to 8)."""


@dataclass(frozen=True, slots=True)
class GpuSheet:
    """What data sheets say of the machine of every row; arrays of one shape, SI units.

    Attributes:
        num_units: multiprocessors.
        peak_flops_per_s: of the row's format.
        bandwidth_bytes_per_s: of main memory.
        cache_bytes: of the last cache.
        exponentials_per_s: of the special function units of all multiprocessors.
        cycles_per_s: of all multiprocessors.
        wide_peak_flops_per_s: of operands of 16 bits.
        unit_ratio: rate that multiprocessors are made for over the peak; above 1 where sums in 32 bits are slowed down.
    """

    num_units: Floats
    peak_flops_per_s: Floats
    bandwidth_bytes_per_s: Floats
    cache_bytes: Floats
    exponentials_per_s: Floats
    cycles_per_s: Floats
    wide_peak_flops_per_s: Floats
    unit_ratio: Floats


@dataclass(frozen=True, slots=True)
class WaveConstants:
    """Constants of every row; arrays of one shape, SI units.

    Attributes:
        launch_s: of the kernel, nothing shorter is seen.
        host_s: of an eager call under the host's clock; 0: none.
        efficiency: share of the peak in full waves.
        sustained: share of the peak that the power limit leaves.
        memory_share: of the memory's bandwidth.
        cache_ratio: rate from the last cache over that.
        cache_copies: how many times over the operands must fit the cache to be found there.
        k_ramp: k that takes as long as filling and draining.
        small_tile: how much more a FLOP costs in smaller tiles: 1 + small_tile (sqrt(128 x 256 / tile) - 1).
        overlap_norm: order of the norm of compute and memory.
        quantise_s: launches of quantising the left operand; 0: none.
        quantise_share: of the memory's bandwidth in doing so.
        quantise_element_s: time of an element of a row in doing so, which one block reads.
        quantise_row_s: time of a row in doing so, where rows take turns at one sum.
        unit_loads: bytes of tiles that a multiprocessor loads in the time of a FLOP at its 16-bit peak.
        split_sums: what partial sums cost over what they move and add.
    """

    launch_s: Floats
    host_s: Floats
    efficiency: Floats
    sustained: Floats
    memory_share: Floats
    cache_ratio: Floats
    cache_copies: Floats
    k_ramp: Floats
    small_tile: Floats
    overlap_norm: Floats
    quantise_s: Floats
    quantise_share: Floats
    quantise_element_s: Floats
    quantise_row_s: Floats
    unit_loads: Floats
    split_sums: Floats


@dataclass(frozen=True, slots=True)
class MatmulRows:
    """Matmuls; arrays of one shape.

    Attributes:
        batch, m, n, k: sizes; left operand m x k.
        left_bytes, right_bytes, result_bytes: of elements.
        quantise_bytes: moved for an element of the left operand that is quantised; 0: it comes quantised.
    """

    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    left_bytes: Floats
    right_bytes: Floats
    result_bytes: Floats
    quantise_bytes: Floats

    @property
    def flops(self) -> Floats:
        """Two for a multiplication and its addition."""
        return np.asarray(2.0 * self.batch * self.m * self.n * self.k)

    @property
    def num_bytes(self) -> Floats:
        """Operands and result, each once."""
        inner = self.left_bytes * self.m * self.k + self.right_bytes * self.k * self.n
        return np.asarray(self.batch * (inner + self.result_bytes * self.m * self.n))


@dataclass(frozen=True, slots=True)
class WaveTerms:
    """Where the time of matmuls goes; arrays of one shape, s.

    Attributes:
        launch_s: floor of the launch.
        ideal_s: FLOPs at the peak.
        waves_s: what tiles, waves, ramps and the share of the peak add.
        power_s: what the power limit adds.
        memory_s: what memory adds.
        quantise_s: quantising the left operand before.
        host_s: what the host's launch adds where it takes longer than all this.
    """

    launch_s: Floats
    ideal_s: Floats
    waves_s: Floats
    power_s: Floats
    memory_s: Floats
    quantise_s: Floats
    host_s: Floats

    @property
    def seconds(self) -> Floats:
        """The whole."""
        device = self.launch_s + self.ideal_s + self.waves_s + self.power_s + self.memory_s + self.quantise_s
        return np.asarray(device + self.host_s)


@dataclass(frozen=True, slots=True)
class WaveOptions:
    """Tiles and splits of matmuls prepared once: what no constant changes; shape (num_options, num_rows).

    Attributes:
        filled: multiply-accumulates of full waves for one element of k.
        loads_s: of the operands of all waves for one element of k, at a byte a FLOP of a multiprocessor's peak.
        depth: elements of k in a split.
        sums_s: of partial sums.
        smallness: sqrt(128 x 256 / tile) - 1, shape (num_options, 1).
    """

    filled: Floats
    loads_s: Floats
    depth: Floats
    sums_s: Floats
    smallness: Floats


def wave_options(rows: MatmulRows, sheet: GpuSheet) -> WaveOptions:
    """Full waves of every tile and split of some matmuls."""
    filled, loads, depth, sums, smallness = [], [], [], [], []
    part = sheet.wide_peak_flops_per_s * sheet.unit_ratio / sheet.num_units
    for a, c in (*TILES, *SLIM_TILES):
        tiles = rows.batch * np.ceil(rows.m / a) * np.ceil(rows.n / c)
        loaded = np.minimum(a, rows.m) * rows.left_bytes + np.minimum(c, rows.n) * rows.right_bytes
        for split in K_SPLITS:
            waves = np.ceil(tiles * split / sheet.num_units)
            filled.append(sheet.num_units * waves * (a * c))
            loads.append(waves * loaded / part)
            depth.append(rows.k / split)
            moved = SUM_BYTES * (split + 1) * rows.batch * rows.m * rows.n
            once = SUM_S + moved / (SUM_BANDWIDTHS * sheet.bandwidth_bytes_per_s)
            sums.append(once if split > 1 else np.zeros_like(once))
            smallness.append(math.sqrt(128 * 256 / (a * c)) - 1.0)
    return WaveOptions(np.array(filled), np.array(loads), np.array(depth), np.array(sums), np.array(smallness)[:, None])


def wave_terms(rows: MatmulRows, options: WaveOptions, sheet: GpuSheet, constants: WaveConstants) -> WaveTerms:
    """Times of matmuls by term."""
    cost = 1.0 + constants.small_tile * options.smallness
    # Where sums are slowed down, a tile goes at what its multiprocessor is made for, but no faster than the peak.
    cost = np.maximum(cost / (sheet.unit_ratio * constants.efficiency), sheet.unit_ratio > 1.0)
    work = 2.0 * options.filled * cost / sheet.peak_flops_per_s
    loads = options.loads_s / constants.unit_loads
    tiles = (options.depth + constants.k_ramp) * np.sqrt(work * work + loads * loads)
    waves = (tiles + options.sums_s * constants.split_sums).min(axis=0)
    ideal = rows.flops / sheet.peak_flops_per_s
    compute = stable_norm(waves, ideal / constants.sustained, LIMIT_ORDER)
    busy = stable_norm(compute, _memory_s(rows, sheet, constants), constants.overlap_norm)
    quantise = _quantise_s(rows, sheet, constants)
    device = constants.launch_s + busy + quantise
    host = stable_norm(device, constants.host_s, LIMIT_ORDER) - device
    return WaveTerms(constants.launch_s, ideal, waves - ideal, compute - waves, busy - compute, quantise, host)


def _memory_s(rows: MatmulRows, sheet: GpuSheet, constants: WaveConstants) -> Floats:
    num_bytes = rows.num_bytes
    ratio = cached_ratio(num_bytes * constants.cache_copies, sheet.cache_bytes, constants.cache_ratio)
    return np.asarray(num_bytes / (sheet.bandwidth_bytes_per_s * constants.memory_share * ratio))


def _quantise_s(rows: MatmulRows, sheet: GpuSheet, constants: WaveConstants) -> Floats:
    """Time of quantising the left operand; its 16-bit elements are about half of what is moved."""
    num_bytes = rows.batch * rows.m * rows.k * rows.quantise_bytes
    ratio = cached_ratio(num_bytes / 2.0, sheet.cache_bytes, constants.cache_ratio)
    memory = num_bytes / (sheet.bandwidth_bytes_per_s * constants.quantise_share * ratio)
    turns = rows.batch * rows.m * constants.quantise_row_s
    alone = stable_norm(rows.k * constants.quantise_element_s, turns, LIMIT_ORDER)
    busy = constants.quantise_s + stable_norm(memory, alone, LIMIT_ORDER)
    return np.where(rows.quantise_bytes > 0, busy, 0.0)


def cache_ratio(bytes_per_cycle: Floats, sheet: GpuSheet, memory_share: Floats) -> Floats:
    """Rate from the last cache over that from memory, at least 1.

    Args:
        bytes_per_cycle: that a multiprocessor gets from the last cache.
        sheet: the machines.
        memory_share: of the memory's bandwidth that is reached.
    """
    rate = bytes_per_cycle * sheet.cycles_per_s
    return np.asarray(np.maximum(1.0, rate / (sheet.bandwidth_bytes_per_s * memory_share)))


def cached_ratio(num_bytes: Floats, cache_bytes: Floats, ratio: Floats) -> Floats:
    """Rate of bytes that repeated calls read, over that of memory: ``ratio`` while they fit the cache, then 1."""
    resident = 1.0 / (1.0 + (num_bytes / cache_bytes) ** RESIDENT_STEEPNESS)
    return np.asarray(1.0 + (ratio - 1.0) * resident)


def stable_norm(left: Floats, right: Floats, order: Floats | float) -> Floats:
    """(left^p + right^p)^(1/p) of numbers that are not negative, scaled by the larger."""
    larger = np.maximum(np.maximum(left, right), 1e-300)
    return np.asarray(larger * ((left / larger) ** order + (right / larger) ** order) ** (1.0 / order))


def waste_note(m: int, n: int, num_units: int, *, batch: int = 1, limit: float = 1.1) -> str:
    """What of a shape leaves waves empty, as a sentence; empty if little does.

    A size just past a multiple of a tile, or a number of tiles just past a multiple of the multiprocessors, costs most
    of a tile or of a wave, unless the library finds another.

    Args:
        m: rows of the result.
        n: columns of the result.
        num_units: multiprocessors.
        batch: products.
        limit: waste of the best tile that is said.
    """
    least, sizes = _least_waste(m, n, num_units, batch)
    if least < limit:
        return ""
    per_cent = 100.0 * (1.0 - 1.0 / least)
    return (
        f"{per_cent:.0f} % of the waves of {m:,} x {n:,} stay empty on {num_units} multiprocessors "
        f"(tiles of {sizes[0]} x {sizes[1]})"
    )


def wave_waste(m: int, n: int, num_units: int, *, batch: int = 1) -> float:
    """Waves of the best large tile over those that a result of m x n fills."""
    return _least_waste(m, n, num_units, batch)[0]


def _least_waste(m: int, n: int, num_units: int, batch: int) -> tuple[float, tuple[int, int]]:
    return min((_waste(batch, m, n, tile, num_units), tile) for tile in TILES if min(tile) >= GOOD_TILE)


def _waste(batch: int, m: int, n: int, tile: tuple[int, int], num_units: int) -> float:
    tiles = batch * math.ceil(m / tile[0]) * math.ceil(n / tile[1])
    return math.ceil(tiles / num_units) * num_units * tile[0] * tile[1] / (batch * m * n)
