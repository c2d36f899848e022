"""Measured times that no machine can have had, which mostly are times in another unit than the column's.

The limits are wide: they are to find a slip of a thousand, not a slow program. All of the package's measurements lie
within them (`tests/validation/test_plausibility.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.validation.ideal_time import (
    layer_seconds,
    ring_bytes,
    roofline_parts,
    training_seconds,
    whole_model_seconds,
)
from phaze_opt.validation.measured_time import MEASURED, measured_seconds
from phaze_opt.validation.row import Row

AHEAD_OF_PEAK = 2.0
"""A time this often below that of its multiplications at the peak, or of a ring at memory's rate, is not one."""
AHEAD_OF_MEMORY = 20.0
"""The same against memory's rate: caches are faster than memory, by less than this."""
LEAST_S = 1e-7
"""No launch is as short."""
MOST_IDEALS = 100.0
"""A time this often above what the FLOPs take at the peak, beside what is added for waiting, is not one."""
LAYER_S, LAUNCH_S, COLLECTIVE_S = 1e-2, 1e-2, 1.0
"""What is added for waiting: for each layer of each micro-batch, for an operator or a block, for a collective."""
SLOW_LINK_BYTES_PER_S = 1e8
"""Rate of the slowest network that is thought of."""
_UNITS: Mapping[str, float] = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9})
_NAMES = MappingProxyType({"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"})


def check_times(rows: Sequence[Row], kind: str) -> None:
    """Refuse the first row whose time is beyond all limits; rows of unknown machines are not judged.

    Raises:
        InputError: names file, line and column, and the unit in which the time would be plausible.
    """
    if kind not in MEASURED:
        return
    for row in rows:
        rule = _fault(row, kind)
        if rule:
            message = f"column '{MEASURED[kind][0]}': value '{row.text(MEASURED[kind][0])[:40]}' {rule}"
            raise InputError(message, source=row.source, line=row.line)


def time_limits_s(row: Row, kind: str) -> tuple[float, float]:
    """Shortest and longest time that a row may have, s.

    Raises:
        InputError: its machine or type is unknown.
    """
    device = row.device()
    least, most = _LIMITS[kind](row, device)
    return max(least, LEAST_S), most


def _fault(row: Row, kind: str) -> str:
    """What is wrong with a row's time; empty if nothing is, or nothing can be said."""
    try:
        least, most = time_limits_s(row, kind)
    except (InputError, ZeroDivisionError):
        return ""
    column, _ = MEASURED[kind]
    measured_s = measured_seconds(row, kind)
    if least <= measured_s <= most:
        return ""
    unit = column.rpartition("_")[2]
    is_short = measured_s < least
    limit = (least if is_short else most) / _UNITS[unit]
    than = f"shorter than {limit:.2g} {unit}, which" if is_short else f"longer than {limit:.2g} {unit}, which no"
    who = "nothing on this machine can beat" if is_short else "work of this size takes, however slow the program"
    return f"is {than} {who}; {_advice(measured_s / _UNITS[unit], unit, least, most)}"


def _advice(value: float, unit: str, least: float, most: float) -> str:
    """The unit of another size in which the value would be plausible, the nearest first."""
    own = _UNITS[unit]
    others = sorted((name for name in _UNITS if name != unit), key=lambda name: abs(math.log(_UNITS[name] / own)))
    for name in others:
        if least <= value * _UNITS[name] <= most:
            factor = _UNITS[name] / own
            remedy = f"multiply by {factor:,.0f}" if factor > 1 else f"divide by {1 / factor:,.0f}"
            return f"it looks like {_NAMES[name]}: give {_NAMES[unit]} ({remedy})"
    return f"check that it is in {_NAMES[unit]}, and the machine, the type and the sizes of the row"


def _operator_limits(row: Row, device: Device) -> tuple[float, float]:
    compute_s, memory_s = roofline_parts(row, device)
    least = max(compute_s / AHEAD_OF_PEAK, memory_s / AHEAD_OF_MEMORY)
    return least, MOST_IDEALS * max(compute_s, memory_s) + LAUNCH_S


def _collective_limits(row: Row, device: Device) -> tuple[float, float]:
    sent = ring_bytes(row)
    least = sent / (AHEAD_OF_PEAK * device.hbm_bandwidth_bytes_per_s)
    return least, sent / SLOW_LINK_BYTES_PER_S + COLLECTIVE_S


def _training_limits(row: Row, device: Device) -> tuple[float, float]:
    least = training_seconds(row, device, scores_share=0.0) / AHEAD_OF_PEAK
    group = row.number("tp", 1.0) * row.number("pp", 1.0) * row.number("cp", 1.0)
    sequences = max(1.0, row.number("global_batch") * group / row.number("n_devices"))
    layers = row.number("layers")
    waiting_s = layers * math.ceil(sequences / max(1.0, row.number("micro_batch", 1.0))) * LAYER_S
    hidden = row.number("hidden")
    per_layer = 4.0 * hidden + row.number("mlp_matrices", 2.0) * row.number("ffn", 4.0 * hidden)
    traffic_s = 0.0 if row.number("n_devices") == 1 else 4.0 * layers * hidden * per_layer / SLOW_LINK_BYTES_PER_S
    return least, MOST_IDEALS * training_seconds(row, device) + waiting_s + traffic_s


def _layer_limits(row: Row, device: Device) -> tuple[float, float]:
    least = layer_seconds(row, device, scores_share=0.0) / AHEAD_OF_PEAK
    return least, MOST_IDEALS * layer_seconds(row, device) + LAUNCH_S


def _model_limits(row: Row, device: Device) -> tuple[float, float]:
    least = whole_model_seconds(row, device, scores_share=0.0) / AHEAD_OF_PEAK
    return least, MOST_IDEALS * whole_model_seconds(row, device) + row.number("layers") * LAYER_S + LAUNCH_S


_LIMITS = MappingProxyType(
    {
        "operators": _operator_limits,
        "collectives": _collective_limits,
        "training": _training_limits,
        "layer": _layer_limits,
        "whole model": _model_limits,
    }
)
