"""Operators of the graph on real machines, one after the other, each spread over the whole machine.

Fused attention is one kernel, scores never in memory. On a GPU the softmax of one tile hides behind the products of
another, and one share of the peak holds what is left. Where software states the softmax's FLOPs (on TPUs, whose vector
units are a two-hundredth of the arrays), products and softmax are priced apart and added up.

Matmuls on GPUs: tiles in waves over multiprocessors; memory beside them.

A matmul is busy for B = norm(C + exposed x S, M): C computes, M moves operands and result once, S is what must come
before or after the products themselves and so may not be hidden behind them. The norm's order says how well C and M
overlap: infinite, the longer of both; lower, a little more where they are about equal. One of many milliseconds alone
loses rate besides, B x loss x B / (B + 5 ms): the limit of power acts over milliseconds.

Tiles: C = 2 SM t_m t_n waves (k + k0) penalty / (peak e), waves = ceil(tiles / SM), minimised over the output tiles
that libraries have; k0 is the k at which filling and draining doubles the time.
S = bytes / (bandwidth e_m) of the result, as far as it outgrows the cache, which else takes it in. Systolic arrays are
priced by the estimator of designed chips (`estimate.calibrated`).

Row operators on a real GPU: softmax, layer norm, GELU and addition by rows and row length, with few constants.

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

from phaze_opt.estimate.machine import MachineModel, power_norm
from phaze_opt.estimate.operator_table import VECTOR_KINDS, CompiledOperators, is_on_core
from phaze_opt.graph.operator import OperatorKind, VectorKind
from phaze_opt.record.arrays import Floats

TILES = ((256, 128, 1.0), (128, 128, 1.05), (128, 64, 1.2), (64, 64, 1.5))
"""Rows, columns and relative time a FLOP of the output tiles that GPU matmul libraries have; also turned.

