"""Shares of a designed chip's rates that real machines of its kind reach, and what starting an operator costs.

A chip that is only designed cannot be measured, so each term comes from the measured machine that does that part the
same way:

- arrays: TPU v6e, 256 x 256 systolic arrays under a compiler, 43 matmuls; what is lost beyond folds, fill and drain;
- memory: the A100's streams, the same HBM and the most row operators;
- launch: TPU v7 in device traces. A designed chip runs a compiled program, so neither host nor framework stands between
  two operators: the 29 us of an awaited call on an A100 do not apply. In cycles, because a sequencer takes it.
- lanes: no operator measured was bound by them; they reach their rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.estimate.machine import operator_group
from phaze_opt.hardware.device_catalogue import load_device
from phaze_opt.hardware.fitted import FittedConstants

ARRAY_GROUP = operator_group("tpu-v6e", "host")
MEMORY_GROUP = operator_group("a100-80g", "host")
LAUNCH_DEVICE = "tpu-v7-chiplet"
LAUNCH_GROUP = operator_group(LAUNCH_DEVICE, "device")


@dataclass(frozen=True, slots=True)
class DesignTerms:
    """What separates a designed chip from its ideal; the defaults are the ideal.

    Attributes:
        launch_cycles: of starting an operator.
        array_efficiency: share of the arrays' cycles that compute or wait for the GLB.
        lane_efficiency: share of the vector lanes' rate.
        memory_efficiency: share of the HBM bandwidth.
    """

    launch_cycles: float = 0.0
    array_efficiency: float = 1.0
    lane_efficiency: float = 1.0
    memory_efficiency: float = 1.0

    def __post_init__(self) -> None:
        """Refuse shares outside (0, 1] and launches below 0."""
        shares = (self.array_efficiency, self.lane_efficiency, self.memory_efficiency)
        if not all(0.0 < share <= 1.0 for share in shares):
            message = f"shares of a designed chip's rates {shares} must be above 0 and at most 1"
            raise InputError(message)
        if not (math.isfinite(self.launch_cycles) and self.launch_cycles >= 0.0):
            message = f"launch of {self.launch_cycles} cycles must be finite and not negative"
            raise InputError(message)


def design_terms(fitted: FittedConstants) -> DesignTerms:
    """The terms as fitted to the machines named above.

    Raises:
        InputError: nothing was fitted to one of them.
    """
    launch_s = fitted.value(LAUNCH_GROUP, "launch_s")
    return DesignTerms(
        launch_cycles=launch_s * load_device(LAUNCH_DEVICE).clock_hz,
        array_efficiency=fitted.value(ARRAY_GROUP, "matmul_efficiency"),
        memory_efficiency=fitted.value(MEMORY_GROUP, "vector_memory_efficiency"),
    )
