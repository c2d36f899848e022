"""Fused attention on real machines: both products and the softmax in one kernel, scores never in memory."""

from __future__ import annotations

import numpy as np

from phaze_opt.estimate.machine import Floats, MachineModel


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
