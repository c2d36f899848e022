"""Parts of the rows that are kept out of a fit in turn; what belongs together is never split."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

NUM_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Fold:
    """One part kept out.

    Attributes:
        label: what is kept out (``3 of 5``, ``H100-SXM``).
        held_out: indices of its rows, ascending.
        kept: indices of the rows that are fitted, ascending.
    """

    label: str
    held_out: tuple[int, ...]
    kept: tuple[int, ...]


def fold_by_cell(cells: Sequence[str], *, num_folds: int = NUM_FOLDS) -> tuple[Fold, ...]:
    """Folds of nearly equal numbers of cells, dealt out in the order of the cells' hashes; deterministic.

    Args:
        cells: cell of every row; rows of one cell fall into one fold.
        num_folds: at most; fewer cells give fewer folds, and a single cell none.
    """
    ordered = sorted(set(cells), key=lambda cell: hashlib.sha256(cell.encode()).hexdigest())
    count = min(num_folds, len(ordered))
    if count < 2:
        return ()
    part = {cell: rank % count for rank, cell in enumerate(ordered)}
    return tuple(_build(f"{fold + 1} of {count}", [part[cell] == fold for cell in cells]) for fold in range(count))


def leave_one_out(labels: Sequence[str]) -> tuple[Fold, ...]:
    """One fold a label (a device, a model); rows with an empty label are always fitted and never scored."""
    names = sorted({label for label in labels if label})
    folds = [_build(name, [label == name for label in labels]) for name in names]
    return tuple(fold for fold in folds if fold.kept)


def _build(label: str, is_held_out: Sequence[bool]) -> Fold:
    held_out = tuple(index for index, is_out in enumerate(is_held_out) if is_out)
    kept = tuple(index for index, is_out in enumerate(is_held_out) if not is_out)
    return Fold(label=label, held_out=held_out, kept=kept)
