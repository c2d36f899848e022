"""How a model is trained: batch sizes, optimizer, attention form and sharding choices."""

from dataclasses import dataclass
from enum import StrEnum

from phaze_opt.errors import InputError

MAX_SAMPLES = 1 << 31
"""Largest batch and sequence accepted: beyond any trained, within what integer arithmetic of placements holds."""


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
    """One training set-up. ``sequence_length`` in tokens, batches in samples."""

    micro_batch: int
    sequence_length: int
    global_batch: int
    optimizer: Optimizer = Optimizer.ADAM
    attention: AttentionForm = AttentionForm.FUSED
    is_sequence_parallel: bool = True
    dtype_bytes: int = 2

    def __post_init__(self) -> None:
        """Refuse empty and absurd batches and sequences."""
        for name in ("micro_batch", "sequence_length", "global_batch", "dtype_bytes"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_SAMPLES:
                message = f"{name} = {value} must be a positive integer up to {MAX_SAMPLES}"
                raise InputError(message, key=name)
