"""The TOML form of a search space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, read_toml
from phaze_opt.record.input_files import is_number, shorten
from phaze_opt.record.spelling import suggest
from phaze_opt.space.axes import MAX_AXIS_VALUES
from phaze_opt.units import gib_to_bytes, mib_to_bytes


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """What a space file says; None or empty where it leaves a choice to the defaults."""

    name: str
    area_budget_mm2: float | None
    min_area_fraction: float | None
    num_tc: tuple[int, ...]
    num_vc: tuple[int, ...]
    tc_width: tuple[int, ...]
    tc_depth: tuple[int, ...]
    glb_bytes: tuple[int, ...]
    hbm_bytes: tuple[int, ...]
    micro_batch: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Axis:
    """How one axis is written: its largest value, whether it must be whole, and its unit."""

    most: float
    is_required: bool = True
    to_base_unit: Callable[[float], int] | None = None


# The ceilings keep every area and every count inside 64-bit integers.
_AXES: Mapping[str, _Axis] = MappingProxyType(
    {
        "num_tc": _Axis(1 << 20),
        "num_vc": _Axis(1 << 20),
        "tc_width": _Axis(1 << 16),
        "tc_depth": _Axis(1 << 16),
        "glb_mb": _Axis(1 << 20, to_base_unit=mib_to_bytes),
        "hbm_gb": _Axis(1 << 20, is_required=False, to_base_unit=gib_to_bytes),
        "micro_batch": _Axis(1 << 20, is_required=False),
    }
)
_TOP_KEYS = ("name", "area_budget_mm2", "min_area_fraction", "axes")
_RANGE_KEYS = ("low", "high", "step", "factor")


def read_space_file(path: Path) -> SpaceFile:
    """Read a space.

    Top level: ``name``, ``area_budget_mm2`` (the Phaze budget by default), ``min_area_fraction`` (0.3 by default) and a
    table ``axes`` with num_tc, num_vc, tc_width, tc_depth, glb_mb (MiB) and optionally hbm_gb (GiB) and micro_batch.
    An axis is a list of values, ``{low, high, step}`` or ``{low, high, factor}``; the high end is included if met.

    Raises:
        InputError: the file is faulty; the message names file, line and key.
    """
    document = read_toml(path, kind="a space file (TOML)")
    _check_keys(document, document.values, known=_TOP_KEYS, path=())
    axes = document.values.get("axes")
    if not isinstance(axes, dict):
        raise _fault(document, ("axes",), "must be a table with num_tc, num_vc, tc_width, tc_depth and glb_mb")
    _check_keys(document, axes, known=tuple(_AXES), path=("axes",))
    values = {name: _read_axis(document, axes, name) for name in _AXES}
    return SpaceFile(
        name=str(document.values.get("name", path.stem)),
        area_budget_mm2=_read_number(document, "area_budget_mm2", most=1e6),
        min_area_fraction=_read_number(document, "min_area_fraction", most=1.0, may_be_zero=True),
        num_tc=values["num_tc"],
        num_vc=values["num_vc"],
        tc_width=values["tc_width"],
        tc_depth=values["tc_depth"],
        glb_bytes=values["glb_mb"],
        hbm_bytes=values["hbm_gb"],
        micro_batch=values["micro_batch"],
    )


def _check_keys(document: Document, table: Mapping[str, Any], *, known: tuple[str, ...], path: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise _fault(document, (*path, key), f"is unknown; {suggest(key, known)}")


def _read_number(document: Document, key: str, *, most: float, may_be_zero: bool = False) -> float | None:
    value = document.values.get(key)
    if value is None:
        return None
    if is_number(value) and value <= most and (value > 0 or (may_be_zero and value == 0)):
        return float(value)
    raise _fault(document, (key,), f"value {shorten(value)} must be a positive number up to {most:g}")


def _read_axis(document: Document, axes: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Increasing values of an axis in base units; empty if it is optional and absent."""
    axis, path = _AXES[name], ("axes", name)
    if name not in axes:
        if axis.is_required:
            raise _fault(document, path, "is missing; give a list, {low, high, step} or {low, high, factor}")
        return ()
    written = axes[name]
    if isinstance(written, dict):
        _check_keys(document, written, known=_RANGE_KEYS, path=path)
        values = _expand_range(document, written, path)
    elif isinstance(written, list) and written:
        values = written
    else:
        raise _fault(
            document, path, f"value {shorten(written)} must be a list, {{low, high, step}} or {{low, high, factor}}"
        )
    if len(values) > MAX_AXIS_VALUES:
        raise _fault(document, path, f"has {len(values)} values; at most {MAX_AXIS_VALUES} are allowed")
    for value in values:
        if not _is_allowed(value, axis):
            kind = "positive integer" if axis.to_base_unit is None else "positive number"
            raise _fault(document, path, f"value {shorten(value)} must be a {kind} up to {axis.most:.10g}")
    convert = axis.to_base_unit or int
    found = {convert(value) for value in values}
    if len(found) < len(values):
        raise _fault(document, path, "lists a value twice")
    return tuple(sorted(found))


def _is_allowed(value: object, axis: _Axis) -> bool:
    if axis.to_base_unit is None and not isinstance(value, int):
        return False
    # Below a millionth a capacity rounds to no byte at all.
    return is_number(value) and 1e-5 <= value <= axis.most


def _expand_range(document: Document, written: Mapping[str, Any], path: tuple[str, ...]) -> list[int | float]:
    """Values of ``{low, high, step}`` or ``{low, high, factor}``."""
    if not ({"low", "high"} <= set(written) and len(written) == 3):
        raise _fault(document, path, "needs low, high and either step or factor")
    for key, value in written.items():
        if not (is_number(value) and value > 0):
            raise _fault(document, (*path, key), f"value {shorten(value)} must be a finite positive number")
    low, high = written["low"], written["high"]
    is_stepped = "step" in written
    stride = written["step"] if is_stepped else written["factor"]
    if low > high:
        raise _fault(document, path, f"low {low} must not exceed high {high}")
    if not is_stepped and stride < 1.001:
        raise _fault(document, path, f"factor {stride} must be at least 1.001")
    span = (high - low) / stride if is_stepped else math.log(high / low) / math.log(stride)
    if span >= MAX_AXIS_VALUES:
        raise _fault(document, path, f"has more than {MAX_AXIS_VALUES} values; stride over it more coarsely")
    steps = range(math.floor(span + 1e-9) + 1)
    return [low + stride * step if is_stepped else low * stride**step for step in steps]


def _fault(document: Document, path: tuple[str, ...], rule: str) -> InputError:
    return document.fault(rule, *path)
