"""Operators of the graph priced on a real machine by `estimate.machine`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.machine import MachineModel, matmul_s
from phaze_opt.estimate.operator_table import CompiledOperators
from phaze_opt.graph.operator import CoreType, OperatorKind


def operator_seconds(compiled: CompiledOperators, machine: MachineModel) -> NDArray[np.float64]:
    """Time of every operator run alone on the whole machine, shape (num_operators,), s; 0 off the cores.

    A matmul with an epilogue takes the longer of both; fused attention its matmuls at the attention efficiency.
    """
    shapes = compiled.shapes
    batch, m, n, k = (column.astype(np.float64) for column in (shapes.batch, shapes.m, shapes.n, shapes.k))
    alone = matmul_s(batch, m, n, k, machine) - machine.launch_s
    products = compiled.add_up(alone[None, :])[0]
    kinds = np.array([operator.kind for operator in compiled.operators], dtype=object)
    is_attention = kinds == OperatorKind.ATTENTION
    flops = 2.0 * compiled.macs
    products = np.where(is_attention, flops / (machine.peak_flops_per_s * machine.attention_efficiency), products)
    moved = compiled.hbm_bytes / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
    has_products = compiled.macs > 0
    excess = np.maximum(0.0, compiled.hbm_bytes - compiled.tiled_elements * machine.element_bytes)
    epilogue = excess / (machine.hbm_bandwidth_bytes_per_s * machine.vector_memory_efficiency)
    busy = np.where(has_products, products + np.where(is_attention, 0.0, epilogue), moved)
    off = np.array([o.core_type in (CoreType.NETWORK, CoreType.NONE) for o in compiled.operators])
    return np.where(off, 0.0, busy + machine.launch_s)
