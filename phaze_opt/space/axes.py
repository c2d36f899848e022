"""The axes of a search space: the values each parameter may take."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from phaze_opt.errors import InputError

MAX_AXIS_VALUES = 4096
"""Most values an axis may have; finer steps than this say nothing about a chip."""


@dataclass(frozen=True, slots=True)
class Axes:
    """Increasing positive values of every axis; ``vc_width`` is no axis, it equals ``tc_width``."""

    num_tc: tuple[int, ...]
    num_vc: tuple[int, ...]
    tc_width: tuple[int, ...]
    tc_depth: tuple[int, ...]
    glb_bytes: tuple[int, ...]
    hbm_bytes: tuple[int, ...]
    micro_batch: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse empty axes, values below one and values out of order."""
        for field in fields(self):
            values = getattr(self, field.name)
            if not 1 <= len(values) <= MAX_AXIS_VALUES:
                message = f"axis {field.name} has {len(values)} values; give 1 to {MAX_AXIS_VALUES}"
                raise InputError(message, key=field.name)
            is_increasing = all(first < second for first, second in zip(values, values[1:], strict=False))
            if values[0] < 1 or not is_increasing:
                message = f"axis {field.name} must hold positive values, each once and in increasing order"
                raise InputError(message, key=field.name)

    @property
    def num_candidates(self) -> int:
        """Architectures before any constraint: the product of the five architecture axes."""
        return math.prod(len(axis) for axis in (self.num_tc, self.num_vc, self.tc_width, self.tc_depth, self.glb_bytes))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Sizes of the axes of `kept.KeptRows`: GLB, width, depth, tensor cores."""
        return len(self.glb_bytes), len(self.tc_width), len(self.tc_depth), len(self.num_tc)


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from ``low`` to ``high``, both powers of two and included."""
    return tuple(1 << exponent for exponent in range(low.bit_length() - 1, high.bit_length()))
