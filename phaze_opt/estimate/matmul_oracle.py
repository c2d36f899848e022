"""Matmul costs of semantics 3 in plain chunked numpy: the oracle that the compiled kernels must equal.

A matmul b x (m x n x k) on c arrays of w (width) x d (depth) is split (c_b, r_m, r_n, r_k) with c_b r_m r_n r_k <= c,
into b' = ceil(b/c_b), m' = ceil(m/r_m), n' = ceil(n/r_n), k' = ceil(k/r_k) per array. The four are powers of two; where
c is none, one of them may be any number (docs/decisions/0140). Of all splits the first with the least max(compute, GLB)
is taken, fewest arrays first; HBM does not depend on the split, so max with it afterwards is the exact minimum of
max(compute, GLB, HBM).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.array_rows import ArrayRows
from phaze_opt.estimate.operator_table import MatmulShapes
from phaze_opt.estimate.options import FillAndDrain, Multicast

CHUNK_ROWS = 512
"""Most rows whose splits are priced at once; bounds the memory."""
CHUNK_CELLS = 4_000_000
"""Most rows x splits priced at once; bounds it where many numbers of arrays are no powers of two."""
DATAFLOWS = ("weight_stationary", "output_stationary", "input_stationary")
"""Names by dataflow code; -1 where there is no matmul."""
Floats = NDArray[np.float64]


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
    dataflow: NDArray[np.int64]


def price_matmuls(
    shapes: MatmulShapes, rows: ArrayRows, *, fill_and_drain: FillAndDrain, multicast: Multicast
) -> MatmulPrices:
    """Price every matmul on every configuration, at most `CHUNK_ROWS` configurations and `CHUNK_CELLS` at a time."""
    shape = (len(rows), len(shapes))
    cycles, one_core, stream, fill, glb_bytes, l2_bytes = (np.zeros(shape) for _ in range(6))
    prices = MatmulPrices(cycles, one_core, stream, fill, glb_bytes, l2_bytes, dataflow=np.zeros(shape, np.int64))
    is_power = (rows.num_tc & (rows.num_tc - 1)) == 0
    most_of_powers, most_of_others = int(rows.num_tc.max()), int(rows.num_tc[~is_power].max(initial=0))
    for column, size in enumerate(shapes.sizes()):
        splits = _splits(size, most_of_powers, most_of_others)
        step = max(1, min(CHUNK_ROWS, CHUNK_CELLS // len(splits)))
        for start in range(0, len(rows), step):
            chunk = slice(start, start + step)
            _price_chunk(size, column, splits, rows, chunk, fill_and_drain, multicast, prices)
    return prices


def _price_chunk(  # noqa: PLR0917
    size: tuple[int, int, int, int],
    column: int,
    splits: NDArray[np.int64],
    rows: ArrayRows,
    chunk: slice,
    fill_and_drain: FillAndDrain,
    multicast: Multicast,
    prices: MatmulPrices,
) -> None:
    """Price one matmul on a chunk of configurations into ``prices``."""
    width, depth = rows.width[chunk, None].astype(float), rows.depth[chunk, None].astype(float)
    tile, dtype = rows.tile_elements[chunk, None], rows.dtype_bytes[chunk, None].astype(float)
    cycles_per_byte = rows.glb_cycles_per_byte[chunk, None]
    used = splits.prod(axis=1)
    needs_other = (splits & (splits - 1)).any(axis=1)
    shares = np.ceil(np.array(size) / splits)
    stream, fill, l2_elements, dataflow = _compute(shares, width, depth, fill_and_drain)
    glb_bytes = dtype * _glb_elements(shares, splits.astype(float), tile, multicast)
    cycles = np.maximum(stream + fill, glb_bytes * cycles_per_byte)
    num_tc = rows.num_tc[chunk, None]
    is_allowed = (used <= num_tc) & ~(needs_other & ((num_tc & (num_tc - 1)) == 0))
    fits = np.where(is_allowed, cycles, np.inf)
    best = fits.argmin(axis=1)
    line = np.arange(len(best))
    prices.cycles[chunk, column] = cycles[line, best]
    prices.stream_cycles[chunk, column] = stream[line, best]
    prices.fill_cycles[chunk, column] = fill[line, best]
    prices.glb_bytes[chunk, column] = glb_bytes[line, best]
    prices.l2_bytes[chunk, column] = (dtype * used * l2_elements)[line, best]
    prices.dataflow[chunk, column] = dataflow[line, best]
    alone_cycles_per_byte = rows.glb_cycles_per_byte[chunk] * rows.num_tc[chunk]
    prices.one_core_cycles[chunk, column] = np.maximum((stream + fill)[:, 0], glb_bytes[:, 0] * alone_cycles_per_byte)


def _splits(size: tuple[int, int, int, int], most_of_powers: int, most_of_others: int) -> NDArray[np.int64]:
    """Splits (c_b, r_m, r_n, r_k), fewest arrays first, shape (num_splits, 4).

    Powers of two of at most ``most_of_powers`` arrays; and with another number of parts of one dimension, of at most
    ``most_of_others``. Splitting a dimension beyond its next power of two, or into more parts that leave no smaller
    shares, only adds arrays, so such splits are left out: they cost no less.
    """
    powers = [2 ** np.arange((extent - 1).bit_length() + 1) for extent in size]
    powers = [axis[axis <= most_of_powers] for axis in powers]
    found = [_combine_axes(powers, most_of_powers)]
    for position, extent in enumerate(size):
        parts = np.arange(3, min(most_of_others, extent) + 1)
        is_useful = ((parts & (parts - 1)) > 0) & (-(-extent // parts) < -(-extent // (parts - 1)))
        axes = [*powers[:position], parts[is_useful], *powers[position + 1 :]]
        found.append(_combine_axes(axes, most_of_others))
    splits = np.concatenate(found)
    kind = np.repeat(np.arange(-1, len(size)), [len(part) for part in found])
    factor = splits[np.arange(len(splits)), kind] * (kind >= 0)
    ordered: NDArray[np.int64] = splits[np.lexsort((*splits.T[::-1], factor, kind, splits.prod(axis=1)))]
    return ordered


def _combine_axes(axes: list[NDArray[np.int64]], most: int) -> NDArray[np.int64]:
    """All combinations of the axes' values whose product is at most ``most``, shape (num_splits, num_axes)."""
    splits = np.ones((1, 0), dtype=np.int64)
    for axis in axes:
        longer = np.concatenate(
            [np.repeat(splits, len(axis), axis=0), np.tile(axis, len(splits))[:, None].astype(np.int64)], axis=1
        )
        splits = longer[longer.prod(axis=1) <= most]
    return splits


