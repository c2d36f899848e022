"""Training software: what it fuses, how it orders ranks and what it overlaps (docs/validation.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.workload.training import AttentionForm


class FusionLevel(StrEnum):
    """Which operators run as one kernel: none, chains of elementwise work, or also epilogues of matmuls."""

    NONE = "none"
    ELEMENTWISE = "elementwise"
    EPILOGUE = "epilogue"


class RankOrder(StrEnum):
    """Which neighbours come next after tensor (and context) parallel ones: data (Megatron) or pipeline."""

    DATA_INNER = "data_inner"
    PIPELINE_INNER = "pipeline_inner"


@dataclass(frozen=True, slots=True)
class TrainingStack:
    """Behaviour of one training software; the defaults are those of an ideal one that overlaps nothing.

    Attributes:
        name: name of the stack.
        fusion, attention: how its blocks are lowered to kernels.
        order: layout of the ranks.
        gradient_bytes: bytes of a gradient element on the wire.
        tensor_overlap, data_overlap, parameter_overlap: shares of tensor-parallel collectives, of the gradient (and
            ZeRO 1 parameter) collectives and of ZeRO 3 parameter traffic that hide behind compute.
        collective_efficiency: share of the links' bandwidth that collectives reach.
        host_s_per_operator: host time to launch one operator; a block cannot run faster than its launches.
        step_overhead_s: fixed time of a step.
    """

    name: str = "ideal"
    fusion: FusionLevel = FusionLevel.EPILOGUE
    attention: AttentionForm = AttentionForm.FUSED
    order: RankOrder = RankOrder.PIPELINE_INNER
    gradient_bytes: int = 2
    tensor_overlap: float = 0.0
    data_overlap: float = 0.0
    parameter_overlap: float = 0.0
    collective_efficiency: float = 1.0
    host_s_per_operator: float = 0.0
    step_overhead_s: float = 0.0


IDEAL_STACK = TrainingStack()
"""Overlaps nothing and loses nothing."""
