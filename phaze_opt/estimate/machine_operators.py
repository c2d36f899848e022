"""Operators of the graph on real machines, one after the other, each spread over the whole machine.

Fused attention is one kernel, scores never in memory. On a GPU the softmax of one tile hides behind the products of
another, and one share of the peak holds what is left. Where software states the softmax's FLOPs (on TPUs, whose vector
units are a two-hundredth of the arrays), products and softmax are priced apart and added up.
"""

import numpy as np

from phaze_opt.estimate.machine import MachineModel
from phaze_opt.estimate.machine_matmul import matmul_terms
from phaze_opt.estimate.operator_table import VECTOR_KINDS, CompiledOperators, is_on_core
from phaze_opt.graph.operator import OperatorKind, VectorKind
from phaze_opt.record.arrays import Floats

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


def softmax_s(compiled: CompiledOperators, *, softmax_flops: float, vector_flops_per_s: float) -> Floats:
    """Softmax of every operator on the vector units, shape (num_operators,), s.

    Args:
        compiled: operators.
        softmax_flops: of one score, forward or backward.
        vector_flops_per_s: of the vector units.
    """
    return np.asarray(compiled.vector_elements[:, _SOFTMAX].sum(axis=1) * (softmax_flops / vector_flops_per_s))
