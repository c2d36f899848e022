"""The TOML form of a search space."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import AXES, Axis
from phaze_opt.record.document import Document, read_toml
from phaze_opt.record.input_files import is_number, shorten
from phaze_opt.record.suggestions import suggest
from phaze_opt.space.axes import MAX_AXIS_VALUES


@dataclass(frozen=True, slots=True)
class SpaceFile:
    """What a space file says; None or empty where it leaves a choice to the defaults."""

    name: str
    area_budget_mm2: float | None
    min_area_fraction: float | None
    axes: Mapping[str, tuple[int, ...]]


_TOP_KEYS = ("name", "area_budget_mm2", "min_area_fraction", "axes")
_RANGE_KEYS = ("low", "high", "step", "factor")


def read_space_file(path: Path) -> SpaceFile:
    """Read a space.

    Top level: ``name``, ``area_budget_mm2`` (the Phaze budget by default), ``min_area_fraction`` (0.3 by default) and a
    table ``axes`` with the keys of `hardware.chip_template.AXES`; those with a default or with values that are searched
    unless others are given may be left out.
    An axis is a list of values, ``{low, high, step}`` or ``{low, high, factor}``; the high end is included if met.

    Raises:
        InputError: the file is faulty; the message names file, line and key.
    """
    document = read_toml(path, kind="a space file (TOML)")
    _check_keys(document, document.values, known=_TOP_KEYS, path=())
    axes = document.values.get("axes")
    if not isinstance(axes, dict):
        *most, last = (axis.key for axis in AXES if _is_required(axis))
        raise _fault(document, ("axes",), f"must be a table with {', '.join(most)} and {last}")
    _check_keys(document, axes, known=tuple(axis.key for axis in AXES), path=("axes",))
    return SpaceFile(
        name=str(document.values.get("name", path.stem)),
        area_budget_mm2=_read_number(document, "area_budget_mm2", most=1e6),
        min_area_fraction=_read_number(document, "min_area_fraction", most=1.0, may_be_zero=True),
        axes={axis.name: _read_axis(document, axes, axis) for axis in AXES},
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


def _read_axis(document: Document, axes: Mapping[str, Any], axis: Axis) -> tuple[int, ...]:
    """Increasing values of an axis in base units; empty if it is optional and absent."""
    path = ("axes", axis.key)
    if axis.key not in axes:
        if _is_required(axis):
            raise _fault(document, path, "is missing; give a list, {low, high, step} or {low, high, factor}")
        return ()
    written = axes[axis.key]
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
            raise _fault(document, path, f"value {shorten(value)} must be {axis.range_words()}")
    found = {axis.parsed(value) for value in values}
    if len(found) < len(values):
        raise _fault(document, path, "lists a value twice")
    return tuple(sorted(found))


def _is_required(axis: Axis) -> bool:
    return not axis.is_optional and not axis.default_values


def _is_allowed(value: object, axis: Axis) -> bool:
    if axis.choices:
        return value in axis.choices
    if axis.unit is None and not isinstance(value, int):
        return False
    # Below a millionth a capacity rounds to no byte at all.
    return is_number(value) and max(1e-5, axis.least) <= value <= axis.most


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
