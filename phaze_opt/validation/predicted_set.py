"""Predictions of a data set, each row by the family of the published set that it is like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.family import Family, Part
from phaze_opt.validation.predict import Predictions, predict_rows
from phaze_opt.validation.registry import family_of
from phaze_opt.validation.row import Row

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PredictedSet:
    """Predicted and measured times of a set's rows.

    Attributes:
        families: what predicts each row; None where nothing does.
        predicted_s, measured_s: shape (num_rows,); nan in both where unscored.
        unscored: reason by index of the row.
        parts: predictions of one family's rows, and by index of the row its place among them.
    """

    families: tuple[Family | None, ...]
    predicted_s: Floats
    measured_s: Floats
    unscored: dict[int, str]
    parts: tuple[tuple[Predictions, dict[int, int]], ...]

    @property
    def is_scored(self) -> NDArray[np.bool_]:
        """Which rows are scored, shape (num_rows,)."""
        return np.isfinite(self.predicted_s)

    @property
    def family_names(self) -> str:
        """Names of the families, in the rows' order; empty if nothing predicts the set."""
        return ", ".join(dict.fromkeys(family.name for family in self.families if family is not None))

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one row goes."""
        for predictions, place in self.parts:
            if index in place and predictions.compiled is not None:
                return predictions.compiled.explain(fitted, predictions.places[place[index]])
        return ()


def predict_set(families: Sequence[Family], rows: Sequence[Row], fitted: FittedConstants) -> PredictedSet:
    """Predict rows, those of each family together.

    Args:
        families: what predicts; a row that none predicts is unscored.
        rows: of one file.
        fitted: constants.
    """
    by_row = tuple(family_of(row.dataset, families) for row in rows)
    predicted, measured = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    unscored: dict[int, str] = {}
    parts: list[tuple[Predictions, dict[int, int]]] = []
    for family in dict.fromkeys(by_row):
        indices = [index for index, own in enumerate(by_row) if own is family]
        found = predict_rows(family, [rows[index] for index in indices], fitted)
        predicted[indices], measured[indices] = found.predicted_s, found.measured_s
        unscored |= {indices[place]: reason for place, reason in found.unscored.items()}
        parts.append((found, {index: place for place, index in enumerate(indices)}))
    return PredictedSet(by_row, predicted, measured, unscored, tuple(parts))
