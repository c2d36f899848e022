"""Designed chips: what the parameters of a design (`chip_template`) mean, as one `Accelerator` or a table of them.

Real machines as accelerators: tensor cores as arrays, ordinary cores as lanes, the last cache as global buffer.
"""

import math
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator, AcceleratorTable
from phaze_opt.hardware.area import l2_bytes_of
from phaze_opt.hardware.chip_template import AXIS, DesignPoint, PointColumns
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle
from phaze_opt.record.arrays import Floats, Ints

DTYPE_BYTES = 2
"""Bytes of an element of every designed chip (16-bit arithmetic)."""


BANK_RULE = "die.bank.bytes_per_byte_per_cycle"
"""Constant of dies (`silicon.silicon`): bytes of a buffer for each byte a cycle that it delivers."""
GENERATION = "hbm_generation"
"""Option of dies: whose stacks of HBM they have."""


class HbmForm(StrEnum):
    """STACKED: bandwidth by the number of stacks the capacity needs; FIXED: one bandwidth for every capacity."""

    STACKED = "stacked"
    FIXED = "fixed"


def chips_of(points: PointColumns, constants: Constants, *, hbm_form: HbmForm | None = None) -> AcceleratorTable:
    """The chips that points mean: what every parameter of `chip_template.Design` is on a chip.

    Args:
        points: columns of one shape, or of shapes that broadcast.
        constants: clock, GLB and HBM bandwidth, L2 sizing; of what a point does not state.
        hbm_form: how HBM bandwidth follows from capacity; the estimator option ``hbm_form`` by default.
    """
    shape = np.shape(points.num_tc)
    clock_hz = np.where(points.clock_hz > 0, points.clock_hz, constants.value("design.clock_hz"))
    usual_l2_bytes = l2_bytes_of(points.tc_width * points.tc_depth, constants=constants)
    return AcceleratorTable(
        num_tc=points.num_tc,
        num_vc=points.num_vc,
        tc_width=points.tc_width,
        tc_depth=points.tc_depth,
        vc_width=points.vc_width,
        glb_bytes=points.glb_bytes,
        glb_bandwidth_bytes_per_s=_glb_bytes_per_cycle(points, constants) * clock_hz,
        l2_bytes=np.where(points.l2_bytes > 0, points.l2_bytes, usual_l2_bytes),
        hbm_bytes=points.hbm_bytes,
        hbm_bandwidth_bytes_per_s=_hbm_bytes_per_s(points, constants, hbm_form),
        clock_hz=clock_hz,
        dtype_bytes=np.full(shape, DTYPE_BYTES, dtype=np.int64),
        hbm_stacks=points.hbm_stacks,
        vc_l2_bytes=points.vc_l2_bytes,
        link_bytes_per_s=points.link_bytes_per_s.astype(np.float64),
        pipelining=points.pipelining,
        sparse_array=points.sparse_array,
        tiling=points.tiling,
        loop_order=points.loop_order,
        core_split=points.core_split,
        array_shape=points.array_shape,
        chiplets=points.chiplets,
    )


def _glb_bytes_per_cycle(points: PointColumns, constants: Constants) -> Floats:
    """What a design states, else the constants' rate; on a die at most what banks of the buffer allow."""
    usual = np.full(np.shape(points.glb_bytes), constants.value("glb.bytes_per_cycle"))
    if BANK_RULE in constants.entries:
        usual = np.minimum(usual, np.floor(points.glb_bytes / constants.value(BANK_RULE)))
    stated = points.glb_bytes_per_cycle
    return np.where(stated > 0, stated, usual)


def _hbm_bytes_per_s(points: PointColumns, constants: Constants, hbm_form: HbmForm | None) -> Floats:
    """By the stacks that a design states, else as its capacity has it."""
    by_capacity = hbm_bandwidth_table(points.hbm_bytes, constants=constants, hbm_form=hbm_form)
    by_stacks = points.hbm_stacks * constants.value("hbm.stack_bandwidth_bytes_per_s")
    return np.where(points.hbm_stacks > 0, by_stacks, by_capacity)


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
    clock = AXIS["clock_hz"]
    if point.clock_hz and (rule := clock.bounds.fault(clock.amount(point.clock_hz))):
        raise InputError(rule, key=clock.key)
    designed = chips_of(PointColumns.of([point]), constants, hbm_form=hbm_form).row(0, name=name)
    if GENERATION in constants.options:
        stacks = designed.hbm_bandwidth_bytes_per_s / constants.value("hbm.stack_bandwidth_bytes_per_s")
        generation = constants.option(GENERATION)
        designed = replace(designed, hbm_stacks=round(stacks), hbm_generation=generation)
    stated: dict[str, Any] = {
        "clock_hz": None if clock_hz is None else float(clock_hz),
        "hbm_bandwidth_bytes_per_s": hbm_bandwidth_bytes_per_s,
        "l2_bytes": l2_bytes,
        "dtype_bytes": dtype_bytes,
    }
    if clock_hz is not None or glb_bytes_per_cycle is not None:
        per_cycle = glb_bytes_per_cycle
        if per_cycle is None:
            per_cycle = float(_glb_bytes_per_cycle(PointColumns.of([point]), constants)[0])
        stated["glb_bandwidth_bytes_per_s"] = per_cycle * float(designed.clock_hz if clock_hz is None else clock_hz)
    return replace(designed, **{key: value for key, value in stated.items() if value is not None})


