"""What the cost of a matmul depends on, each distinct combination once (620 in the Phaze space of 29,360)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.options import GlbLimit
from phaze_opt.hardware.accelerator import AcceleratorTable

_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(29)


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """Distinct tensor-core configurations; each column of shape (num_rows,).

    Attributes:
        num_tc: arrays on the chip.
        width, depth: of one array.
        tile_elements: elements of an L2 output tile: half the L2, double-buffered.
        dtype_bytes: bytes of an element.
        glb_cycles_per_byte: chip-wide; zero when the GLB never binds.
    """

    num_tc: NDArray[np.int64]
    width: NDArray[np.int64]
    depth: NDArray[np.int64]
    tile_elements: NDArray[np.int64]
    dtype_bytes: NDArray[np.int64]
    glb_cycles_per_byte: NDArray[np.float64]

    def __len__(self) -> int:
        """Number of distinct configurations."""
        return len(self.num_tc)


@dataclass(frozen=True, slots=True)
class DistinctRows:
    """``columns[i][first]`` holds each distinct row once; ``inverse`` maps every row to its place there."""

    first: NDArray[np.intp]
    inverse: NDArray[np.intp]


def distinct_rows(*columns: NDArray[np.generic]) -> DistinctRows:
    """Distinct rows of equally long 8-byte columns, sorted by a hash of their bits; checked against collisions."""
    if len(columns[0]) == 1:
        return DistinctRows(np.zeros(1, np.intp), np.zeros(1, np.intp))
    code = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        code = (code ^ np.ascontiguousarray(column).view(np.uint64)) * _HASH_MULTIPLIER
        code ^= code >> _HASH_SHIFT
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    if all(np.array_equal(column, column[first][inverse]) for column in columns):
        return DistinctRows(first, inverse)
    bits = np.stack([np.ascontiguousarray(column).view(np.uint64) for column in columns], axis=1)
    _, first, inverse = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    return DistinctRows(first, inverse.reshape(-1))


def build_array_rows(
    table: AcceleratorTable, glb_limit: GlbLimit, *, reference_glb_bytes: float
) -> tuple[ArrayRows, NDArray[np.intp]]:
    """Distinct tensor-core configurations of a table, and which one each accelerator has.

    Args:
        table: accelerators.
        glb_limit: how the GLB's bandwidth is set.
        reference_glb_bytes: size at which a proportional GLB reaches the accelerator's bandwidth.
    """
    per_byte = _glb_cycles_per_byte(table, glb_limit, reference_glb_bytes=reference_glb_bytes)
    integers = (table.num_tc, table.tc_width, table.tc_depth, table.l2_bytes, table.dtype_bytes)
    rows = distinct_rows(*integers, per_byte)
    num_tc, width, depth, l2_bytes, dtype_bytes = (column[rows.first] for column in integers)
    tile_elements = np.maximum(1, l2_bytes // (2 * dtype_bytes))
    return ArrayRows(num_tc, width, depth, tile_elements, dtype_bytes, per_byte[rows.first]), rows.inverse


def _glb_cycles_per_byte(
    table: AcceleratorTable, glb_limit: GlbLimit, *, reference_glb_bytes: float
) -> NDArray[np.float64]:
    """Cycles the GLB takes for a byte, chip-wide, shape (num_accelerators,); zero for ``none``."""
    if glb_limit is GlbLimit.NONE:
        return np.zeros(len(table))
    bandwidth = table.glb_bandwidth_bytes_per_s
    if glb_limit is GlbLimit.PROPORTIONAL:
        bandwidth = bandwidth * (table.glb_bytes / reference_glb_bytes)
    return table.clock_hz / bandwidth
