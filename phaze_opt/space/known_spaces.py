"""The spaces that have a name, and those of files."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_um2_table, buffers_of, refusal_of
from phaze_opt.hardware.chip_template import AXES, AXIS, Axis, DesignPoint, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.silicon import Silicon
from phaze_opt.record.document import Document, read_toml
from phaze_opt.record.input_files import Bounds, is_number, shorten
from phaze_opt.record.suggestions import suggest
from phaze_opt.space.axes import MAX_AXIS_VALUES, Axes, half_steps, powers_of_two
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import GIBI, MEBI, UM2_PER_MM2, bytes_to_gib

DIE_BUDGET_MM2 = 826.0
"""Largest die of the die space: GA100, the largest at N7."""
AREA_BUDGET = Bounds("mm2", 0.01, 100_000.0)
"""Of space files, up to a wafer."""


def phaze_space(
    *,
    hbm_bytes: tuple[int, ...] | None = None,
    micro_batches: tuple[int, ...] | None = None,
    silicon: Silicon | None = None,
) -> SearchSpace:
    """The Phaze space (semantics 2): 75,712 candidate architectures of which 29,360 are kept by the tables at 22 nm.

    Args:
        hbm_bytes: HBM capacities to join, in any order; those of the axis where none are given.
        micro_batches: micro-batches to join, in any order; likewise.
        silicon: of dies with its axes, of up to 826 mm^2; by the tables unless given.
    """
    capacities = hbm_bytes or AXIS["hbm_bytes"].default_values
    batches = micro_batches or AXIS["micro_batch"].default_values
    axes = Axes(
        vc_width=(),
        **_memory(silicon, capacities),
        num_tc=powers_of_two(1, 4096),
        num_vc=powers_of_two(1, 4096),
        tc_width=powers_of_two(2, 256),
        tc_depth=powers_of_two(2, 256),
        glb_bytes=powers_of_two(2 * MEBI, 128 * MEBI),
        micro_batch=tuple(sorted(set(batches))),
    )
    return _within_budget("phaze", axes, silicon)


def _memory(silicon: Silicon | None, capacities: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Axes of capacities: as they are, or of dies as the stacks that have them.

    Raises:
        InputError: a capacity is no whole number of stacks.
    """
    wanted = tuple(sorted(set(capacities)))
    if silicon is None:
        return {"hbm_bytes": wanted}
    stack = silicon.stack.capacity_bytes
    for each in wanted:
        if each % stack:
            message = (
                f"{bytes_to_gib(each):g} GB is no whole number of stacks of {silicon.hbm_generation}, "
                f"which have {bytes_to_gib(stack):g} GB"
            )
            raise InputError(message, key="hbm_gb")
    return {"hbm_bytes": (), "hbm_stacks": tuple(each // stack for each in wanted)}


def _within_budget(
    name: str, axes: Axes, silicon: Silicon | None, *, budget_mm2: float | None = None, fraction: float | None = None
) -> SearchSpace:
    """A space with the budget and the band of its silicon where none are given."""
    if silicon is None:
        budget_um2, usual = phaze_area_budget_um2(), load_constants().value("space.min_area_fraction")
    else:
        budget_um2, usual = DIE_BUDGET_MM2 * UM2_PER_MM2, 0.0
    return SearchSpace(
        name,
        axes,
        area_budget_um2=budget_um2 if budget_mm2 is None else budget_mm2 * UM2_PER_MM2,
        min_area_fraction=usual if fraction is None else fraction,
        silicon=silicon,
    )


def die_space(
    silicon: Silicon, *, hbm_bytes: tuple[int, ...] | None = None, micro_batches: tuple[int, ...] | None = None
) -> SearchSpace:
    """Dies of up to 826 mm^2 that could be built.

    Cores go in half steps, so that a die can be filled; the rate of the buffer and the stacks of HBM are parameters.

    Args:
        silicon: what they are built of.
        hbm_bytes: capacities, in any order, in place of those that 1 to 6 stacks have.
        micro_batches: as of `phaze_space`.
    """
    axes = Axes(
        vc_width=(),
        num_tc=half_steps(1, 512),
        num_vc=half_steps(1, 512),
        tc_width=powers_of_two(32, 512),
        tc_depth=powers_of_two(32, 512),
        glb_bytes=tuple(size * MEBI for size in half_steps(4, 192)),
        micro_batch=tuple(sorted(set(micro_batches or AXIS["micro_batch"].default_values))),
        glb_bytes_per_cycle=tuple(range(1024, 16385, 1024)),
        **(_memory(silicon, hbm_bytes) if hbm_bytes else {"hbm_bytes": (), "hbm_stacks": tuple(range(1, 7))}),
    )
    return SearchSpace(
        "die", axes, area_budget_um2=DIE_BUDGET_MM2 * UM2_PER_MM2, min_area_fraction=0.0, silicon=silicon
    )


def phaze_area_budget_um2() -> float:
    """A_max of the Phaze space: the area of its TPUv4-like point, 278,826,676.31216 um^2."""
    reference = DesignPoint(
        num_tc=8, num_vc=2, tc_width=128, tc_depth=128, vc_width=128, glb_bytes=128 * MEBI, hbm_bytes=32 * GIBI,
        micro_batch=1,
    )  # fmt: skip
    return float(area_um2_table(chips_of(PointColumns.of([reference]), load_constants()))[0])


def load_space(
    path: str | Path,
    *,
    hbm_bytes: tuple[int, ...] | None = None,
    micro_batches: tuple[int, ...] | None = None,
    silicon: Silicon | None = None,
) -> SearchSpace:
    """A space from a TOML file; see `read_space_file` for its form.

    Args:
        path: the file.
        hbm_bytes: replaces the file's HBM capacities (``--hbm``).
        micro_batches: replaces the file's micro-batches (``--micro-batch``).
        silicon: of dies; by the tables at 22 nm unless given.

    Raises:
        InputError: the file is faulty, or no architecture of it is kept.
    """
    described = read_space_file(Path(path))
    stated = dict(described.axes)
    if hbm_bytes or silicon is None or not stated["hbm_stacks"]:
        stated |= _memory(silicon, hbm_bytes or stated["hbm_bytes"] or AXIS["hbm_bytes"].default_values)
    stated["micro_batch"] = micro_batches or stated["micro_batch"] or AXIS["micro_batch"].default_values
    axes = Axes(**{name: tuple(sorted(set(given))) for name, given in stated.items()})
    if silicon is None:
        _check_covered(axes, source=str(path))
    budget_mm2, fraction = described.area_budget_mm2, described.min_area_fraction
    try:
        space = _within_budget(described.name, axes, silicon, budget_mm2=budget_mm2, fraction=fraction)
        num_kept = space.num_architectures
    except InputError as error:
        rule = str(error).removeprefix(f"'{error.key}': ")
        raise InputError(rule, source=str(path), key=error.key) from None
    if num_kept == 0:
        message = f"none of its {space.num_candidates} architectures has an area in {space.describe_bounds()}"
        if silicon is not None:
            lower = "lower min_area_fraction, " if described.min_area_fraction else ""
            message += f"; a die is all of a chip: {lower}raise area_budget_mm2, or give --silicon phaze for the tables"
            message += " at 22 nm"
        raise InputError(message, source=str(path))
    return space


def _check_covered(axes: Axes, *, source: str) -> None:
    """Refuse axes that reach beyond what areas and energies are known for."""
    constants = load_constants()
    last = {name: np.array([len(getattr(axes, name)) - 1]) for name in axes.stated}
    for buffer in buffers_of(chips_of(PointColumns(**axes.take(last)), constants).row(0), constants):
        if not buffer.is_covered:
            raise InputError(refusal_of(buffer), source=source, key=buffer.key)


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
        area_budget_mm2=_read_number(document, "area_budget_mm2", AREA_BUDGET),
        min_area_fraction=_read_number(document, "min_area_fraction", Bounds("", 0.0, 1.0)),
        axes={axis.name: _read_axis(document, axes, axis) for axis in AXES},
    )


def _check_keys(document: Document, table: Mapping[str, Any], *, known: tuple[str, ...], path: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise _fault(document, (*path, key), f"is unknown; {suggest(key, known)}")


def _read_number(document: Document, key: str, bounds: Bounds) -> float | None:
    value = document.values.get(key)
    if value is None:
        return None
    if rule := bounds.fault(value):
        raise _fault(document, (key,), rule)
    return float(value)


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
        if rule := axis.fault(value):
            raise _fault(document, path, rule)
    found = {axis.parsed(value) for value in values}
    if len(found) < len(values):
        raise _fault(document, path, "lists a value twice")
    return tuple(sorted(found))


def _is_required(axis: Axis) -> bool:
    return not axis.is_optional and not axis.default_values


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