def _compute(
    shares: Floats, width: Floats, depth: Floats, fill_and_drain: FillAndDrain
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Stream and fill cycles, L2 elements of one array, and dataflow; each of shape (rows, splits).

    Compute cycles = b' folds (stream + 2d + w - 2). Weight-stationary folds ceil(k'/d) ceil(n'/w) and streams m',
    output-stationary ceil(m'/d) ceil(n'/w) and k', input-stationary ceil(k'/d) ceil(m'/w) and n'.
    """
    batch, m, n, k = shares.T[:, None, :]
    ramp = 2 * depth + width - 2
    flows = []
    for down, across, stream in ((k, n, m), (m, n, k), (k, m, n)):
        folds = batch * (np.ceil(down / depth) * np.ceil(across / width))
        ramps = {FillAndDrain.PER_FOLD: folds, FillAndDrain.PER_OPERATOR: 1.0, FillAndDrain.NONE: 0.0}[fill_and_drain]
        flows.append((folds * stream, ramps * ramp, folds * (stream * (width + depth) + width * depth)))
    totals = np.stack([stream + fill for stream, fill, _ in flows])
    dataflow = totals.argmin(axis=0)
    stream, fill, l2_elements = (
        np.take_along_axis(np.stack([np.broadcast_to(flow[i], totals.shape[1:]) for flow in flows]), dataflow[None], 0)
        for i in range(3)
    )
    return stream[0], fill[0], l2_elements[0], dataflow


def _glb_elements(shares: Floats, splits: Floats, tile: NDArray[np.int64], multicast: Multicast) -> Floats:
    """Elements through the GLB, shape (rows, splits).

    c' b' [m'k' ceil(n'/t_n) + k'n' ceil(m'/t_m) + m'n' (3 times if r_k > 1)] without multicast; with ideal multicast
    an operand that r_n (or r_m) arrays share is read once for all of them. t_m = t_n = floor(sqrt(tile)), stretched
    when an edge is shorter.
    """
    batch, m, n, k = shares.T[:, None, :]
    c_b, r_m, r_n, r_k = splits.T[:, None, :]
    edge = np.floor(np.sqrt(tile))
    is_short_m, is_short_n = m < edge, n < edge
    t_m = np.where(is_short_m, m, np.where(is_short_n, np.floor(tile / n), edge))
    t_n = np.where(is_short_m, np.floor(tile / m), np.where(is_short_n, n, edge))
    left = m * k * np.ceil(n / t_n)
    right = k * n * np.ceil(m / t_m)
    result = m * n * np.where(r_k > 1, 3.0, 1.0)
    used = c_b * r_m * r_n * r_k
    if multicast is Multicast.IDEAL:
        left, right = left / r_n, right / r_m
    elements: Floats = used * batch * (left + right + result)
    return elements
