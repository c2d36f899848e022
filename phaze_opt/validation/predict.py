"""Predictions of a family for rows, each row scored or with a reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import CompiledRows, Family
from phaze_opt.validation.row import Row
from phaze_opt.validation.schema import NOT_PREDICTED

Floats = NDArray[np.float64]
NO_FAMILY = "no model predicts this data set"
NOT_POSITIVE = "the model gives no positive time"
NOT_MEASURED = "no positive time was measured"


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predicted and measured times of rows.

    Attributes:
        predicted_s, measured_s: shape (num_rows,); nan in both where unscored.
        unscored: reason by index of the row.
        compiled: what predicts the row at each of `places`; None if nothing could be prepared.
        places: index of every row within ``compiled``; -1 where unscored.
    """

    predicted_s: Floats
    measured_s: Floats
    unscored: Mapping[int, str]
    compiled: CompiledRows | None
    places: tuple[int, ...]

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Which rows are scored, shape (num_rows,)."""
        return np.isfinite(self.predicted_s)


def predict_rows(family: Family | None, rows: Sequence[Row], fitted: FittedConstants) -> Predictions:
    """Predict rows; a row that a family refuses is unscored with the family's sentence.

    Args:
        family: what predicts; None leaves every row unscored.
        rows: already read and found well-formed.
        fitted: constants.
    """
    if family is None:
        return _nothing(len(rows), _why_unpredicted(rows))
    compiled, kept, refused = _compile(family, rows)
    if compiled is None:
        return Predictions(
            np.full(len(rows), np.nan), np.full(len(rows), np.nan), refused, None, tuple([-1] * len(rows))
        )
    seconds, measured = compiled.seconds(fitted), compiled.measured_s
    predicted_s, measured_s = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    places = [-1] * len(rows)
    unscored = dict(refused)
    for place, index in enumerate(kept):
        reason = _reason(compiled, place, float(seconds[place]), float(measured[place]))
        if reason:
            unscored[index] = reason
            continue
        predicted_s[index], measured_s[index], places[index] = seconds[place], measured[place], place
    return Predictions(predicted_s, measured_s, unscored, compiled, tuple(places))


def why_none_predicted(family: Family, rows: Sequence[Row]) -> str:
    """Why no row can be predicted, whatever the constants: the sentence of the first; empty if one can or none is."""
    compiled, kept, refused = _compile(family, rows)
    if not rows or compiled is not None and len(compiled.unscored) < len(kept):
        return ""
    return none_predicted(family, rows, refused.get(0) or (compiled.unscored[0] if compiled is not None else ""))


def none_predicted(family: Family, rows: Sequence[Row], first: str) -> str:
    """The sentence that says so, with the reason of the first row."""
    return f"{family.name}: none of {len(rows):,} rows can be predicted; line {rows[0].line}: {first}"


def _reason(compiled: CompiledRows, place: int, seconds: float, measured_s: float) -> str:
    if place in compiled.unscored:
        return compiled.unscored[place]
    if not (np.isfinite(seconds) and seconds > 0):
        return NOT_POSITIVE
    return "" if np.isfinite(measured_s) and measured_s > 0 else NOT_MEASURED


def _compile(family: Family, rows: Sequence[Row]) -> tuple[CompiledRows | None, Sequence[int], dict[int, str]]:
    """Prepared rows, their indices, and why others were refused."""
    try:
        return family.compile(rows), range(len(rows)), {}
    except InputError:
        refused = {index: reason for index, row in enumerate(rows) if (reason := _refusal(family, row))}
    kept = [index for index in range(len(rows)) if index not in refused]
    if not kept:
        return None, (), refused
    return family.compile([rows[index] for index in kept]), kept, refused


def _refusal(family: Family, row: Row) -> str:
    """The family's sentence about a row it cannot prepare, without its place; empty if it can."""
    try:
        family.compile([row])
    except InputError as error:
        text = str(error)
        where = f"{row.source}:{row.line}: "
        return text.removeprefix(where)
    return ""


def _why_unpredicted(rows: Sequence[Row]) -> str:
    return NOT_PREDICTED.get(rows[0].dataset, NO_FAMILY) if rows else NO_FAMILY


def _nothing(num_rows: int, reason: str) -> Predictions:
    empty = np.full(num_rows, np.nan)
    return Predictions(empty, empty.copy(), dict.fromkeys(range(num_rows), reason), None, tuple([-1] * num_rows))
