"""Designed chips: from the parameters a search varies to a full `Accelerator` or a table of them."""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import l2_bytes_of
from phaze_opt.hardware.constants import Constants

DTYPE_BYTES = 2
"""Bytes of an element of every designed chip (16-bit arithmetic)."""


class HbmForm(StrEnum):
    """STACKED: bandwidth by the number of stacks the capacity needs; FIXED: one bandwidth for every capacity."""

    STACKED = "stacked"
    FIXED = "fixed"


def build_accelerator(
    num_tc: int,
    num_vc: int,
    *,
    tc_width: int,
    tc_depth: int,
    vc_width: int | None = None,
    glb_bytes: int,
    hbm_bytes: int,
    constants: Constants,
    hbm_form: HbmForm | None = None,
    name: str = "",
    clock_hz: float | None = None,
    hbm_bandwidth_bytes_per_s: float | None = None,
    glb_bytes_per_cycle: float | None = None,
    l2_bytes: int | None = None,
    dtype_bytes: int = DTYPE_BYTES,
) -> Accelerator:
    """A chip with everything that follows from the searched parameters filled in.

    Args:
        num_tc: tensor cores.
        num_vc: vector cores.
        tc_width: columns of a tensor core's array.
        tc_depth: rows of a tensor core's array.
        vc_width: lanes of a vector core; ``tc_width`` by default, as in every designed space.
        glb_bytes: global buffer.
        hbm_bytes: HBM capacity.
        constants: clock, GLB and HBM bandwidth, L2 sizing.
        hbm_form: how HBM bandwidth follows from capacity; the estimator option ``hbm_form`` by default.
        name: name to report.
        clock_hz: overrides ``design.clock_hz``.
        hbm_bandwidth_bytes_per_s: overrides what follows from the capacity.
        glb_bytes_per_cycle: overrides ``glb.bytes_per_cycle``.
        l2_bytes: L2 of one tensor core; overrides max(1024, 16 w d).
        dtype_bytes: bytes of an element.

    Raises:
        InputError: a size is not positive and finite.
    """
    clock = constants.value("design.clock_hz") if clock_hz is None else clock_hz
    per_cycle = constants.value("glb.bytes_per_cycle") if glb_bytes_per_cycle is None else glb_bytes_per_cycle
    bandwidth = hbm_bandwidth_bytes_per_s
    if bandwidth is None:
        capacity = np.array([hbm_bytes], dtype=np.int64)
        bandwidth = float(hbm_bandwidth_table(capacity, constants=constants, hbm_form=hbm_form)[0])
    if l2_bytes is None:
        l2_bytes = int(l2_bytes_of(np.array([tc_width * tc_depth], dtype=np.int64), constants=constants)[0])
    return Accelerator(
        num_tc=num_tc,
        num_vc=num_vc,
        tc_width=tc_width,
        tc_depth=tc_depth,
        vc_width=tc_width if vc_width is None else vc_width,
        glb_bytes=glb_bytes,
        glb_bandwidth_bytes_per_s=per_cycle * clock,
        l2_bytes=l2_bytes,
        hbm_bytes=hbm_bytes,
        hbm_bandwidth_bytes_per_s=bandwidth,
        clock_hz=clock,
        dtype_bytes=dtype_bytes,
        name=name,
    )


def build_accelerator_table(
    num_tc: NDArray[np.int64],
    num_vc: NDArray[np.int64],
    *,
    tc_width: NDArray[np.int64],
    tc_depth: NDArray[np.int64],
    glb_bytes: NDArray[np.int64],
    hbm_bytes: NDArray[np.int64],
    constants: Constants,
    hbm_form: HbmForm | None = None,
) -> AcceleratorTable:
    """Many designed chips at once, each argument of shape (num_accelerators,); row i equals `build_accelerator`."""
    count = len(num_tc)
    clock_hz = constants.value("design.clock_hz")
    return AcceleratorTable(
        num_tc=num_tc,
        num_vc=num_vc,
        tc_width=tc_width,
        tc_depth=tc_depth,
        vc_width=tc_width,
        glb_bytes=glb_bytes,
        glb_bandwidth_bytes_per_s=np.full(count, constants.value("glb.bytes_per_cycle") * clock_hz),
        l2_bytes=l2_bytes_of(tc_width * tc_depth, constants=constants),
        hbm_bytes=hbm_bytes,
        hbm_bandwidth_bytes_per_s=hbm_bandwidth_table(hbm_bytes, constants=constants, hbm_form=hbm_form),
        clock_hz=np.full(count, clock_hz),
        dtype_bytes=np.full(count, DTYPE_BYTES, dtype=np.int64),
    )


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
