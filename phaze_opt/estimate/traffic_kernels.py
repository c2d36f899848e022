"""Compiled kernels of traffic: what tiles move from HBM and from the GLB, and waits for it.

Tiles of t_m x t_n results in the L2 read a left operand ceil(n / t_n) and a right one ceil(m / t_m) times from the GLB.
HBM traffic where buffers hold tensors is that of docs/decisions/0268.

Of B bytes of buffer the first R = max(0, B - tile room) hold tensors. Of a hold of s bytes at address a the share
f = min(max(R - a, 0), s) / s is on chip, the same share of every part of the tensor. An operator's tiles have what the
holds that are there while it runs leave. A matmul b x (m x n x k) whose tiles cut the result into p column strips and q
row strips moves b [p (1 - f_left) mk + q (1 - f_right) kn + mn] elements, less what is on chip of its result and of the
operands of its epilogue; least over p and q; of a convolution's left operand what lies in memory counts, and what q row
strips share (docs/decisions/0280). With R = 0 every figure is that of `tiled_traffic_elements`.

Every operation is monotone in R and B, rounding included, so that traffic never rises with either.

Import this module lazily: it pulls in numba.
"""

import math
from typing import NamedTuple

import numpy as np

from phaze_opt.estimate.operator_table import BufferColumns, OperatorColumns
from phaze_opt.hardware.flexibility import Tiling
from phaze_opt.record.arrays import Flags, Floats, Ints
from phaze_opt.record.compiled import compiled

SQUARE, ANY_TILE = int(Tiling.SQUARE), int(Tiling.ANY)


class Buffers(NamedTuple):
    """Distinct buffers as columns: bytes, bytes of them for holds, bytes of an element."""

    num_bytes: Ints
    hold_bytes: Ints
    dtype_bytes: Ints


class Moved(NamedTuple):
    """Per operator: compulsory bytes, elements of tiled operands, whether its traffic is tiled, and a recurrence's.

    The latter are elements of its right operands, and in how many steps these are read again.
    """

    traffic_bytes: Floats
    tiled_elements: Floats
    is_tiled: Flags
    state_elements: Floats
    times_again: Floats


class Products(NamedTuple):
    """Matmuls of operators: operator o has rows starts[o] to starts[o + 1] of ``sizes`` (`MatmulShapes.table`)."""

    starts: Ints
    sizes: Floats


@compiled
def tiled_traffic_elements(sizes: Floats, room: Floats) -> Floats:
    """HBM elements of every matmul for every half GLB, shape (num_buffers, num_matmuls); see `pricing`."""
    traffic = np.empty((len(room), len(sizes)))
    for u in range(len(sizes)):
        batch, m, n, k, left, overlap = sizes[u, 0], sizes[u, 1], sizes[u, 2], sizes[u, 3], sizes[u, 4], sizes[u, 5]
        once = left + k * n + m * n
        smallest = min(left, k * n, m * n)
        for h in range(len(room)):
            # What the first operand costs alone grows with the strips, so the search may end before it tries them all.
            best = once if smallest <= room[h] else math.inf
            strips = float(math.ceil(n / room[h]))
            while strips <= n and strips * left + k * n + m * n < best:
                rows_per_tile = math.floor(room[h] / math.ceil(n / strips))
                row_strips = math.ceil(m / rows_per_tile)
                moved = min(m * k, left + (row_strips - 1.0) * overlap)
                best = min(best, strips * moved + row_strips * (k * n) + m * n)
                strips += 1.0
            traffic[h, u] = best * batch
    return traffic


@compiled
def _least_elements(size: Floats, room: float, left_share: float, right_share: float) -> float:
    """Elements that one of a matmul's batch moves: so much of its left and right operand each time, its result once.

    Of column strips that are equally wide the fewest cost least, so only the first number of strips of each width is
    tried; what the left operand costs alone grows with them and ends the search.
    """
    m, n, k, behind, overlap = size[1], size[2], size[3], size[4], size[5]
    left, right, result = left_share * behind, right_share * (k * n), m * n
    best = left + right + result if min(behind, k * n, m * n) <= room else math.inf
    strips = float(math.ceil(n / room))
    while strips <= n and strips * left + right + result < best:
        width = math.ceil(n / strips)
        rows_per_tile = math.floor(room / width)
        row_strips = math.ceil(m / rows_per_tile)
        moved = left_share * min(m * k, behind + (row_strips - 1.0) * overlap)
        best = min(best, strips * moved + row_strips * right + result)
        if width == 1:
            break
        strips = float(math.ceil(n / (width - 1.0)))
    return best


@compiled
def _held_bytes(uses: BufferColumns, operator: int, hold_bytes: int, held: Floats) -> None:
    """Bytes on chip of an operator's left operand, right operand and all else, into ``held``."""
    held[:] = 0.0
    for place in range(uses.held_starts[operator], uses.held_starts[operator + 1]):
        address, size, num_bytes, operand = uses.held[place]
        on_chip = min(max(hold_bytes - address, 0), size)
        held[operand] += num_bytes * (on_chip / size)


@compiled
def _taken_bytes(uses: BufferColumns, operator: int, hold_bytes: int) -> int:
    """Bytes of the buffer that held tensors have while an operator runs."""
    total = 0
    for place in range(uses.taken_starts[operator], uses.taken_starts[operator + 1]):
        total += max(0, min(uses.taken[place, 1], hold_bytes) - uses.taken[place, 0])
    return total


