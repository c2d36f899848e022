"""Fused attention of modern GPUs as an operator of its own: forward, backward or both, by shape, heads and mask.

    t = launch + norm(W, M)
    W = busy x 2 q (d_qk + d_v + softmax x peak / (2 exps)) wide / (peak e) x passes
    M = bytes of queries, keys, values and result / (bandwidth x share)

A tile is ``q`` queries of one head and takes as many steps as it sees keys, and a ramp. Without a causal mask tiles go
in whole waves; with one they differ in length and fill the machine nearly evenly: ``busy`` is their sum and a share of
the longest, and no less than that. A window saves what lies outside it but for what its tiles reach over the edge.
``softmax`` is how many exponentials a score costs, of which special function units do ``exps`` a second: why heads of
64 reach less of the peak than heads of 128, and why a machine with twice the exponentials is faster at one peak. Heads
are laid out in multiples of 32, libraries have few fast kernels for those that are none of 16, and heads wider than
128 outgrow a multiprocessor: by a power of their size, which is nothing on HBM and up to a square on boards. Backward
does 5 products for 2 of forward, at a lower rate: it takes 3 times as long, and reads and writes 3 times as much.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.objective.caveats import HEAD_STEP, LAID_STEP
from phaze_opt.record.arrays import Floats
from phaze_opt_lab.estimate.wave_matmul import GpuSheet, stable_norm

QUERY_TILES = ((64, 1.15), (128, 1.0), (256, 1.05))
"""Queries of a tile and the relative time of its FLOPs (assumptions)."""
GOOD_HEAD = 128
"""Head above which tiles outgrow registers and shared memory."""
BACKWARD_PASSES = 3.0
"""Time of backward over forward at one rate (cuDNN on H200 3.0, on GB200 3.2)."""


@dataclass(frozen=True, slots=True)
class AttentionRows:
    """Attentions; arrays of one shape.

    Attributes:
        batch, queries, keys: sequences and their lengths.
        heads, kv_heads: of queries, and of keys and values.
        head_size, value_size: of queries and keys, and of values.
        is_causal: 1 where a query sees no later key, else 0.
        window: keys that a query sees; 0: all.
        passes: 1 forward, `BACKWARD_PASSES` backward, the sum of both.
        element_bytes: of operands.
    """

    batch: Floats
    queries: Floats
    keys: Floats
    heads: Floats
    kv_heads: Floats
    head_size: Floats
    value_size: Floats
    is_causal: Floats
    window: Floats
    passes: Floats
    element_bytes: Floats


@dataclass(frozen=True, slots=True)
class AttentionConstants:
    """Constants of every row; arrays of one shape, SI units.

    Attributes:
        launch_s: floor.
        efficiency: share of the peak in full waves of long rows.
        ramp: keys that take as long as starting a tile.
        softmax: exponentials that one score's softmax takes as long as, beyond what is hidden behind its products.
        lost_wave: share of the longest tile that tiles of different length lose.
        wide_head: factor of a FLOP in heads of twice `GOOD_HEAD`; of others by its power.
        odd_head: factor of heads that are no multiple of `HEAD_STEP`.
        window_keys: keys outside its window that a query's tile works on.
        memory_share: of the memory's bandwidth.
        kv_passes: how many times keys and values are moved: to a paged cache, into another type.
        overlap_norm: order of the norm of compute and memory.
    """

    launch_s: Floats
    efficiency: Floats
    ramp: Floats
    softmax: Floats
    lost_wave: Floats
    wide_head: Floats
    odd_head: Floats
    window_keys: Floats
    memory_share: Floats
    kv_passes: Floats
    overlap_norm: Floats


@dataclass(frozen=True, slots=True)
class AttentionTerms:
    """Where the time goes; arrays of one shape, s: the launch, products at the peak, and what comes on top."""

    launch_s: Floats
    ideal_s: Floats
    below_peak_s: Floats
    memory_s: Floats

    @property
    def seconds(self) -> Floats:
        """The whole."""
        return np.asarray(self.launch_s + self.ideal_s + self.below_peak_s + self.memory_s)


def attention_terms(rows: AttentionRows, sheet: GpuSheet, constants: AttentionConstants) -> AttentionTerms:
    """Times of fused attentions by term."""
    per_exponential = sheet.peak_flops_per_s / (2.0 * sheet.exponentials_per_s)
    softmax = constants.softmax * per_exponential
    products = _laid_out(rows.head_size) + _laid_out(rows.value_size) + softmax
    odd = np.where(rows.head_size % HEAD_STEP > 0, constants.odd_head, 1.0)
    wide = constants.wide_head ** np.log2(np.maximum(rows.head_size, GOOD_HEAD) / GOOD_HEAD)
    busy = _busy(rows, sheet, constants)
    compute = 2.0 * busy * products * odd * wide * rows.passes / (sheet.peak_flops_per_s * constants.efficiency)
    memory = rows.passes * attention_bytes(rows, kv_passes=constants.kv_passes)
    memory = memory / (sheet.bandwidth_bytes_per_s * constants.memory_share)
    ideal = attention_flops(rows) / sheet.peak_flops_per_s
    total = stable_norm(compute, memory, constants.overlap_norm)
    return AttentionTerms(constants.launch_s, ideal, compute - ideal, total - compute)


def _busy(rows: AttentionRows, sheet: GpuSheet, constants: AttentionConstants) -> Floats:
    """Queries times keys that all multiprocessors are busy with or wait for, of the best tile."""
    mean = _worked(rows, constants.window_keys) / rows.queries + constants.ramp
    reached = np.where(rows.window > 0, np.minimum(rows.window + constants.window_keys, rows.keys), rows.keys)
    longest = reached + constants.ramp
    best = np.full(rows.queries.shape, np.inf)
    for queries, cost in QUERY_TILES:
        waves = rows.batch * rows.heads * np.ceil(rows.queries / queries) / sheet.num_units
        uneven = np.maximum(waves * mean + constants.lost_wave * longest, longest)
        steps = np.where(rows.is_causal > 0, uneven, np.ceil(waves) * mean)
        best = np.minimum(best, steps * sheet.num_units * queries * cost)
    return best


def attention_flops(rows: AttentionRows) -> Floats:
    """FLOPs of the scores that the mask leaves, with the passes of forward and backward."""
    products = rows.head_size + rows.value_size
    return np.asarray(2.0 * rows.batch * rows.heads * visible_pairs(rows) * products * rows.passes)


def attention_bytes(rows: AttentionRows, *, kv_passes: Floats | float = 1.0) -> Floats:
    """Bytes of queries, result, keys and values of one pass."""
    tokens = rows.queries * rows.heads + kv_passes * rows.keys * rows.kv_heads
    return np.asarray(rows.batch * tokens * (rows.head_size + rows.value_size) * rows.element_bytes)


def attention_rows(shape: Sequence[Floats], element_bytes: Floats) -> AttentionRows:
    """Attentions of columns in the order of the fields up to ``passes``."""
    batch, queries, keys, heads, kv_heads, head_size, value_size, is_causal, window, passes = shape
    return AttentionRows(
        batch=batch,
        queries=queries,
        keys=keys,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        value_size=value_size,
        is_causal=is_causal,
        window=window,
        passes=passes,
        element_bytes=element_bytes,
    )


def attention_roofline(shape: tuple[float, ...], *, element_bytes: float) -> tuple[float, float]:
    """FLOPs of the scores that the mask leaves, and bytes moved once a pass, of one attention.

    Args:
        shape: values of the fields of `AttentionRows` up to ``passes``, in their order.
        element_bytes: of operands.
    """
    rows = attention_rows([np.asarray(value) for value in shape], np.asarray(element_bytes))
    return float(attention_flops(rows)), float(rows.passes * attention_bytes(rows))


def visible_pairs(rows: AttentionRows) -> Floats:
    """Pairs of a query and a key that it sees, of one head; queries are the last of the keys' positions."""
    before = np.maximum(rows.keys - rows.queries, 0.0)
    window = np.where(rows.window > 0, np.minimum(rows.window, rows.keys), rows.keys)
    # Queries whose keys are fewer than the window see all of them.
    short = np.clip(window - before, 0.0, rows.queries)
    causal = short * before + short * (short + 1.0) / 2.0 + (rows.queries - short) * window
    return np.asarray(np.where(rows.is_causal > 0, causal, rows.queries * window))


def _worked(rows: AttentionRows, window_keys: Floats) -> Floats:
    """Pairs of one head that are worked on: tiles reach over the edges of a window."""
    reached = visible_pairs(rows) + rows.queries * window_keys
    return np.asarray(np.where(rows.window > 0, np.minimum(reached, _without_window(rows)), visible_pairs(rows)))


def _without_window(rows: AttentionRows) -> Floats:
    before = np.maximum(rows.keys - rows.queries, 0.0)
    causal = rows.queries * before + rows.queries * (rows.queries + 1.0) / 2.0
    return np.asarray(np.where(rows.is_causal > 0, causal, rows.queries * rows.keys))


def _laid_out(size: Floats) -> Floats:
    return np.asarray(LAID_STEP * np.ceil(size / LAID_STEP))
