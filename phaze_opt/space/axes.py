"""The values each parameter of a design may take in a space."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXES, JOINED_AXES, SIZE_AXES, AxisRole, Design, bind_fields
from phaze_opt.record.arrays import Ints

MAX_AXIS_VALUES = 4096
"""Most values an axis may have; finer steps than this say nothing about a chip."""
ROW_AXES = (*SIZE_AXES, *(axis.name for axis in AXES if axis.role is AxisRole.COUNT))
"""Axes of a row of `kept_architectures.KeptRows`, the slowest first: all of the area but the number of vector cores."""
_FOLLOWING = {axis.name: axis.follows for axis in AXES if axis.follows}


@bind_fields(tuple[int, ...])
@dataclass(frozen=True, slots=True)
class Axes(Design[tuple[int, ...]]):
    """Increasing positive values of every axis; empty where designs take that of the axis."""

    def __post_init__(self) -> None:
        """Refuse empty axes, values below one and values out of order."""
        for axis in AXES:
            values = getattr(self, axis.name)
            if values is None:
                object.__setattr__(self, axis.name, ())
            if not values and (axis.is_optional or (axis.given_by and getattr(self, axis.given_by))):
                continue
            if not 1 <= len(values) <= MAX_AXIS_VALUES:
                message = f"axis {axis.name} has {len(values)} values; give 1 to {MAX_AXIS_VALUES}"
                raise InputError(message, key=axis.name)
            is_increasing = all(first < second for first, second in zip(values, values[1:], strict=False))
            if values[0] < 1 or not is_increasing:
                message = f"axis {axis.name} must hold positive values, each once and in increasing order"
                raise InputError(message, key=axis.name)

    @property
    def stated(self) -> tuple[str, ...]:
        """Names of the axes that have values of their own."""
        return tuple(axis.name for axis in AXES if getattr(self, axis.name))

    @property
    def num_candidates(self) -> int:
        """Architectures before any constraint: the product of the axes that enter the area."""
        return math.prod(self.shape) * len(self.num_vc)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of `ROW_AXES`."""
        return tuple(max(1, len(getattr(self, name))) for name in ROW_AXES)

    @property
    def joined_shape(self) -> tuple[int, ...]:
        """Sizes of the axes that every kept architecture is joined with."""
        return tuple(max(1, len(getattr(self, name))) for name in JOINED_AXES)

    def take(self, positions: Mapping[str, Ints]) -> dict[str, Ints]:
        """Values at positions on the axes, by name; what has no values of its own takes its default, or is left out.

        Args:
            positions: of every axis that has values; their shapes broadcast.
        """
        return self.complete(
            {name: np.array(getattr(self, name), dtype=np.int64)[positions[name]] for name in self.stated}
        )

    @staticmethod
    def complete(values: dict[str, Any]) -> dict[str, Any]:
        """Values by axis with those that are equal to another; what has a number for a default stays out."""
        return {name: values[other] for name, other in _FOLLOWING.items() if name not in values} | values

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """As JSON: axes without values of their own are left out, so that files of fewer axes stay as they are."""
        from pydantic_core import core_schema

        optional: dict[str, list[int]] = {axis.name: [] for axis in AXES if axis.is_optional or axis.given_by}
        return core_schema.no_info_before_validator_function(
            lambda given: optional | given if isinstance(given, dict) else given,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda axes: {name: list(getattr(axes, name)) for name in axes.stated}
            ),
        )


def powers_of_two(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from ``low`` to ``high``, both powers of two and included."""
    return tuple(1 << exponent for exponent in range(low.bit_length() - 1, high.bit_length()))


def half_steps(low: int, high: int) -> tuple[int, ...]:
    """Powers of two and their halves more (1, 2, 3, 4, 6, 8, 12 ...) from ``low`` to ``high``, both included."""
    powers = [1 << exponent for exponent in range(high.bit_length())]
    return tuple(sorted(step for power in powers for step in {power, power + power // 2} if low <= step <= high))
