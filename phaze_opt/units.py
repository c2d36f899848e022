"""Units: SI inside the package; conversions only where figures are parsed or printed."""

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
