"""Which architectures of a space are kept, held as ranges: one row of `axes.ROW_AXES` (sizes, tensor cores).

Area rises with the number of vector cores, so the kept numbers of vector cores of a row are one range, plus a single
vector core where that is kept although it lies under the band. Counting, indexing and decoding work on the rows;
the architectures themselves are written out only when asked for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.area import area_parts_um2
from phaze_opt.hardware.chip_template import PointColumns
from phaze_opt.hardware.constants import load_constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.space.axes import ROW_AXES, Axes

MAX_ROWS = 20_000_000
"""Most rows a space may have; above it the columns alone would take gigabytes."""


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Kept architectures by row; arrays have shape (num_rows,) in the order of `axes.ROW_AXES`.

    Attributes:
        low: first index on the num_vc axis that lies in the area band.
        high: one past the last index on the num_vc axis that fits the area.
        has_single: whether one vector core is kept although it lies under the band.
        starts: index of the row's first kept architecture, shape (num_rows + 1,); the last is their total.
    """

    low: NDArray[np.int32]
    high: NDArray[np.int32]
    has_single: NDArray[np.bool_]
    starts: NDArray[np.int64]

    @property
    def num_architectures(self) -> int:
        """Kept architectures."""
        return int(self.starts[-1])

    def row_and_vc(self, index: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and index on the num_vc axis of kept architectures by index; all of one shape."""
        row = np.searchsorted(self.starts, index, side="right") - 1
        position = index - self.starts[row]
        single = self.has_single[row]
        vc = np.where(single & (position == 0), 0, self.low[row] + position - single)
        return row, vc

    def index_of(self, row: NDArray[np.int64], vc: NDArray[np.int64]) -> NDArray[np.int64]:
        """Index of kept architectures by row and index on the num_vc axis; -1 where not kept; all of one shape."""
        low, single = self.low[row], self.has_single[row]
        in_band = (vc >= low) & (vc < self.high[row])
        position = np.where(in_band, vc - low + single, 0)
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
    num_rows = int(np.prod(axes.shape))
    if num_rows > MAX_ROWS:
        message = (
            f"the space has {num_rows} combinations of GLB, width, depth and tensor cores; "
            f"at most {MAX_ROWS} can be held: take coarser axes"
        )
        raise InputError(message)
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
    return KeptRows(low=low, high=high, has_single=has_single, starts=starts)


def _row_areas(axes: Axes) -> list[NDArray[np.float64]]:
    """Area of all tensor cores, of one vector core and of the GLB, um^2, each of shape (num_rows,)."""
    # A mesh of the axes in place of every row: each table of areas is read once for each of its sizes.
    places = {name: np.zeros(1, dtype=np.int64) for name in axes.stated}
    places |= dict(zip(ROW_AXES, np.ix_(*map(np.arange, axes.shape)), strict=True))
    chips = chips_of(PointColumns(**axes.take(places)), load_constants())
    return [np.broadcast_to(part, axes.shape).ravel() for part in area_parts_um2(chips)]