The relative times are assumptions; equal ones, or twice the steps, change little (decision 0196)."""

SPILL_STEEPNESS = 4.0
"""How sharply storing goes from cache to memory as the result outgrows the cache (assumption, 2 to 8: 0196)."""


SUSTAINED_S = 5e-3
"""Time in which half of the sustained loss shows (assumption, 1 to 10 ms: decision 0199)."""


@dataclass(frozen=True, slots=True)
class MatmulTerms:
    """What a matmul's time is made of; arrays of one shape, s.

    Attributes:
        ideal_s: FLOPs at the peak.
        waste_s: tiles that stick out, waves that are not full, and smaller tiles' lower rate, at the peak.
        ramp_s: filling and draining, at the peak.
        below_peak_s: what reaching only a share of the peak adds to the three.
        store_s: storing the result, as far as compute waits for it.
        memory_s: operands and result moved at the bandwidth reached.
        sustained_s: what the lower rate of long matmuls adds.
        busy_s: all of it, without the launch.
    """

    ideal_s: Floats
    waste_s: Floats
    ramp_s: Floats
    below_peak_s: Floats
    store_s: Floats
    memory_s: Floats
    sustained_s: Floats
    busy_s: Floats


def matmul_s(batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel) -> Floats:
    """Time of ``batch`` products of m x k by k x n, s, shape as broadcast."""
    return np.asarray(machine.launch_s + matmul_terms(batch, m, n, k, machine).busy_s)


def matmul_terms(
    batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel, *, left: Floats | None = None
) -> MatmulTerms:
    """The same, without the launch and by term; ``left`` elements lie in memory behind a left operand, else m k."""
    batch, m, n, k = np.broadcast_arrays(batch, m, n, k)
    filled, ramp = _tiles(batch, m, n, k, machine)
    ideal = 2.0 * batch * m * n * k / machine.peak_flops_per_s
    compute = (filled + ramp) / machine.matmul_efficiency
    store = machine.exposed_store * _store_s(batch * m * n, machine)
    memory = memory_s(batch, m, n, k, machine, left=left)
    busy = power_norm(compute + store, memory, machine.overlap_norm)
    sustained = machine.sustained_loss * busy**2 / (busy + SUSTAINED_S)
    waste, below = filled - ideal, compute - filled - ramp
    return MatmulTerms(ideal, waste, ramp, below, store, memory, sustained, busy + sustained)


def memory_s(
    batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel, *, left: Floats | None = None
) -> Floats:
    """Time to move both operands and the result once, s; ``left`` as of `matmul_terms`."""
    behind = m * k if left is None else left
    num_bytes = batch * (machine.element_bytes * (behind + k * n) + _result_bytes(machine) * m * n)
    return np.asarray(num_bytes / _memory_rate(machine))


def _memory_rate(machine: MachineModel) -> float:
    return machine.hbm_bandwidth_bytes_per_s * machine.matmul_memory_efficiency


def _result_bytes(machine: MachineModel) -> int:
    return machine.result_bytes or machine.element_bytes


def _store_s(results: Floats, machine: MachineModel) -> Floats:
    """Time to store so many results, as far as they outgrow the cache, s."""
    num_bytes = results * _result_bytes(machine)
    spilled = 1.0 / (1.0 + (machine.cache_bytes / np.maximum(num_bytes, 1.0)) ** SPILL_STEEPNESS)
    return np.asarray(num_bytes / _memory_rate(machine) * spilled)


def _tiles(batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel) -> tuple[Floats, Floats]:
    """Time at the peak in full waves of the best tiles, and of their ramps."""
    per_k = np.full(m.shape, np.inf)
    for rows, columns, penalty in TILES:
        for a, b in {(rows, columns), (columns, rows)}:
            waves = np.ceil(batch * np.ceil(m / a) * np.ceil(n / b) / machine.num_units)
            per_k = np.minimum(per_k, waves * (a * b * penalty))
    per_k = per_k * (2.0 * machine.num_units / machine.peak_flops_per_s)
    return per_k * k, per_k * machine.k_ramp


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


_SOFTMAX = (VECTOR_KINDS.index(VectorKind.SOFTMAX_FORWARD), VECTOR_KINDS.index(VectorKind.SOFTMAX_BACKWARD))


def operator_seconds(compiled: CompiledOperators, machine: MachineModel) -> Floats:
    """Time of every operator run alone on the whole machine, shape (num_operators,), s; 0 off the cores.

    A matmul's epilogue moves its own operands after the product; fused attention runs at an efficiency of its own.
    Groups of a convolution run on ordinary cores where that is the faster, and each step of a recurrence is launched.
    """
    shapes = compiled.shapes
    batch, m, n, k = (column.astype(np.float64) for column in (shapes.batch, shapes.m, shapes.n, shapes.k))
    left = shapes.left_elements.astype(np.float64)
    products = compiled.add_up(matmul_terms(batch, m, n, k, machine, left=left).busy_s[None, :])[0]
    vector_rate = machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency
    excess = np.maximum(0.0, compiled.traffic_bytes - compiled.tiled_elements * machine.element_bytes)
    attention = attention_s(2.0 * compiled.macs, compiled.traffic_bytes, machine)
    moved = compiled.traffic_bytes / vector_rate
    if machine.lane_flops_per_s:
        on_lanes = np.maximum(2.0 * compiled.macs / machine.lane_flops_per_s, moved)
        products = np.where(compiled.is_grouped, np.minimum(products, on_lanes), products)
    has_products = compiled.macs > 0
    is_attention = np.array([o.kind is OperatorKind.ATTENTION for o in compiled.operators], dtype=np.bool_)
    busy = np.where(is_attention, attention, np.where(has_products, products + excess / vector_rate, moved))
    return np.where(is_on_core(compiled), busy + machine.launch_s * compiled.serial_steps, 0.0)


def attention_s(flops: Floats, num_bytes: Floats, machine: MachineModel) -> Floats:
    """Time of fused attention without the launch, s: its matmuls at a share of the peak of their own, or its bytes.

    The softmax between the products keeps the matrix units waiting, which ``attention_efficiency`` holds.

    Args:
        flops: of both products, as far as the kernel computes them.
        num_bytes: queries, keys, values and result, each moved once.
        machine: the machine.
    """
    compute = flops / (machine.peak_flops_per_s * machine.attention_efficiency)
    memory = num_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
    return np.asarray(np.maximum(compute, memory))


def products_s(compiled: CompiledOperators, machine: MachineModel) -> Floats:
    """Products of every operator on a GPU, nothing moved to memory, shape (num_operators,), s."""
    shapes = compiled.shapes
    batch, m, n, k = (column.astype(np.float64) for column in (shapes.batch, shapes.m, shapes.n, shapes.k))
    terms = matmul_terms(batch, m, n, k, machine)
    compute = terms.ideal_s + terms.waste_s + terms.ramp_s + terms.below_peak_s
    return np.asarray(compiled.add_up(compute[None, :])[0])


def compiled_softmax_s(compiled: CompiledOperators, *, softmax_flops: float, vector_flops_per_s: float) -> Floats:
    """Softmax of every operator on the vector units, shape (num_operators,), s.

    Args:
        compiled: operators.
        softmax_flops: of one score, forward or backward.
        vector_flops_per_s: of the vector units.
    """
    return np.asarray(compiled.vector_elements[:, _SOFTMAX].sum(axis=1) * (softmax_flops / vector_flops_per_s))
