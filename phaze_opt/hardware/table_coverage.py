"""How far the published tables of buffers reach: what is continued beyond their entries, and what no model covers.

Areas and energies of on-chip buffers are published for 1 KiB to 1 MiB beside a core and for 2 to 128 MiB of a global
buffer. Beyond the largest entry the outermost segment is continued, up to `REACH` times; beyond that banks, wires and
yield decide, of which the tables know nothing. Below the smallest entry a buffer is a small share of its chip.
"""

from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.area import load_sram_areas, vc_l2_bytes_of
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.interpolation import LogLogTable
from phaze_opt.units import KIBI, MEBI

REACH = 4.0
"""Times the largest published size up to which tables are continued: an assumption, whose range is 2 to 8."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer of a chip and the sizes for which its area and energy are published, bytes.

    Attributes:
        key: what of an architecture decides its size.
        name: in words.
        size_bytes: of it.
        low_bytes, high_bytes: ends of the table.
    """

    key: str
    name: str
    size_bytes: int
    low_bytes: int
    high_bytes: int

    @property
    def is_published(self) -> bool:
        """Whether its size lies within the table."""
        return self.low_bytes <= self.size_bytes <= self.high_bytes

    @property
    def is_covered(self) -> bool:
        """Whether its size is within the table or its continuation."""
        return self.size_bytes <= REACH * self.high_bytes


def buffers_of(accelerator: Accelerator, constants: Constants) -> tuple[Buffer, ...]:
    """The buffers of a chip: the global one and those beside its cores."""
    lanes = np.array([accelerator.vc_width], dtype=np.int64)
    beside_lanes = int(vc_l2_bytes_of(lanes, accelerator.vc_l2_bytes, constants=constants)[0])
    areas, vector_key = load_sram_areas(), "vc_l2_kb" if accelerator.vc_l2_bytes else "vc_width"
    return (
        _buffer("glb_mb", "global buffer", accelerator.glb_bytes, areas.glb_um2),
        _buffer("tc_width", "buffer of a tensor core", accelerator.l2_bytes, areas.l2_um2),
        _buffer(vector_key, "buffer of a vector core", beside_lanes, areas.l2_um2),
    )


def check_covered(accelerator: Accelerator, constants: Constants) -> None:
    """Refuse a chip with a buffer that no model covers.

    Raises:
        InputError: names the buffer, its size and the largest that is covered.
    """
    for buffer in buffers_of(accelerator, constants):
        if not buffer.is_covered:
            raise InputError(refusal_of(buffer), key=buffer.key)


def refusal_of(buffer: Buffer) -> str:
    """Why a buffer is refused."""
    return (
        f"a {buffer.name} of {format_size(buffer.size_bytes)} is beyond what areas and energies are known for "
        f"(published to {format_size(buffer.high_bytes)}, continued to {format_size(REACH * buffer.high_bytes)}); "
        "give a smaller one"
    )


def format_size(size_bytes: float) -> str:
    """A size in binary MB or KB."""
    if size_bytes >= MEBI:
        return f"{size_bytes / MEBI:,.6g} MB"
    return f"{size_bytes / KIBI:,.6g} KB"


def _buffer(key: str, name: str, size_bytes: int, table: LogLogTable) -> Buffer:
    return Buffer(key, name, size_bytes, int(table.points[0]), int(table.points[-1]))