@compiled
def _moved_share(held: float, num_bytes: int) -> float:
    """Share of an operand that is not on chip."""
    return 1.0 - held / num_bytes if num_bytes > 0 else 1.0


@compiled
def fill_resident_traffic(  # noqa: PLR0917
    moved: Moved, products: Products, uses: BufferColumns, buffers: Buffers, traffic: Floats, passed: Floats
) -> None:
    """HBM bytes of every operator for every buffer, into ``traffic``, shape (num_buffers, num_operators).

    Into ``passed`` go bytes that operators take from the buffer instead, beyond operands and results of matmuls, whose
    ways through the buffer `kernels` count.
    """
    held = np.empty(3)
    for o in range(len(moved.traffic_bytes)):
        first, last = products.starts[o], products.starts[o + 1]
        for h in range(len(buffers.num_bytes)):
            _held_bytes(uses, o, buffers.hold_bytes[h], held)
            dtype = buffers.dtype_bytes[h]
            free = buffers.num_bytes[h] - _taken_bytes(uses, o, buffers.hold_bytes[h])
            room = float(max(1, free // (2 * dtype)))
            if not moved.is_tiled[o]:
                on_chip = held[0] + held[1] + held[2]
                again = moved.times_again[o] * max(0.0, moved.state_elements[o] - room) * dtype
                traffic[h, o], passed[h, o] = max(0.0, moved.traffic_bytes[o] - on_chip) + again, on_chip
                continue
            left, right = 1.0, 1.0
            if last - first == 1:
                left = _moved_share(held[0], uses.operand_bytes[o, 0])
                right = _moved_share(held[1], uses.operand_bytes[o, 1])
            elements, results = 0.0, 0.0
            for u in range(first, last):
                size = products.sizes[u]
                elements += _least_elements(size, room, left, right) * size[0]
                results += size[0] * (size[1] * size[2])
            excess = max(0.0, moved.traffic_bytes[o] - moved.tiled_elements[o] * dtype)
            traffic[h, o] = max(0.0, elements * dtype + excess - held[2])
            passed[h, o] = max(0.0, held[2] - results * dtype)


@compiled
def pass_buffer(spread_s: Floats, one_core_s: Floats, columns: OperatorColumns, rates: Floats) -> None:
    """Every byte that an operator is given or gives passes the buffer, or comes from HBM where that is the faster."""
    num_bytes, on_tc = columns.compulsory_bytes, columns.on_tc
    byte_s, tc_byte_s, vc_byte_s = min(rates[3], rates[6]), min(rates[4], rates[7]), min(rates[5], rates[8])
    for o in range(len(num_bytes)):
        spread_s[o] = max(spread_s[o], num_bytes[o] * byte_s)
    for o in range(len(num_bytes)):
        one_core_s[o] = max(one_core_s[o], num_bytes[o] * (on_tc[o] * tc_byte_s + (1.0 - on_tc[o]) * vc_byte_s))


@compiled
def add_waits(seconds: Floats, launch_s: Floats, num_starts: Floats, byte_s: Floats, num_bytes: Floats) -> None:
    """Add starts and exposed reading to the time of every operator (column) on every accelerator (row), in place.

    Args:
        seconds: shape (num_accelerators, num_operators).
        launch_s: of an operator, by accelerator.
        num_starts: of each operator.
        byte_s: of reading, by accelerator.
        num_bytes: that each operator waits for.
    """
    for a in range(len(launch_s)):
        row, start_s, read_s = seconds[a], launch_s[a], byte_s[a]
        for o in range(len(num_bytes)):
            row[o] += start_s * num_starts[o] + read_s * num_bytes[o]


@compiled
def _fewest_passes(  # noqa: PLR0917
    passes: Floats, m: float, n: float, tile: float, left: float, right: float
) -> None:
    """Passes of the tile of at most ``tile`` elements that reads the fewest, those there unless some reads fewer.

    What the left operand costs alone grows with its passes and ends the search.
    """
    best = left * m * passes[0] + right * n * passes[1]
    across = float(math.ceil(n / tile))
    while across <= n and left * m * across + right * n < best:
        down = float(math.ceil(m / math.floor(tile / math.ceil(n / across))))
        read = left * m * across + right * n * down
        if read < best:
            best = read
            passes[0], passes[1] = across, down
        across += 1.0


@compiled
def set_passes(  # noqa: PLR0917
    passes: Floats, m: float, n: float, tile: float, tiling: int, left: float, right: float
) -> None:
    """GLB passes over shares of ``m`` rows and ``n`` columns; see the head of this file.

    ``left`` and ``right`` weigh elements of the operands where tiles may be any.
    """
    edge = math.floor(math.sqrt(tile))
    t_m, t_n = float(edge), float(edge)
    if tiling == SQUARE:
        passes[0] = math.ceil(n / t_n)
        passes[1] = math.ceil(m / t_m)
        return
    if m < edge:
        t_m, t_n = m, float(math.floor(tile / m))
    elif n < edge:
        t_m, t_n = float(math.floor(tile / n)), n
    passes[0] = math.ceil(n / t_n)
    passes[1] = math.ceil(m / t_m)
    if tiling == ANY_TILE:
        _fewest_passes(passes, m, n, tile, left, right)
