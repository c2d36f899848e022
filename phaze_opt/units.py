"""Units: SI inside the package; conversions only where figures are parsed or printed."""

import math
from collections.abc import Mapping
from types import MappingProxyType

GIBI = 1 << 30
MEBI = 1 << 20
KIBI = 1 << 10
GIGA = 1e9
MEGA = 1e6
TERA = 1e12
MILLI = 1e-3
MICRO = 1e-6
PICO = 1e-12
UM2_PER_MM2 = 1e6
BITS_PER_BYTE = 8
SECONDS = MappingProxyType({"s": 1.0, "ms": MILLI, "us": MICRO, "ns": 1e-9})
SCALES: tuple[Mapping[str, float], ...] = (
    SECONDS,
    MappingProxyType({"PFLOP/s": 1e15, "TFLOP/s": TERA, "GFLOP/s": GIGA, "MFLOP/s": MEGA}),
    MappingProxyType({"TB/s": TERA, "GB/s": GIGA, "MB/s": MEGA}),
    MappingProxyType({"TB": GIBI * KIBI, "GB": GIBI, "MB": MEBI, "KB": KIBI, "bytes": 1.0}),
    MappingProxyType({"GHz": GIGA, "MHz": MEGA, "Hz": 1.0}),
    MappingProxyType({"kW": 1e3, "W": 1.0, "mW": MILLI}),
    MappingProxyType({"cm2": 100.0, "mm2": 1.0, "um2": 1.0 / UM2_PER_MM2}),
)
"""Units of one quantity each, and what they are in one that is common to all of them."""


def unit_meant(value: float, unit: str, least: float, most: float) -> tuple[str, float] | None:
    """The nearest other unit in which a value would lie within limits, and how many of ``unit`` it is; None: no unit.

    Args:
        value: a figure, taken to be in ``unit``.
        unit: of `SCALES`; any other has none beside it.
        least: lower limit in ``unit``.
        most: upper limit in ``unit``.
    """
    scale: Mapping[str, float] = next((each for each in SCALES if unit in each), {})
    factors = {other: size / scale[unit] for other, size in scale.items() if other != unit}
    fits = (other for other, factor in factors.items() if least <= value * factor <= most)
    found = min(fits, key=lambda other: abs(math.log(factors[other])), default=None)
    return None if found is None else (found, factors[found])


def mib_to_bytes(mib: float) -> int:
    """Mebibytes to bytes (buffer sizes are binary: 128 MB means 128 * 2**20 bytes)."""
    return round(mib * MEBI)


def gib_to_bytes(gib: float) -> int:
    """Gibibytes to bytes.

    The capacity of a chip's memory is said in GB, as its maker does, and is binary: 32 GB means 32 * 2**30 bytes. What
    a memory holds is said in GiB.
    """
    return round(gib * GIBI)


def bytes_to_mib(num_bytes: float) -> float:
    """Bytes to mebibytes."""
    return num_bytes / MEBI


def bytes_to_gib(num_bytes: float) -> float:
    """Bytes to gibibytes."""
    return num_bytes / GIBI


def um2_to_mm2(area_um2: float) -> float:
    """Square micrometres to square millimetres."""
    return area_um2 / UM2_PER_MM2


def gb_per_s_to_bytes_per_s(gb_per_s: float) -> float:
    """Gigabytes (10**9) a second to bytes a second (bandwidths are decimal)."""
    return gb_per_s * GIGA
