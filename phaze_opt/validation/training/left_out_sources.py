"""Training steps of sources that no fit saw: each publication kept out whole, its software as one that nobody knows.

A source is a publication. Its rows leave the fit of every constant, and are priced as rows of a user whose software is
not among those measured elsewhere: by all that suit their machine and sharding, as the middle of them. They are also
priced as rows of a user who names the software, with what other publications say of its constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import Family
from phaze_opt.validation.held_out import Progress, fit_family, with_starts, without_groups
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.training.compiled import compile_training
from phaze_opt.validation.training.entries import BLACKWELL, NEMO, SETS, read_entries
from phaze_opt.validation.training.family import MODERN_TRAINING, TRAINING

BRIDGE_PAGE = "Megatron-Bridge"
"""Word in the source of rows of `NEMO` that are of the publication of `BLACKWELL`."""

SOURCES: Mapping[str, str] = MappingProxyType({name: own.publication for name, own in SETS.items() if own.publication})
"""Publication by data set."""


@dataclass(frozen=True, slots=True)
class LeftOutRow:
    """A row predicted without its source.

    Attributes:
        source: publication.
        row: as read.
        predicted_s: the middle of the software that suits, s.
        low_s, high_s: least and most of them, s.
        measured_s: as published, s.
        named_s: as a step of its own software, of which only what others say is known, s.
    """

    source: str
    row: Row
    predicted_s: float
    low_s: float
    high_s: float
    measured_s: float
    named_s: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0


def source_of(row: Row) -> str:
    """Publication of a row."""
    if row.dataset == NEMO and BRIDGE_PAGE in row.text("source", ""):
        return SOURCES[BLACKWELL]
    return SOURCES[row.dataset]


def predict_left_out(
    rows: Sequence[Row], start: FittedConstants, *, on_progress: Progress | None = None
) -> tuple[LeftOutRow, ...]:
    """Every row predicted by constants fitted without its source, and without its software; those unscored left away.

    Args:
        rows: of training sets, of both families.
        start: constants of other families; those of training are dropped.
        on_progress: told each source.
    """
    families = (TRAINING, MODERN_TRAINING)
    own = {parameter.group for family in families for parameter in family.parameters(_of(rows, family))}
    bare = without_groups(start, own)
    sources = [source_of(row) for row in rows]
    found: list[LeftOutRow] = []
    known: dict[tuple[str, bool | str], FittedConstants] = {}
    for source in dict.fromkeys(sources):
        if on_progress is not None:
            on_progress(f"without {source}")
        kept = [row for row, name in zip(rows, sources, strict=True) if name != source]
        left = [row for row, name in zip(rows, sources, strict=True) if name == source]
        fitted = bare
        for family in families:
            seen = _of(kept, family)
            # The constants of a family do not depend on the other's: the fit to all its rows is made once.
            key = family.name, len(seen) == len(_of(rows, family)) or source
            if key not in known:
                known[key] = with_starts(fit_family(family, seen, bare), family.parameters(_of(rows, family)))
            fitted = fitted.updated(known[key].groups)
        gone = {row.dataset for row in left} - {row.dataset for row in kept}
        found += _predicted(source, left, fitted, gone)
    return tuple(found)


def _of(rows: Sequence[Row], family: Family) -> list[Row]:
    return [row for row in rows if row.dataset in family.datasets]


def _predicted(source: str, rows: Sequence[Row], fitted: FittedConstants, gone: set[str]) -> list[LeftOutRow]:
    """Rows of a source under the software of the others, and under their own."""
    compiled, named = (compile_training(rows, read) for read in (partial(read_entries, without=gone), read_entries))
    columns = (compiled.seconds(fitted), *compiled.range_s(fitted), compiled.measured_s, named.seconds(fitted))
    times = np.stack(columns, axis=1).tolist()
    return [LeftOutRow(source, row, *times[at]) for at, row in enumerate(rows) if at not in compiled.unscored]
