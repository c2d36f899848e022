"""Matmuls in fp32 on many kinds of GPU: tiles, waves and k slices that a library may choose, with few constants.

One formula for every device, so that a device that was never measured can be priced from its data sheet: the constants
are arrays that hold a value for every row priced. A matmul takes ``launch + norm(compute, memory)``, compute is the
least over the tiles of `OUTPUT_TILES` and the numbers of `K_SLICES`:

    waves = ceil(tiles x slices / units), a single wave costs 1 + lone_tile
    compute = norm(2 units a c waves (k / slices + k_ramp) x tile cost / (peak x efficiency), panels / cache bandwidth)

and grows with long k, whose panels outlive the cache, and by the rest of a k that does not fit the vectors. ``norm`` of
order p lies between the sum (1) and the larger (infinity): a device at its power limit pays for both.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from phaze_opt.estimate.machine import power_norm
from phaze_opt.record.arrays import Floats, Indices

OUTPUT_TILES = (
    (256, 128),
    (128, 256),
    (128, 128),
    (128, 64),
    (64, 128),
    (64, 64),
    (32, 128),
    (128, 32),
    (32, 64),
    (64, 32),
    (32, 32),
)
"""Rows and columns of the output tiles that GPU libraries have."""

K_SLICES = (1, 2, 4, 8)
"""Parts that a library may cut k into, each summed by a multiprocessor of its own."""

SLICE_BANDWIDTH = 0.85
"""Share of the memory bandwidth at which partial sums of k slices are written and added (assumption: 0196)."""

CONFLICT_K = 32768
"""Rows whose length is a multiple of this many elements fall on few memory channels (assumption: 0196)."""

VECTOR_K = 16
"""A k that is no multiple of this leaves a rest for a slow loop where the second operand is wide."""

WIDE_COLUMNS = 96
"""Columns beyond which that matters (assumption, 32 to 256: decision 0196)."""

_HALVINGS = MappingProxyType({32768: -1, 16384: 0, 8192: 1, 4096: 2, 2048: 3, 1024: 4})


@dataclass(frozen=True, slots=True)
class SimtMachine:
    """One machine (numbers), or one for every row priced (arrays of one shape); SI units.

    Attributes:
        num_units: multiprocessors.
        peak_flops_per_s: fp32 peak of the data sheet.
        bandwidth_bytes_per_s: main memory of the data sheet.
        element_bytes: of an operand.
        launch_s: added to every matmul.
        efficiency: share of the peak with full waves, large k and the 128 x 128 tile.
        k_ramp: k at which filling and draining doubles the time.
        memory_share: share of the memory bandwidth that operands stream at.
        lone_tile: extra time of a wave whose tiles have a multiprocessor each to themselves.
        large_tile: time a FLOP of 256 x 128 tiles, relative to 128 x 128.
        medium_tile: the same of 128 x 64.
        small_tile: factor more of tiles half as large, 64 x 64.
        tiny_tile: factor more for each halving below that.
        slim_tile: factor of tiles four times as long as wide.
        cache_ratio: bandwidth of the last cache over that of memory.
        overlap_norm: how compute, cache and memory combine.
        slice_cost: extra time of cutting k.
        long_k: k at which panels outlive the cache and compute takes twice as long.
        long_k_power: how sharply.
        long_k_rows: rows below which that matters less.
        conflict_cost: extra time of rows on few memory channels.
        odd_k_tail: k that takes as long as the rest of a k that is no multiple of the vectors.
    """

    num_units: Floats | float
    peak_flops_per_s: Floats | float
    bandwidth_bytes_per_s: Floats | float
    element_bytes: Floats | float = 4.0
    launch_s: Floats | float = 0.0
    efficiency: Floats | float = 1.0
    k_ramp: Floats | float = 0.0
    memory_share: Floats | float = 1.0
    lone_tile: Floats | float = 0.0
    large_tile: Floats | float = 1.0
    medium_tile: Floats | float = 1.0
    small_tile: Floats | float = 1.0
    tiny_tile: Floats | float = 1.0
    slim_tile: Floats | float = 1.0
    cache_ratio: Floats | float = np.inf
    overlap_norm: Floats | float = 4.0
    slice_cost: Floats | float = 0.0
    long_k: Floats | float = np.inf
    long_k_power: Floats | float = 1.0
    long_k_rows: Floats | float = 0.0
    conflict_cost: Floats | float = 0.0
    odd_k_tail: Floats | float = 0.0


@dataclass(frozen=True, slots=True)
class MatmulTime:
    """Where the time of matmuls goes; arrays of one shape, s.

    Attributes:
        seconds: the whole, launch included.
        compute_s: multiplication, with waves, cache traffic and the costs of k.
        memory_s: compulsory traffic.
        choice: index of the tile in `OUTPUT_TILES`, times the number of `K_SLICES`, plus the index of the slices.
    """

    seconds: Floats
    compute_s: Floats
    memory_s: Floats
    choice: Indices


def simt_matmul(batch: Floats, m: Floats, n: Floats, k: Floats, machine: SimtMachine) -> MatmulTime:
    """Time of ``batch`` products of m x k by k x n; arrays of one shape."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in (batch, m, n, k)))
    best = np.full(shape, np.inf)
    choice = np.zeros(shape, np.intp)
    for tile, (rows, columns) in enumerate(OUTPUT_TILES):
        tiles = batch * np.ceil(m / rows) * np.ceil(n / columns)
        cost = _tile_cost(rows, columns, machine)
        for cut, slices in enumerate(K_SLICES):
            time = _tiled_s(tiles, (rows, columns, slices), k, cost, machine)
            if slices > 1:
                sums = batch * m * n * machine.element_bytes * (slices + 1)
                time = time * (1.0 + machine.slice_cost) + sums / (machine.bandwidth_bytes_per_s * SLICE_BANDWIDTH)
            panels = machine.element_bytes * tiles * (rows + columns) * k
            cache = panels / (machine.cache_ratio * machine.bandwidth_bytes_per_s)
            time = power_norm(time, cache, machine.overlap_norm)
            is_better = time < best
            best = np.where(is_better, time, best)
            choice = np.where(is_better, tile * len(K_SLICES) + cut, choice)
    compute = best * _k_cost(m, n, k, machine)
    num_bytes = machine.element_bytes * batch * (m * k + k * n + m * n)
    memory = num_bytes / (machine.bandwidth_bytes_per_s * machine.memory_share)
    return MatmulTime(machine.launch_s + power_norm(compute, memory, machine.overlap_norm), compute, memory, choice)


