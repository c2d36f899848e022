"""All-reduces within the operators of a layer: a tensor of m x n elements through the network's collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phaze_opt.estimate.machine import Floats
from phaze_opt.hardware.device import element_bytes, path_of
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.collectives import CompiledCollectives, read_case
from phaze_opt.validation.family import Part
from phaze_opt.validation.row import Row

LLMCOMPASS_FABRIC = "NVLink3 fully connected, 12 links"
"""What joined the four A100 of LLMCompass's layer, in the words of its all-reduce rows."""


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceBlock:
    """All-reduces of a layer, predicted by the network's constants."""

    indices: NDArray[np.intp]
    collectives: CompiledCollectives

    def seconds(self, fitted: FittedConstants) -> Floats:
        """The collectives' time."""
        return self.collectives.seconds(fitted)

    def parts(self, fitted: FittedConstants, row: int) -> tuple[Part, ...]:
        """Latency, transfer and ramp."""
        return self.collectives.explain(fitted, row)


def all_reduce_block(rows: Sequence[Row], indices: Sequence[int]) -> AllReduceBlock:
    """A block of the rows at these places."""
    collectives = CompiledCollectives([_as_collective(rows[index]) for index in indices])
    return AllReduceBlock(np.array(indices, dtype=np.intp), collectives)


def all_reduce_refusal(row: Row) -> str:
    """Why its links are unknown; empty if they are not."""
    case = read_case(_as_collective(row))
    return case if isinstance(case, str) else ""


def _as_collective(row: Row) -> Row:
    """The row with the columns of collectives."""
    size = element_bytes(path_of(row.text("dtype")))
    payload = int(row.number("b", 1.0) * row.number("m") * row.number("n") * size)
    values = dict(row.values) | {"bytes": str(payload), "fabric": LLMCOMPASS_FABRIC, "collective": "all_reduce"}
    return replace(row, values=values)
