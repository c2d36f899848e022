"""Which architectures of a space are kept, held as ranges: one row of `axes.ROW_AXES` (sizes, tensor cores).

Area rises with the number of vector cores, so the kept numbers of vector cores of a row are one range; by the 22 nm
tables also a single vector core that lies under the band, and without a gap where dies are too dense to cool. Counting,
indexing and decoding work on the rows; the architectures themselves are written out only when asked for.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_parts_um2
from phaze_opt.hardware.chip_template import AXIS, PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.record.arrays import Flags, Floats, Ints, ShortInts
from phaze_opt.space.axes import ROW_AXES, Axes

Places: TypeAlias = Mapping[str, Ints]
MAX_CANDIDATES, MAX_ROWS = 50_000_000, 5_000_000
"""Most architectures, and rows of them, that a space may have before any constraint: five times the default space.

They are walked in ten seconds and less than a gigabyte.
"""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Kept architectures by row; arrays have shape (num_rows,) in the order of `axes.ROW_AXES`.

    Attributes:
        low: first index on the num_vc axis that lies in the area band.
        high: one past the last index on the num_vc axis that fits the area.
        has_single: whether one vector core is kept although it lies under the band.
        starts: index of the row's first kept architecture, shape (num_rows + 1,); the last is their total.
        gap_low, gap_high: first index between them that is not kept, and one past the last; both 0 without a gap.
    """

    low: ShortInts
    high: ShortInts
    has_single: Flags
    starts: Ints
    gap_low: ShortInts
    gap_high: ShortInts

    @property
    def num_architectures(self) -> int:
        """Kept architectures."""
        return int(self.starts[-1])

    def row_and_vc(self, index: Ints) -> tuple[Ints, Ints]:
        """Row and index on the num_vc axis of kept architectures by index; all of one shape."""
        row = np.searchsorted(self.starts, index, side="right") - 1
        position = index - self.starts[row]
        single = self.has_single[row]
        vc = np.where(single & (position == 0), 0, self.low[row] + position - single)
        gap_low, gap_high = self.gap_low[row], self.gap_high[row]
        return row, vc + np.where((gap_low < gap_high) & (vc >= gap_low), gap_high - gap_low, 0)

    def index_of(self, row: Ints, vc: Ints) -> Ints:
        """Index of kept architectures by row and index on the num_vc axis; -1 where not kept; all of one shape."""
        low, single = self.low[row], self.has_single[row]
        gap_low, gap_high = self.gap_low[row], self.gap_high[row]
        in_band = (vc >= low) & (vc < self.high[row]) & ((vc < gap_low) | (vc >= gap_high))
        before = np.where(vc >= gap_high, gap_high - gap_low, 0)
        position = np.where(in_band, vc - low + single - before, 0)
        return np.where(in_band | (single & (vc == 0)), self.starts[row] + position, -1)


def compile_kept_rows(axes: Axes, *, band_um2: float, cap_um2: float) -> KeptRows:
    """Kept architectures: area <= cap and (area >= band or one tensor core or one vector core).

    Args:
        axes: the space's axes.
        band_um2: lower end of the area band.
        cap_um2: largest area.

    Raises:
        InputError: the axes are too fine to hold.
    """
    num_rows = _count_rows(axes)
    tensor_um2, vector_um2, buffer_um2 = _row_areas(axes)
    low = np.zeros(num_rows, dtype=np.int32)
    high = np.zeros(num_rows, dtype=np.int32)
    for num_vc in axes.num_vc:
        # The order of the sum is that of `area_um2_table`, so that both agree to the last bit.
        area_um2 = tensor_um2 + num_vc * vector_um2 + buffer_um2
        high += area_um2 <= cap_um2
        low += area_um2 < band_um2
    low = np.minimum(low, high)
    if getattr(axes, ROW_AXES[-1])[0] == 1:
        # One tensor core is kept although it lies under the band: the first row of each block.
        low[:: axes.shape[-1]] = 0
    has_single = (low > 0) & (axes.num_vc[0] == 1)
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(high - low + has_single, out=starts[1:])
    none = np.zeros(num_rows, dtype=np.int32)
    return KeptRows(low=low, high=high, has_single=has_single, starts=starts, gap_low=none, gap_high=none)


def compile_die_rows(axes: Axes, builds: Callable[[Places], Flags]) -> KeptRows:
    """Kept dies: area within the band, and reticle, edge, interposer, banks and cooling as they can be built.

    A die grows with every vector core. So do its sides, and with them the stacks and links that find a place: what is
    kept of a row is one range of numbers of vector cores. Of these some in the middle may be too dense to cool: power
    less what is cooled is a square polynomial of the side of the die, which has two roots, so there is one gap at most.

    Args:
        axes: the space's axes.
        builds: which dies at places on the axes, which broadcast, are kept.

    Raises:
        InputError: the axes are too fine to hold.
    """
    num_rows, num_vc = _count_rows(axes), len(axes.num_vc)
    first, last = np.full(num_rows, num_vc, dtype=np.int32), np.zeros(num_rows, dtype=np.int32)
    count, mesh = np.zeros(num_rows, dtype=np.int64), _mesh(axes)
    gap_low, gap_high = np.zeros(num_rows, dtype=np.int32), np.zeros(num_rows, dtype=np.int32)
    for place in range(num_vc):
        is_kept = builds({**mesh, "num_vc": np.full(1, place, dtype=np.int64)})
        flags = np.broadcast_to(is_kept, axes.shape).ravel()
        reopens = flags & (last > 0) & (last < place)
        gap_low[reopens], gap_high[reopens] = last[reopens], place
        np.minimum(first, place, out=first, where=flags)
        np.maximum(last, place + 1, out=last, where=flags)
        count += flags
    low = np.minimum(first, last)
    if not np.array_equal(last - low - (gap_high - gap_low), count):
        message = "the dies of a row are not one range of vector cores with one gap"
        raise RuntimeError(message)
    starts = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(count, out=starts[1:])
    single = np.zeros(num_rows, dtype=np.bool_)
    return KeptRows(low=low, high=last, has_single=single, starts=starts, gap_low=gap_low, gap_high=gap_high)


def _count_rows(axes: Axes) -> int:
    num_rows = math.prod(axes.shape)
    if num_rows > MAX_ROWS or axes.num_candidates > MAX_CANDIDATES:
        names = (name for name in (*ROW_AXES, "num_vc") if getattr(axes, name))
        sizes = " x ".join(f"{len(getattr(axes, name)):,} {AXIS[name].plural}" for name in names)
        most = f"{MAX_CANDIDATES:,} can be, {MAX_ROWS:,} without the vector cores: take fewer values of an axis"
        message = f"{sizes} are {axes.num_candidates:,} architectures; at most {most}"
        raise InputError(message, key="axes")
    return num_rows


def _mesh(axes: Axes) -> dict[str, Ints]:
    """Places of the rows as a mesh of the axes: each table of areas is read once for each of its sizes."""
    return dict(zip(ROW_AXES, np.ix_(*map(np.arange, axes.shape)), strict=True))


def _row_areas(axes: Axes) -> list[Floats]:
    """Area of all tensor cores, of one vector core and of the GLB, um^2, each of shape (num_rows,)."""
    places = {name: np.zeros(1, dtype=np.int64) for name in axes.stated} | _mesh(axes)
    chips = chips_of(PointColumns(**axes.take(places)), load_constants())
    return [np.broadcast_to(part, axes.shape).ravel() for part in area_parts_um2(chips)]
