"""Predictions of rows, each by the family of the published set that it is like; a time, or why there is none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.validation.family import CompiledRows, Family, Part, RangedRows, TermedRows
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import NOT_PREDICTED

NO_FAMILY = "no model predicts this data set"
NOT_POSITIVE = "the model gives no positive time"
NOT_MEASURED = "no positive time was measured"


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predicted and measured times of rows.

    Attributes:
        families: what predicts each row; None where nothing does.
        predicted_s, measured_s: shape (num_rows,); nan in both where unscored.
        unscored: reason by index of the row.
        unmeasured: what is predicted of unscored rows whose value nobody published, by index of the row.
        compiled: rows as each family prepared them, with the place among them of every row by its index.
    """

    families: tuple[Family | None, ...]
    predicted_s: Floats
    measured_s: Floats
    unscored: Mapping[int, str]
    unmeasured: Mapping[int, float]
    compiled: tuple[tuple[CompiledRows, Mapping[int, int]], ...]

    @property
    def is_scored(self) -> Flags:
        """Which rows are scored, shape (num_rows,)."""
        return np.isfinite(self.predicted_s)

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one scored row goes."""
        rows, places = next((rows, places) for rows, places in self.compiled if index in places)
        return rows.explain(fitted, places[index])

    def ranges(self, fitted: FittedConstants) -> dict[int, tuple[float, float]]:
        """Least and most of the software that rows were priced under, s, by index; of rows of one software none."""
        found: dict[int, tuple[float, float]] = {}
        for rows, places in self.compiled:
            if not isinstance(rows, RangedRows):
                continue
            low, high = rows.range_s(fitted)
            for index, place in places.items():
                if low[place] < high[place]:
                    found[index] = float(low[place]), float(high[place])
        return found

    def longest(self, fitted: FittedConstants) -> dict[int, str]:
        """Name of the term that takes longest, by index; of rows whose prediction is no sum of terms none."""
        found: dict[int, str] = {}
        for rows, places in self.compiled:
            if isinstance(rows, TermedRows):
                names = rows.longest(fitted)
                found |= {index: names[place] for index, place in places.items()}
        return found

    def again(self, fitted: FittedConstants) -> Floats:
        """Predicted times under other constants, shape (num_rows,), s; nan where a row is not prepared."""
        predicted = np.full(len(self.predicted_s), np.nan)
        for rows, places in self.compiled:
            predicted[list(places)] = rows.seconds(fitted)[list(places.values())]
        return predicted


def predict_rows(families: Sequence[Family], rows: Sequence[Row], fitted: FittedConstants) -> Predictions:
    """Predict rows, those of each family together; a row that its family refuses has the family's sentence.

    Args:
        families: what predicts.
        rows: already read and found well-formed.
        fitted: constants.
    """
    by_row = tuple(next((each for each in families if row.dataset in each.datasets), None) for row in rows)
    predicted, measured = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    unscored: dict[int, str] = {}
    unmeasured: dict[int, float] = {}
    compiled: list[tuple[CompiledRows, Mapping[int, int]]] = []
    for family in dict.fromkeys(by_row):
        own = {index: row for index, row in enumerate(rows) if by_row[index] is family}
        if family is None:
            unscored |= {index: NOT_PREDICTED.get(row.dataset, NO_FAMILY) for index, row in own.items()}
            continue
        prepared, kept, refused = _compile(family, own)
        unscored |= refused
        places = list(own)
        found = family.predict_unmeasured(list(own.values()), fitted)
        unmeasured |= {places[place]: value for place, value in found.items()}
        if prepared is None:
            continue
        compiled.append((prepared, {index: place for place, index in enumerate(kept)}))
        seconds, times = prepared.seconds(fitted), prepared.measured_s
        for place, index in enumerate(kept):
            reason = prepared.unscored.get(place) or _fault(seconds[place], times[place])
            if reason:
                unscored[index] = reason
            else:
                predicted[index], measured[index] = seconds[place], times[place]
    return Predictions(by_row, predicted, measured, unscored, unmeasured, tuple(compiled))


def _fault(seconds: float, measured_s: float) -> str:
    if not (np.isfinite(seconds) and seconds > 0):
        return NOT_POSITIVE
    return "" if np.isfinite(measured_s) and measured_s > 0 else NOT_MEASURED


def _compile(family: Family, rows: Mapping[int, Row]) -> tuple[CompiledRows | None, Sequence[int], dict[int, str]]:
    """Prepared rows, their indices, and why others were refused."""
    try:
        return family.compile(list(rows.values())), list(rows), {}
    except InputError:
        # One malformed row refuses the lot: each is tried alone to find which, and the others go together.
        refused = {index: reason for index, row in rows.items() if (reason := _refusal(family, row))}
    kept = [index for index in rows if index not in refused]
    return (family.compile([rows[index] for index in kept]) if kept else None), kept, refused


def _refusal(family: Family, row: Row) -> str:
    """The family's sentence about a row it cannot prepare, without its place; empty if it can."""
    try:
        family.compile([row])
    except InputError as error:
        return str(error).removeprefix(f"{row.source}:{row.line}: ")
    return ""
