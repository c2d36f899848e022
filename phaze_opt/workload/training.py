"""How a model is trained: batch sizes, optimizer, attention form and sharding choices."""

import math
from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.errors import InputError
from phaze_opt.workload.sparsity import SparseWeights

MAX_SAMPLES = 1 << 31
"""Largest batch and sequence accepted: beyond any trained, within what integer arithmetic of placements holds."""


MAX_LOAD = 1024.0
"""Largest load of an expert over the mean: more than all tokens on one of as many experts."""


class Optimizer(StrEnum):
    """Optimizers, each with its bytes per parameter (semantics 5 and 6)."""

    ADAM = "adam"
    SGD = "sgd"

    @property
    def weight_bytes(self) -> int:
        """Bytes of a working weight (16-bit)."""
        return 2

    @property
    def gradient_bytes(self) -> int:
        """Bytes of a gradient (16-bit)."""
        return 2

    @property
    def state_bytes(self) -> int:
        """Bytes of master weight and moments: 4 + 4 + 4 for Adam, none for SGD."""
        return 12 if self is Optimizer.ADAM else 0

    @property
    def bytes_per_parameter(self) -> int:
        """Weight + gradient + optimizer state: 16 for Adam in mixed precision, 4 for SGD."""
        return self.weight_bytes + self.gradient_bytes + self.state_bytes


class AttentionForm(StrEnum):
    """Fused attention never writes the s x s scores; unfused writes and stashes them."""

    FUSED = "fused"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True)
class TrainingSpec:
    """One training set-up. ``sequence_length`` in tokens, batches in samples.

    Attributes:
        expert_imbalance: tokens of the fullest device's experts over the mean of all devices, where none are dropped.
        expert_capacity: tokens that each expert takes over the mean, padded to it and dropped beyond; 0 drops none.
        sparsity: N:M pattern of the weights of a model's units; None trains them dense.
    """

    micro_batch: int
    sequence_length: int
    global_batch: int
    optimizer: Optimizer = Optimizer.ADAM
    attention: AttentionForm = AttentionForm.FUSED
    is_sequence_parallel: bool = True
    dtype_bytes: int = 2
    expert_imbalance: float = 1.0
    expert_capacity: float = 0.0
    sparsity: SparseWeights | None = None

    def __post_init__(self) -> None:
        """Refuse empty and absurd batches and sequences."""
        for name in ("micro_batch", "sequence_length", "global_batch", "dtype_bytes"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_SAMPLES:
                message = f"{name} = {value} must be a positive integer up to {MAX_SAMPLES}"
                raise InputError(message, key=name)
        if not 1.0 <= self.expert_imbalance <= MAX_LOAD:
            message = f"expert_imbalance = {self.expert_imbalance} must be from 1 (balanced) to {MAX_LOAD:g}"
            raise InputError(message, key="expert_imbalance")
        if self.expert_capacity and not 1 / MAX_LOAD <= self.expert_capacity <= MAX_LOAD:
            message = f"expert_capacity = {self.expert_capacity} must be 0 (dropless) or up to {MAX_LOAD:g}"
            raise InputError(message, key="expert_capacity")
        if self.expert_capacity and self.expert_imbalance != 1.0:
            message = "experts of a fixed capacity are all alike; leave expert_imbalance out"
            raise InputError(message, key="expert_imbalance")

    @property
    def expert_load(self) -> float:
        """Rows of the fullest device's experts over those of a balanced load."""
        return self.expert_capacity or self.expert_imbalance

    def loaded(self, rows: int) -> int:
        """So many balanced rows as the fullest expert has them, rounded up."""
        return rows if self.expert_load == 1.0 else math.ceil(self.expert_load * rows)
