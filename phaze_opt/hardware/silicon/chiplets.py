"""A die split into equal chiplets on one interposer: what each is built of, and what crosses between them.

Chiplets are of one design, so each has the same cores, slice of the buffer, stacks, links and host interface. A number
of cores that does not divide is built as the next that does. Addresses are interleaved over the slices: a core's byte
comes from every chiplet alike, over the chiplets between on a mesh that is as square as their number allows. Memory
stands beside the slice that holds its addresses, so what crosses is traffic of the buffer, and each byte of it once.
"""

import numpy as np

from phaze_opt.hardware.accelerator import AcceleratorTable
from phaze_opt.hardware.chip_template import MOST_CHIPLETS
from phaze_opt.record.arrays import Floats, Ints


def mesh_sides(count: int) -> tuple[int, int]:
    """Rows and columns of the mesh of so many chiplets, as square as can be: 8 are 2 x 4."""
    rows = max(side for side in range(1, count + 1) if count % side == 0 and side * side <= count)
    return rows, count // rows


def _crossings(count: int) -> float:
    """Mean distance on the mesh of two chiplets, each any one alike: a side of k adds (k - 1/k) / 3."""
    return sum((side - 1.0 / side) / 3.0 for side in mesh_sides(count))


_CROSSINGS = np.array([_crossings(max(1, code)) for code in range(MOST_CHIPLETS + 1)])


def count_of(codes: Ints) -> Floats:
    """Chiplets by what a design says; 0, what none says, is one die."""
    return np.maximum(1.0, codes)


def crossings_of(codes: Ints) -> Floats:
    """How often a byte of the buffer crosses between chiplets on its way, on average: 1/2 of two, 1 of four."""
    return np.asarray(_CROSSINGS[codes])


def built(numbers: Ints, codes: Ints) -> Ints:
    """Cores of all equal chiplets together: the next number that their count divides."""
    count = np.maximum(1, codes)
    return np.asarray(-(-numbers // count) * count)


def crossing_bytes_per_s(chips: AcceleratorTable, most: float) -> Floats:
    """What crosses between the chiplets of a package at full rate, all of them together, one way.

    Args:
        chips: packages.
        most: that a chiplet sends to others, bytes/s.
    """
    wanted = crossings_of(chips.chiplets) * chips.glb_bandwidth_bytes_per_s
    return np.minimum(wanted, most * count_of(chips.chiplets))


def delivered_bytes_per_s(chips: AcceleratorTable, most: float) -> Floats:
    """What the buffer delivers to all cores: its rate, or what the crossings leave of it."""
    crossings = crossings_of(chips.chiplets)
    sent = most * count_of(chips.chiplets)
    limit = np.divide(sent, crossings, out=np.full_like(crossings, np.inf), where=crossings > 0.0)
    return np.minimum(chips.glb_bandwidth_bytes_per_s, limit)
