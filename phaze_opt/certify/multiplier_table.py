"""Rows of pool entries, each kept once for its micro-batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]


class MultiplierTable:
    """Distinct rows of pool entries by micro-batch, numbered as they come.

    Numbers stay valid while rows are added; `compacted` leaves out what no point uses in the end.
    """

    def __init__(self, micro_batches: Sequence[int], num_slots: int) -> None:
        """Start without rows.

        Args:
            micro_batches: of the space.
            num_slots: entries a row.
        """
        self._num_slots = num_slots
        self._numbers: dict[int, dict[bytes, int]] = {micro_batch: {} for micro_batch in micro_batches}

    def add(self, micro_batch: int, rows: Rows) -> NDArray[np.int32]:
        """Numbers of rows, shape (num_rows,); new ones are kept in their order."""
        numbers = self._numbers[micro_batch]
        packed = np.ascontiguousarray(rows, dtype=np.int32)
        width = self._num_slots * packed.itemsize
        data = packed.tobytes()
        found = [
            numbers.setdefault(data[start : start + width], len(numbers))
            for start in range(0, width * len(packed), width or 1)
        ]
        # Without slots every row is the same empty one.
        return np.array(found if width else [numbers.setdefault(b"", 0)] * len(packed), dtype=np.int32)

    def rows(self, micro_batch: int) -> Rows:
        """All rows in the order of their numbers, shape (num_rows, num_slots)."""
        data = b"".join(self._numbers[micro_batch])
        shape = (len(self._numbers[micro_batch]), self._num_slots)
        return np.array(np.frombuffer(data, dtype=np.int32).reshape(shape), dtype=np.int32)

    def compacted(self, micro_batch: int, numbers: NDArray[np.int32]) -> tuple[Rows, NDArray[np.int32]]:
        """The rows that ``numbers`` use, numbered anew by first use, and the new numbers."""
        used, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        renumbered = np.empty(len(used), dtype=np.int32)
        renumbered[order] = np.arange(len(used), dtype=np.int32)
        return self.rows(micro_batch)[used[order]], renumbered[inverse]
