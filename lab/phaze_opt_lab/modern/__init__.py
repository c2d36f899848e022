"""Kernels of modern GPUs under the device's clock: matmuls, fused attention, fused experts, norms and casts."""
