"""Row operators on a real GPU: softmax, layer norm, GELU and addition by rows and row length, with few constants.

The terms follow the kernels that PyTorch launches. An elementwise operator streams its tensors once. A softmax of up
to 1024 columns keeps its row in the registers of one warp; a longer one, and every layer norm, gives each row to one
thread block, which reads the row again unless the rows in flight stay in cache. A block takes a fixed latency (launch
and reductions) and a latency for every loop over its row, and the multiprocessors hold a few blocks at a time: short
rows are bound by that, long ones by memory. A device that has finished before the host could launch again shows the
host's time (``launch_s``) instead.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from phaze_opt.estimate.machine import power_norm
from phaze_opt.record.arrays import Floats

WARP_SOFTMAX_COLUMNS = 1024
"""Longest row that PyTorch's softmax keeps in the registers of one warp."""

VECTOR_BYTES = 16
"""Bytes that a thread loads at once."""

LAYER_NORM_THREADS = 128
"""Threads of the block that PyTorch gives to each row of a layer norm."""

MAX_THREADS = 1024
"""Most threads of a block."""

FLOOR_NORM = 6.0
"""Host launch and device time combine as this norm: near the larger of both (assumption, 3 to 12: 0196)."""

OVERLAP_NORM = 3.0
"""Memory traffic and latency of row operators combine as this norm: neither hides wholly behind the other
(assumption, 1.5 to 6: decision 0196)."""

MISS_STEEPNESS = 6.0
"""How sharply a second reading of the rows in flight goes from cache to memory as they outgrow it (assumption, 3 to 12:
decision 0196)."""


class RowOperator(StrEnum):
    """Operators of rows; the value names them in data sets' terms."""

    ADD = "add"
    GELU = "gelu"
    SOFTMAX = "softmax"
    LAYER_NORM = "layernorm"


@dataclass(frozen=True, slots=True)
class VectorMachine:
    """One machine (numbers), or one for every row priced (arrays of one shape); SI units.

    Attributes:
        num_units: multiprocessors.
        threads_per_unit: threads that one of them holds at a time.
        bandwidth_bytes_per_s: main memory as reached by streams.
        cache_bytes: of the last cache before it, as far as it holds rows in flight.
        launch_s: no operator shows less: the host's launch, as far as the clock sees it.
        elementwise_start_s, softmax_start_s, norm_start_s: device time before and after the stream of each operator.
        block_s: latency of a thread block: its launch and reductions.
        loop_s: latency of one loop over the row in full vectors.
        tail_s: latency of one loop over the row's rest, element by element.
        warp_row_s: time of the machine for a row in one warp.
        misaligned_passes: passes that a row which is no multiple of the vector adds.
    """

    num_units: Floats | float
    threads_per_unit: Floats | float
    bandwidth_bytes_per_s: Floats | float
    cache_bytes: Floats | float
    launch_s: Floats | float = 0.0
    elementwise_start_s: Floats | float = 0.0
    softmax_start_s: Floats | float = 0.0
    norm_start_s: Floats | float = 0.0
    block_s: Floats | float = 0.0
    loop_s: Floats | float = 0.0
    tail_s: Floats | float = 0.0
    warp_row_s: Floats | float = 0.0
    misaligned_passes: Floats | float = 0.0


def row_operator_s(
    kind: RowOperator, rows: Floats | float, length: Floats | float, element_bytes: int, machine: VectorMachine
) -> Floats:
    """Time of one operator over ``rows`` rows of ``length`` elements, s, shape as broadcast."""
    m, n = np.asarray(rows, np.float64), np.asarray(length, np.float64)
    if kind is RowOperator.SOFTMAX:
        return softmax_s(m, n, element_bytes, machine)
    if kind is RowOperator.LAYER_NORM:
        return layer_norm_s(m, n, element_bytes, machine)
    return elementwise_s((3.0 if kind is RowOperator.ADD else 2.0) * element_bytes * m * n, machine)


def elementwise_s(num_bytes: Floats, machine: VectorMachine) -> Floats:
    """Time of a kernel that streams ``num_bytes`` in all, s."""
    body = machine.elementwise_start_s + num_bytes / machine.bandwidth_bytes_per_s
    return power_norm(machine.launch_s, body, FLOOR_NORM)


def softmax_s(rows: Floats, length: Floats, element_bytes: int, machine: VectorMachine) -> Floats:
    """Time of a softmax along rows, s."""
    lanes = VECTOR_BYTES // element_bytes
    threads = softmax_block_threads(length, lanes)
    vectors = np.floor(length / (lanes * threads))
    tails = np.ceil((length - vectors * lanes * threads) / threads)
    resident = _resident_blocks(machine, threads)
    latency = machine.block_s + vectors * machine.loop_s + tails * machine.tail_s
    block_s = rows * latency / (machine.num_units * resident)
    is_short = length <= WARP_SOFTMAX_COLUMNS
    row_s = np.where(is_short, rows * machine.warp_row_s, block_s)
    again = 2.0 * _miss(length * element_bytes * resident, machine)
    again = again + np.where(length % lanes > 0, machine.misaligned_passes, 0.0)
    passes = 2.0 + np.where(is_short, 0.0, again)
    stream_s = passes * rows * length * element_bytes / machine.bandwidth_bytes_per_s
    body = machine.softmax_start_s + power_norm(stream_s, row_s, OVERLAP_NORM)
    return power_norm(machine.launch_s, body, FLOOR_NORM)


def layer_norm_s(rows: Floats, length: Floats, element_bytes: int, machine: VectorMachine) -> Floats:
    """Time of a layer norm over rows, s."""
    loops = np.ceil(length * element_bytes / (VECTOR_BYTES * LAYER_NORM_THREADS))
    resident = _resident_blocks(machine, np.asarray(LAYER_NORM_THREADS, np.float64))
    block_s = rows * (machine.block_s + loops * machine.loop_s) / (machine.num_units * resident)
    passes = 2.0 + _miss(length * element_bytes * resident, machine)
    stream_s = passes * rows * length * element_bytes / machine.bandwidth_bytes_per_s
    body = machine.norm_start_s + power_norm(stream_s, block_s, OVERLAP_NORM)
    return power_norm(machine.launch_s, body, FLOOR_NORM)


def softmax_block_threads(length: Floats, lanes: int) -> Floats:
    """Threads of a softmax block: the least power of two that reaches half the row's vectors, 32 to 512."""
    half = np.minimum(length / lanes, MAX_THREADS) / 2.0
    return np.asarray(np.clip(2.0 ** np.ceil(np.log2(np.maximum(half, 1.0))), 32.0, MAX_THREADS))


def _resident_blocks(machine: VectorMachine, threads: Floats) -> Floats:
    return np.maximum(1.0, np.floor(machine.threads_per_unit / threads))


def _miss(row_bytes_per_unit: Floats, machine: VectorMachine) -> Floats:
    """Share of a second reading that goes to memory: 0 while the rows in flight fit in cache, then 1."""
    in_flight = row_bytes_per_unit * machine.num_units
    return np.asarray(1.0 / (1.0 + (machine.cache_bytes / np.maximum(in_flight, 1.0)) ** MISS_STEEPNESS))
