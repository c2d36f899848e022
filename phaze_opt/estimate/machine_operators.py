"""Operators of the graph on a GPU, one after the other, each spread over the whole machine."""

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.machine import MachineModel
from phaze_opt.estimate.machine_attention import attention_s
from phaze_opt.estimate.machine_matmul import matmul_terms
from phaze_opt.estimate.operator_table import CompiledOperators, is_on_core
from phaze_opt.graph.operator import OperatorKind


def operator_seconds(compiled: CompiledOperators, machine: MachineModel) -> NDArray[np.float64]:
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
