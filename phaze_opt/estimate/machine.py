"""What operators take on a real machine: tiles and waves, launch, cache and memory, with fitted constants.

The terms (names as in docs/validation.md): a matmul takes ``launch + max(compute, memory)`` with compute =
waves x tile FLOPs x SMs x (1 + k0/k) / (peak x efficiency), minimised over the tile sizes a library has; a vector
operator takes ``launch + bytes / (bandwidth x efficiency)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TILES = ((256, 128, 1.0), (128, 128, 1.05), (128, 64, 1.2), (64, 64, 1.5))
"""Rows, columns and relative time a FLOP of the output tiles that GPU matmul libraries have."""


@dataclass(frozen=True, slots=True)
class MachineModel:
    """One real machine on one compute path, as operators see it; SI units.

    Attributes:
        num_units: multiprocessors that tiles are spread over.
        peak_flops_per_s: dense peak of the path.
        element_bytes: bytes of an operand's element.
        hbm_bandwidth_bytes_per_s: main memory.
        cache_bytes: last cache before it.
        launch_s: fixed time of an operator (launch; with a host clock also the framework's overhead).
        matmul_efficiency: share of the peak reached with full waves and large k.
        k_ramp: k at which filling and draining the pipeline doubles the time.
        matmul_memory_efficiency, vector_memory_efficiency: shares of the memory bandwidth reached.
        attention_efficiency: share of the peak in fused attention.
    """

    num_units: int
    peak_flops_per_s: float
    element_bytes: int
    hbm_bandwidth_bytes_per_s: float
    cache_bytes: float
    launch_s: float = 0.0
    matmul_efficiency: float = 1.0
    k_ramp: float = 0.0
    matmul_memory_efficiency: float = 1.0
    vector_memory_efficiency: float = 1.0
    attention_efficiency: float = 1.0


def matmul_s(batch: Floats, m: Floats, n: Floats, k: Floats, machine: MachineModel) -> Floats:
    """Time of ``batch`` products of m x k by k x n, s, shape as broadcast."""
    rate = machine.peak_flops_per_s * machine.matmul_efficiency
    best = np.full(np.broadcast_shapes(np.shape(batch), np.shape(m)), np.inf)
    for rows, columns, penalty in TILES:
        for a, b in {(rows, columns), (columns, rows)}:
            tiles = batch * np.ceil(m / a) * np.ceil(n / b)
            waves = np.ceil(tiles / machine.num_units)
            flops = 2.0 * machine.num_units * a * b * waves * (k + machine.k_ramp) * penalty
            best = np.minimum(best, flops / rate)
    num_bytes = machine.element_bytes * batch * (m * k + k * n + m * n)
    memory = num_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.matmul_memory_efficiency)
    return np.asarray(machine.launch_s + np.maximum(best, memory))


def vector_s(num_bytes: Floats, machine: MachineModel) -> Floats:
    """Time of a vector operator that moves ``num_bytes``, s."""
    return machine.launch_s + num_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
