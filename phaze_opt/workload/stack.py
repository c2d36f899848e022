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
    """Behaviour of one training software; the defaults are those of an ideal one that overlaps and loses nothing.

    Attributes:
        name: name of the stack.
        fusion, attention: how its blocks are lowered to kernels.
        order: layout of the ranks.
        gradient_bytes: bytes of a gradient element on the wire.
        has_scatter_gather: a stage boundary is crossed by each device of the tensor group with its own share, then
            gathered inside the group (Narayanan et al. 2021, section 4.1).
        tensor_overlap, data_overlap, parameter_overlap, transfer_overlap: shares of tensor-parallel collectives, of
            the gradient (and ZeRO 1 parameter) collectives, of ZeRO 3 parameter traffic and of boundary transfers
            that hide behind compute.
        collective_efficiency: share of the innermost links' bandwidth (NVLink) that collectives reach.
        network_efficiency: the same of the outer levels (adapters), transfers between stages too.
        collective_latency_s: time of a tensor-parallel collective beyond the network's own.
        kernel_s: time on the device between one operator and the next.
        host_s_per_operator: host time to launch one operator; a block cannot run faster than its launches.
        host_s_per_collective: the same for one collective.
        step_overhead_s: fixed time of a step.
        matmul_efficiency, attention_efficiency, vector_efficiency: shares of peak and memory bandwidth that matmuls,
            attention's matmuls and other operators reach in training; 0 for what the device reaches alone.
        k_ramp: inner size at which a matmul reaches half of that; negative for what the device shows alone.
    """

    name: str = "ideal"
    fusion: FusionLevel = FusionLevel.EPILOGUE
    attention: AttentionForm = AttentionForm.FUSED
    order: RankOrder = RankOrder.PIPELINE_INNER
    gradient_bytes: int = 2
    has_scatter_gather: bool = False
    tensor_overlap: float = 0.0
    data_overlap: float = 0.0
    parameter_overlap: float = 0.0
    transfer_overlap: float = 0.0
    collective_efficiency: float = 1.0
    network_efficiency: float = 1.0
    collective_latency_s: float = 0.0
    kernel_s: float = 0.0
    host_s_per_operator: float = 0.0
    host_s_per_collective: float = 0.0
    step_overhead_s: float = 0.0
    matmul_efficiency: float = 0.0
    attention_efficiency: float = 0.0
    vector_efficiency: float = 0.0
    k_ramp: float = -1.0


IDEAL_STACK = TrainingStack()
"""Overlaps nothing and loses nothing."""
