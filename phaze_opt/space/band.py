"""From halvings to kept architectures and back, vectorised: the inner half of the codec.

For one GLB, width and depth (a block): ``vc_halvings`` at its last value means one vector core, and ``tc_halvings``
then shares its range equally among all num_tc that fit. Otherwise ``tc_halvings`` shares it among the num_tc that have
any design with two or more vector cores in the area band, and ``vc_halvings`` shares the rest of its range among
those numbers of vector cores; both count down from the largest. Where the num_vc axis does not begin with one, there
is no last value apart. No proposal falls outside the kept designs, so nothing is lifted (docs/decisions/0023).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from phaze_opt.space.search_space import SearchSpace


@dataclass(frozen=True, slots=True)
class BandIndex:
    """The choices of every block; indices are those of `KeptRows` and of the num_vc axis.

    Attributes:
        block_of: nearest block that keeps anything, shape (num_blocks,); in the Phaze space each block itself.
        num_fitting: numbers of tensor cores that fit beside one vector core, shape (num_blocks,).
        num_in_band: numbers of tensor cores with designs in the band, single vector cores apart, same shape.
        tc_in_band: their indices on the num_tc axis, ascending, shape (num_blocks, num_tc); filled up with zeros.
        vc_low: first index on the num_vc axis in the band, single vector cores apart, shape (num_rows,).
        has_single: whether the num_vc axis begins with one.
        num_tc_halvings: length of the range of tc_halvings.
        num_vc_halvings: length of the range of vc_halvings.
    """

    block_of: NDArray[np.int64]
    num_fitting: NDArray[np.int64]
    num_in_band: NDArray[np.int64]
    tc_in_band: NDArray[np.int64]
    vc_low: NDArray[np.int64]
    has_single: bool
    num_tc_halvings: int
    num_vc_halvings: int


def decode_architectures(
    space: SearchSpace, block: NDArray[np.int64], *, tc_halvings: NDArray[np.int64], vc_halvings: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row of `SearchSpace.kept` and index on the num_vc axis of what each proposal means; always kept.

    Args:
        space: the space.
        block: indices over (GLB, width, depth), flattened; shape (n,) as all arguments.
        tc_halvings: steps below the largest num_tc, in 0..num_tc_halvings-1.
        vc_halvings: steps below the largest num_vc, in 0..num_vc_halvings-1.
    """
    index = compile_band(space)
    live = index.block_of[block]
    fitting, in_band = index.num_fitting[live], index.num_in_band[live]
    last = index.num_vc_halvings - 1
    is_single = (index.has_single & (vc_halvings == last)) | (in_band == 0)
    choices = np.where(is_single, fitting, in_band)
    position = choices - 1 - tc_halvings * choices // index.num_tc_halvings
    tc = np.where(is_single, position, index.tc_in_band[live, position])
    row = live * len(space.axes.num_tc) + tc
    high, low = space.kept.high[row].astype(np.int64), index.vc_low[row]
    length = max(1, index.num_vc_halvings - index.has_single)
    steps = vc_halvings * (high - low) // length
    return row, np.where(is_single, 0, high - 1 - steps)


def encode_architecture(space: SearchSpace, row: int, vc: int) -> tuple[int, int]:
    """Halvings (tensor cores, vector cores) that mean a kept architecture: the middle of those that do.

    Args:
        space: the space.
        row: row of `SearchSpace.kept`.
        vc: index on the num_vc axis.
    """
    index = compile_band(space)
    block, tc = divmod(row, len(space.axes.num_tc))
    if index.has_single and vc == 0:
        fitting = int(index.num_fitting[block])
        return _middle(fitting - 1 - tc, fitting, length=index.num_tc_halvings), index.num_vc_halvings - 1
    in_band = int(index.num_in_band[block])
    position = int(np.searchsorted(index.tc_in_band[block, :in_band], tc))
    high, low = int(space.kept.high[row]), int(index.vc_low[row])
    length = max(1, index.num_vc_halvings - index.has_single)
    return (
        _middle(in_band - 1 - position, in_band, length=index.num_tc_halvings),
        _middle(high - 1 - vc, high - low, length=length),
    )


@lru_cache(maxsize=8)
def compile_band(space: SearchSpace) -> BandIndex:
    """Work out the choices of every block of a space."""
    kept, num_tc = space.kept, len(space.axes.num_tc)
    has_single = space.axes.num_vc[0] == 1
    vc_low = np.maximum(kept.low, 1 if has_single else 0).astype(np.int64)
    is_in_band = (vc_low < kept.high).reshape(-1, num_tc)
    fits = (kept.high > 0).reshape(-1, num_tc)
    num_in_band = is_in_band.sum(axis=1)
    order = np.argsort(~is_in_band, axis=1, kind="stable")
    widest = int((kept.high - vc_low).max())
    return BandIndex(
        block_of=_nearest_live_blocks(space),
        num_fitting=np.maximum(fits.sum(axis=1), 1),
        num_in_band=num_in_band,
        tc_in_band=np.where(np.arange(num_tc) < num_in_band[:, None], order, 0),
        vc_low=vc_low,
        has_single=has_single,
        num_tc_halvings=max(1, int((fits.sum(axis=1) if has_single else num_in_band).max())),
        num_vc_halvings=max(0, widest) + has_single,
    )


def _middle(steps: int, count: int, *, length: int) -> int:
    """Middle of the halvings h in 0..length-1 with floor(h count / length) = steps."""
    first = -(-steps * length // count)
    last = -(-(steps + 1) * length // count) - 1
    return (first + last) // 2


def _nearest_live_blocks(space: SearchSpace) -> NDArray[np.int64]:
    """Nearest block, by steps on the axes, that keeps any architecture; each block itself in the Phaze space."""
    *shape, num_tc = space.axes.shape
    counts = np.diff(space.kept.starts).reshape(-1, num_tc).sum(axis=1)
    if counts.all():
        return np.arange(len(counts), dtype=np.int64)
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(counts.reshape(shape) == 0, return_distances=False, return_indices=True)
    blocks: NDArray[np.int64] = np.ravel_multi_index(tuple(nearest), shape).ravel().astype(np.int64)
    return blocks
