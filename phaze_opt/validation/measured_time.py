"""The measured time of a row: which column holds it, in which unit."""

from __future__ import annotations

from types import MappingProxyType

from phaze_opt.units import MICRO, MILLI
from phaze_opt.validation.row import Row

MEASURED = MappingProxyType(
    {
        "operators": ("latency_us", MICRO),
        "collectives": ("latency_us", MICRO),
        "training": ("iter_time_s", 1.0),
        "layer": ("forward_ms", MILLI),
        "whole model": ("e2e_ms", MILLI),
    }
)
"""Column of the measured time by kind of file, and its unit in seconds."""


def measured_seconds(row: Row, kind: str) -> float:
    """Measured time of a row, s; forward and backward together for a layer."""
    column, unit = MEASURED[kind]
    total = row.number(column)
    if kind == "layer":
        total += row.number("backward_ms", 0.0)
    return total * unit
