"""Design points, and what common ones are chosen by, in words."""

from __future__ import annotations

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.report.text import format_mib
from phaze_opt.units import bytes_to_gib


def describe_chip(point: DesignPoint) -> str:
    """The chip of a point: ``16 TC 128x128, 64 VC 128, GLB 32 MB, HBM 80 GB``."""
    return (
        f"{point.num_tc} TC {point.tc_width}x{point.tc_depth}, {point.num_vc} VC {point.vc_width}, "
        f"GLB {format_mib(point.glb_bytes)}, HBM {bytes_to_gib(point.hbm_bytes):g} GB"
    )


def describe_point(point: DesignPoint) -> str:
    """The chip and the micro-batch."""
    return f"{describe_chip(point)}, micro-batch {point.micro_batch}"


def mean_name(mean: str) -> str:
    """What designs are chosen by, in words: ``arithmetic mean``, ``worst case``."""
    return "worst case" if mean == CommonMean.WORST.value else f"{mean} mean"
