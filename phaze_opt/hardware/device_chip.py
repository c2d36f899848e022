"""Real machines as accelerators: tensor cores as arrays, ordinary cores as lanes, the last cache as global buffer."""

from dataclasses import replace

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.device import ChipLayout, ComputePath, Device, MatrixStyle

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
