"""Fused attention on machines whose vector units compute the softmax beside large systolic arrays (TPUs).

On a GPU the softmax of one tile hides behind the products of another, and one share of the peak holds what is left.
On a TPU an array of 256 x 256 is half empty when heads have 128 channels, and the vector units are a two-hundredth of
the arrays: both show, so products and softmax are priced apart and added up.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.machine import MachineModel
from phaze_opt.estimate.machine_matmul import matmul_terms
from phaze_opt.estimate.operator_table import VECTOR_KINDS, CompiledOperators
from phaze_opt.graph.operator import VectorKind

Floats = NDArray[np.float64]

_SOFTMAX = (VECTOR_KINDS.index(VectorKind.SOFTMAX_FORWARD), VECTOR_KINDS.index(VectorKind.SOFTMAX_BACKWARD))


def streamed_products_s(compiled: CompiledOperators, machine: MachineModel) -> Floats:
    """Products of every operator streamed through the arrays, nothing moved to memory, shape (num_operators,), s."""
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
