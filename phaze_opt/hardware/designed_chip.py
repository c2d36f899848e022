"""Designed chips: what the parameters of a design (`chip_template`) mean, as one `Accelerator` or a table of them."""

import math
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import l2_bytes_of
from phaze_opt.hardware.chip_template import DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants

DTYPE_BYTES = 2
"""Bytes of an element of every designed chip (16-bit arithmetic)."""


class HbmForm(StrEnum):
    """STACKED: bandwidth by the number of stacks the capacity needs; FIXED: one bandwidth for every capacity."""

    STACKED = "stacked"
    FIXED = "fixed"


def chips_of(points: PointColumns, constants: Constants, *, hbm_form: HbmForm | None = None) -> AcceleratorTable:
    """The chips that points mean: what every parameter of `chip_template.Design` is on a chip.

    Args:
        points: columns of one shape, or of shapes that broadcast.
        constants: clock, GLB and HBM bandwidth, L2 sizing.
        hbm_form: how HBM bandwidth follows from capacity; the estimator option ``hbm_form`` by default.
    """
    shape = np.shape(points.num_tc)
    clock_hz = np.full(shape, constants.value("design.clock_hz"))
    return AcceleratorTable(
        num_tc=points.num_tc,
        num_vc=points.num_vc,
        tc_width=points.tc_width,
        tc_depth=points.tc_depth,
        vc_width=points.vc_width,
        glb_bytes=points.glb_bytes,
        glb_bandwidth_bytes_per_s=constants.value("glb.bytes_per_cycle") * clock_hz,
        l2_bytes=l2_bytes_of(points.tc_width * points.tc_depth, constants=constants),
        hbm_bytes=points.hbm_bytes,
        hbm_bandwidth_bytes_per_s=hbm_bandwidth_table(points.hbm_bytes, constants=constants, hbm_form=hbm_form),
        clock_hz=clock_hz,
        dtype_bytes=np.full(shape, DTYPE_BYTES, dtype=np.int64),
    )


def build_accelerator(
    point: DesignPoint,
    *,
    constants: Constants,
    hbm_form: HbmForm | None = None,
    name: str = "",
    clock_hz: float | None = None,
    hbm_bandwidth_bytes_per_s: float | None = None,
    glb_bytes_per_cycle: float | None = None,
    l2_bytes: int | None = None,
    dtype_bytes: int | None = None,
) -> Accelerator:
    """The chip that a point means, or one like it that exists.

    Args:
        point: the design.
        constants: clock, GLB and HBM bandwidth, L2 sizing.
        hbm_form: how HBM bandwidth follows from capacity; the estimator option ``hbm_form`` by default.
        name: name to report.
        clock_hz: overrides what the design means, as all below do.
        hbm_bandwidth_bytes_per_s: overrides what follows from the capacity.
        glb_bytes_per_cycle: overrides ``glb.bytes_per_cycle``.
        l2_bytes: L2 of one tensor core; overrides max(1024, 16 w d).
        dtype_bytes: bytes of an element.

    Raises:
        InputError: a size is not positive and finite.
    """
    designed = chips_of(PointColumns.of([point]), constants, hbm_form=hbm_form).row(0, name=name)
    stated: dict[str, Any] = {
        "clock_hz": clock_hz,
        "hbm_bandwidth_bytes_per_s": hbm_bandwidth_bytes_per_s,
        "l2_bytes": l2_bytes,
        "dtype_bytes": dtype_bytes,
    }
    if clock_hz is not None or glb_bytes_per_cycle is not None:
        per_cycle = constants.value("glb.bytes_per_cycle") if glb_bytes_per_cycle is None else glb_bytes_per_cycle
        stated["glb_bandwidth_bytes_per_s"] = per_cycle * (designed.clock_hz if clock_hz is None else clock_hz)
    return replace(designed, **{key: value for key, value in stated.items() if value is not None})


def hbm_bandwidth_bytes_per_s(hbm_bytes: int, *, constants: Constants, hbm_form: HbmForm | None = None) -> float:
    """HBM bandwidth of a chip with this capacity; see `hbm_bandwidth_table`."""
    if not (math.isfinite(hbm_bytes) and hbm_bytes > 0):
        message = f"hbm_bytes = {hbm_bytes} must be positive and finite"
        raise InputError(message, key="hbm_bytes")
    return float(hbm_bandwidth_table(np.array([hbm_bytes]), constants=constants, hbm_form=hbm_form)[0])


def hbm_bandwidth_table(
    hbm_bytes: NDArray[np.int64], *, constants: Constants, hbm_form: HbmForm | None = None
) -> NDArray[np.float64]:
    """HBM bandwidth in bytes/s by capacity, same shape.

    STACKED rounds the number of stacks up: a capacity that is no multiple of a stack's is a chip with a last stack
    of smaller dies, which has the full interface.
    """
    form = HbmForm(constants.option("hbm_form")) if hbm_form is None else hbm_form
    if form is HbmForm.FIXED:
        return np.full(np.shape(hbm_bytes), constants.value("hbm.fixed_bandwidth_bytes_per_s"))
    stacks = np.ceil(np.asarray(hbm_bytes) / constants.value("hbm.stack_bytes"))
    return stacks * constants.value("hbm.stack_bandwidth_bytes_per_s")
