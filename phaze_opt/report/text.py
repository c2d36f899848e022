"""Figures as people read them: units, three significant digits, shares."""

from __future__ import annotations

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.units import bytes_to_gib, bytes_to_mib

TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"))
THOUSAND = 1000


def format_number(value: float) -> str:
    """Three significant digits; thousands are grouped and never in exponent form."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 or value == 0 else f"{value:.3g}"


def format_scaled(value: float, unit: str) -> str:
    """With a decimal prefix from a million on: ``35.5 Mtokens/s``."""
    for scale, prefix in SCALES:
        if abs(value) >= scale:
            return f"{format_number(value / scale)} {prefix}{unit}"
    return f"{format_number(value)} {unit}"


def format_time(seconds: float) -> str:
    """In s, ms, us or ns."""
    if seconds == 0:
        return "0 s"
    for scale, unit in TIME_UNITS:
        if abs(seconds) >= scale:
            return f"{format_number(seconds / scale)} {unit}"
    return f"{seconds:.3g} s"


def format_share(share: float) -> str:
    """A share as a percentage: one decimal, ``< 0.1 %`` for what would read as zero; its space does not break."""
    if 0 < share < 0.0005:
        return "<\N{NO-BREAK SPACE}0.1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def format_percentage(share: float) -> str:
    """A gap or a regret: two digits, three from ten per cent: ``0.53 %``, ``26.5 %``."""
    return f"{100.0 * share:.2g} %" if abs(share) < 0.1 else f"{100.0 * share:.3g} %"


def format_ratio(ratio: float) -> str:
    """A factor: ``2.51x``; ``-`` where there is nothing to compare with."""
    return f"{ratio:.2f}x" if ratio > 0 else "-"


def format_mib(num_bytes: float) -> str:
    """A buffer in binary megabytes."""
    return f"{bytes_to_mib(num_bytes):g} MB"


def format_gib(num_bytes: float) -> str:
    """A memory in binary gigabytes."""
    return f"{bytes_to_gib(num_bytes):.3g} GB"


def describe_cores(chip: Accelerator) -> str:
    """Tensor and vector cores: ``16 tensor cores 128x128, 64 vector cores of 128``."""
    tensor = f"{chip.num_tc} tensor core{'s' if chip.num_tc > 1 else ''} {chip.tc_width}x{chip.tc_depth}"
    vector = f"{chip.num_vc} vector core{'s' if chip.num_vc > 1 else ''} of {chip.vc_width}"
    return f"{tensor}, {vector}"


def describe_memories(chip: Accelerator) -> str:
    """Buffer, memory and its bandwidth."""
    bandwidth = chip.hbm_bandwidth_bytes_per_s / 1e9
    return f"GLB {format_mib(chip.glb_bytes)}, HBM {format_gib(chip.hbm_bytes)} at {bandwidth:,.0f} GB/s"
