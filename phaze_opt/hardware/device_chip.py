"""Real machines as accelerators: tensor cores as arrays, ordinary cores as lanes, the last cache as global buffer."""

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import build_accelerator
from phaze_opt.hardware.device import Device, MatrixStyle

CACHE_BYTES_PER_CYCLE = 64.0
"""Bytes a multiprocessor takes from its chip's cache in a cycle, where a cache's rate is not published (assumed)."""


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
            "and vc_width in its file, or price training plans (evaluate --software), which need none"
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
        ),
        constants=constants,
        name=device.name,
        clock_hz=device.clock_hz,
        hbm_bandwidth_bytes_per_s=device.hbm_bandwidth_bytes_per_s,
        glb_bytes_per_cycle=per_cycle,
        l2_bytes=layout.local_bytes or None,
    )