def hbm_bandwidth_bytes_per_s(hbm_bytes: int, *, constants: Constants, hbm_form: HbmForm | None = None) -> float:
    """HBM bandwidth of a chip with this capacity; see `hbm_bandwidth_table`."""
    if not (math.isfinite(hbm_bytes) and hbm_bytes > 0):
        message = f"hbm_bytes = {hbm_bytes} must be positive and finite"
        raise InputError(message, key="hbm_bytes")
    return float(hbm_bandwidth_table(np.array([hbm_bytes]), constants=constants, hbm_form=hbm_form)[0])


def hbm_bandwidth_table(hbm_bytes: Ints, *, constants: Constants, hbm_form: HbmForm | None = None) -> Floats:
    """HBM bandwidth in bytes/s by capacity, same shape.

    STACKED rounds the number of stacks up: a capacity that is no multiple of a stack's is a chip with a last stack
    of smaller dies, which has the full interface.
    """
    form = HbmForm(constants.option("hbm_form")) if hbm_form is None else hbm_form
    if form is HbmForm.FIXED:
        return np.full(np.shape(hbm_bytes), constants.value("hbm.fixed_bandwidth_bytes_per_s"))
    stacks = np.ceil(np.asarray(hbm_bytes) / constants.value("hbm.stack_bytes"))
    return stacks * constants.value("hbm.stack_bandwidth_bytes_per_s")


CACHE_BYTES_PER_CYCLE = 64.0
"""Bytes a multiprocessor takes from its chip's cache in a cycle, where a cache's rate is not published (assumed)."""


def described_chip(device: Device, constants: Constants) -> Accelerator:
    """The chip of a machine to show beside designs; nothing is priced by it.

    A machine without a layout shows what its peaks come to: one array a multiprocessor, of as many multiply-accumulates
    a cycle as its 16-bit peak says, and lanes by its fp32 rate (one where that is not stated).
    """
    if device.layout is not None:
        return accelerator_of(device, constants)
    count = device.num_multiprocessors
    cycles = 2.0 * device.clock_hz * count
    rate = device.peak_flops_per_s.get(ComputePath.BF16, max(device.peak_flops_per_s.values()))
    is_systolic = device.array_width > 0 and device.array_depth > 0
    layout = ChipLayout(
        num_tc=count,
        tc_width=device.array_width if is_systolic else 1,
        tc_depth=device.array_depth if is_systolic else max(1, round(rate / cycles)),
        num_vc=count,
        vc_width=max(1, round(device.vector_flops_per_s / cycles)),
    )
    return accelerator_of(replace(device, layout=layout), constants)


def accelerator_of(device: Device, constants: Constants) -> Accelerator:
    """The chip of a machine as the estimator of designed chips sees it.

    Args:
        device: the machine, with its layout.
        constants: L2 of an array whose local memory is not published, cache rate of systolic machines likewise.

    Raises:
        InputError: the device has no layout.
    """
    layout = device.layout
    if layout is None:
        message = (
            f"{device.name} has no arrays and lanes to price it as a design; give num_tc, tc_width, tc_depth, num_vc "
            "and vc_width in its file, or price training plans (evaluate), which need none"
        )
        raise InputError(message, source="--arch")
    per_cycle: float | None = layout.glb_bytes_per_cycle or None
    if per_cycle is None and device.style is MatrixStyle.TILES:
        per_cycle = CACHE_BYTES_PER_CYCLE * device.num_multiprocessors
    return build_accelerator(
        DesignPoint(
            num_tc=layout.num_tc,
            num_vc=layout.num_vc,
            tc_width=layout.tc_width,
            tc_depth=layout.tc_depth,
            vc_width=layout.vc_width,
            glb_bytes=round(device.cache_bytes),
            hbm_bytes=round(device.hbm_bytes),
            micro_batch=1,
            hbm_stacks=layout.hbm_stacks,
        ),
        constants=constants,
        name=device.name,
        clock_hz=device.clock_hz,
        hbm_bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s,
        glb_bytes_per_cycle=per_cycle,
        l2_bytes=layout.local_bytes or None,
    )
