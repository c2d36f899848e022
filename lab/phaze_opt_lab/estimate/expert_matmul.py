"""Grouped matmuls and fused experts of modern GPUs: weights are read whatever the rows, tiles go in waves.

Fused experts are routing, gather, the two (gated: three) matmuls of every expert on its rows, and scatter:

    t = launch + experts of the rank x a time each + norm(W, M) + (activations + tokens) / bandwidth
    W = least over tile heights of the waves of both matmuls, at a share of the peak
    M = active experts x matrices x hidden x ffn x weight bytes / (bandwidth x share x cache)

Below some hundred rows an expert, M is all that shows. Some engines lay out the pairs of all tokens and experts on
every rank, so that those of other ranks' experts, ``strangers``, cost part of the work or all of it.
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt_lab.estimate.expert_load import ROW_TILES
from phaze_opt_lab.estimate.wave_matmul import GpuSheet, cached_ratio, stable_norm

COLUMNS = 128
"""Columns of an output tile."""
UNEVEN_WAVES = 4.0
"""Waves from which tiles of different experts run into one another: a half is lost instead of what is not full."""
ACTIVATION_BYTES = 2.0
"""Of an element of activations in memory."""


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """Fused experts of one rank; arrays of one shape.

    Attributes:
        tokens: that are routed.
        pairs: of a token and an expert that are laid out, of this rank or another.
        experts: of this rank, with rows or without.
        rows, active: of `expert_load.ExpertLoad`.
        tiles: by height, shape (len(ROW_TILES), num_rows).
        hidden, ffn: sizes, ffn as on the device.
        matrices: of an expert, 3 where gated, else 2.
        left_bytes, right_bytes: of an element of activations and of weights in the format.
    """

    tokens: Floats
    pairs: Floats
    experts: Floats
    rows: Floats
    active: Floats
    tiles: Floats
    hidden: Floats
    ffn: Floats
    matrices: Floats
    left_bytes: Floats
    right_bytes: Floats

    @property
    def flops(self) -> Floats:
        """Two for a multiplication and its addition, of all matrices."""
        return np.asarray(2.0 * self.rows * self.matrices * self.hidden * self.ffn)

    @property
    def weight_bytes(self) -> Floats:
        """Of the experts that get any row."""
        return np.asarray(self.active * self.matrices * self.hidden * self.ffn * self.right_bytes)

    @property
    def activation_bytes(self) -> Floats:
        """Written and read between gather, matmuls, activation and scatter."""
        first = self.hidden * (2.0 * ACTIVATION_BYTES + self.left_bytes)
        between = self.ffn * (ACTIVATION_BYTES * (self.matrices - 1.0) + 2.0 * self.left_bytes)
        return np.asarray(self.rows * (first + between))

    @property
    def token_bytes(self) -> Floats:
        """Read and written of all tokens, on this rank or not."""
        return np.asarray(3.0 * ACTIVATION_BYTES * self.tokens * self.hidden)


@dataclass(frozen=True, slots=True)
class ExpertConstants:
    """Constants of every row; arrays of one shape, SI units.

    Attributes:
        launch_s: of all kernels of the operator.
        expert_s: of an expert of the rank, with rows or without.
        efficiency: share of the peak in full waves.
        memory_share: of the memory's bandwidth in reading weights.
        cache_ratio: rate from the last cache over that.
        k_ramp: depth that takes as long as filling and draining.
        small_tile: how much more a FLOP costs in lower tiles: 1 + small_tile (sqrt(128 / height) - 1).
        overlap_norm: order of the norm of compute and memory.
        strangers: share of the work that a row of another rank's experts still costs.
        activation_passes, token_passes: how many times over those bytes go at the full bandwidth.
    """

    launch_s: Floats
    expert_s: Floats
    efficiency: Floats
    memory_share: Floats
    cache_ratio: Floats
    k_ramp: Floats
    small_tile: Floats
    overlap_norm: Floats
    strangers: Floats
    activation_passes: Floats
    token_passes: Floats


@dataclass(frozen=True, slots=True)
class ExpertTerms:
    """Where the time goes; arrays of one shape, s: launches, weights, what matmuls add, activations and tokens."""

    launch_s: Floats
    weights_s: Floats
    compute_s: Floats
    activations_s: Floats
    tokens_s: Floats

    @property
    def seconds(self) -> Floats:
        """The whole."""
        return np.asarray(self.launch_s + self.weights_s + self.compute_s + self.activations_s + self.tokens_s)


def expert_terms(rows: ExpertRows, sheet: GpuSheet, constants: ExpertConstants) -> ExpertTerms:
    """Times of fused experts by term."""
    first = np.ceil((rows.matrices - 1.0) * rows.ffn / COLUMNS)
    second = np.ceil(rows.hidden / COLUMNS)
    best = np.full(rows.rows.shape, np.inf)
    strangers = constants.strangers * np.maximum(rows.pairs - rows.rows, 0.0)
    for height, own in zip(ROW_TILES, rows.tiles, strict=True):
        tiles = own + strangers / height
        cost = 1.0 + constants.small_tile * (np.sqrt(128.0 / height) - 1.0)
        up = _waves(tiles * first / sheet.num_units) * (rows.hidden + constants.k_ramp)
        down = _waves(tiles * second / sheet.num_units) * (rows.ffn + constants.k_ramp)
        best = np.minimum(best, 2.0 * sheet.num_units * height * COLUMNS * cost * (up + down))
    compute = best / (sheet.peak_flops_per_s * constants.efficiency)
    ratio = cached_ratio(rows.weight_bytes, sheet.cache_bytes, constants.cache_ratio)
    weights = rows.weight_bytes / (sheet.bandwidth_bytes_per_s * constants.memory_share * ratio)
    busy = stable_norm(compute, weights, constants.overlap_norm)
    bandwidth = sheet.bandwidth_bytes_per_s
    activation_bytes = rows.activation_bytes * (1.0 + strangers / rows.rows)
    activations = constants.activation_passes * activation_bytes / bandwidth
    tokens = constants.token_passes * rows.token_bytes / bandwidth
    launch = constants.launch_s + rows.experts * constants.expert_s
    return ExpertTerms(launch, weights, busy - weights, activations, tokens)


def _waves(waves: Floats) -> Floats:
    return np.asarray(np.where(waves < UNEVEN_WAVES, np.ceil(waves), waves + 0.5))