def _tiled_s(
    tiles: Floats, option: tuple[int, int, int], k: Floats, cost: Floats | float, machine: SimtMachine
) -> Floats:
    """Waves of one tile and one number of slices at the rate of full multiprocessors."""
    rows, columns, slices = option
    waves = np.ceil(tiles * slices / machine.num_units)
    waves = np.where(waves < 2, 1.0 + machine.lone_tile, waves)
    flops = 2.0 * machine.num_units * rows * columns * waves * (k / slices + machine.k_ramp)
    return np.asarray(flops * cost / (machine.peak_flops_per_s * machine.efficiency))


def _tile_cost(rows: int, columns: int, machine: SimtMachine) -> Floats | float:
    """Time a FLOP of one tile, relative to 128 x 128."""
    halvings = _HALVINGS[rows * columns]
    if halvings <= 0:
        return machine.large_tile if halvings < 0 else 1.0
    cost = machine.medium_tile
    if halvings >= 2:
        cost = cost * machine.small_tile * machine.tiny_tile ** (halvings - 2)
    is_slim = max(rows, columns) > 2 * min(rows, columns)
    return cost * machine.slim_tile if is_slim else cost


def _k_cost(m: Floats, n: Floats, k: Floats, machine: SimtMachine) -> Floats:
    long = (k / machine.long_k) ** machine.long_k_power * (m / (m + machine.long_k_rows))
    conflict = np.where(k % CONFLICT_K == 0, machine.conflict_cost, 0.0)
    odd = np.where((k % VECTOR_K > 0) & (n > WIDE_COLUMNS), machine.odd_k_tail / k, 0.0)
    return np.asarray((1.0 + long + conflict) * (1.0 + odd))
