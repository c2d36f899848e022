"""How well fitted constants predict rows that were fitted, and rows that were kept out of the fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import FitParameter
from phaze_opt.validation.goals import BY_CELL, group_labels
from phaze_opt.validation.predict import Predictions
from phaze_opt.validation.row import Row
from phaze_opt.validation.scores import mape, mape_by_cell, rank_correlations, score

Floats = NDArray[np.float64]
STEP = 1e-3
"""Share of a parameter's range by which it is moved to see which rows depend on it."""
CELLS = "cells"
"""Name of the test that keeps out a fifth of the cells in turn; others are named after the label kept out."""


@dataclass(frozen=True, slots=True)
class FitFigure:
    """Mean absolute error in per cent of some rows, and Spearman's correlation; nan of nothing."""

    num_rows: int
    mape: float
    spearman: float


@dataclass(frozen=True, slots=True)
class FitFigures:
    """Figures of some rows: with constants fitted to them, and by test with constants fitted without them."""

    fitted: FitFigure
    held_out: Mapping[str, FitFigure]


@dataclass(frozen=True, slots=True)
class SetFit:
    """How a fit does on one data set, as a whole and by group of its rows.

    Attributes:
        name: of the data set.
        num_rows: rows given.
        whole: all rows.
        groups: by label; ``by cell`` counts every cell once.
    """

    name: str
    num_rows: int
    whole: FitFigures
    groups: Mapping[str, FitFigures]

    @property
    def cross_validated_mape(self) -> float:
        """With a fifth of the cells kept out in turn, per cent; nan if that was not asked for."""
        return self.whole.held_out[CELLS].mape if CELLS in self.whole.held_out else math.nan

    @property
    def residuals(self) -> dict[str, float]:
        """Mean errors in per cent by name, as the file of constants holds them."""
        found = {"mape": self.whole.fitted.mape}
        found |= {error_name(name): figure.mape for name, figure in self.whole.held_out.items() if figure.num_rows}
        return {name: value for name, value in found.items() if math.isfinite(value)}

    @property
    def others(self) -> dict[str, float]:
        """Errors of the other tests by name, per cent; those that keep none of this set's rows out are left away."""
        return {name: figure.mape for name, figure in self.whole.held_out.items() if name != CELLS and figure.num_rows}


@dataclass(frozen=True, slots=True, eq=False)
class FittedRows:
    """A family's rows with predictions.

    Attributes:
        rows: of all its data sets, one after the other.
        cells: of every row.
        predictions: by constants fitted to all of them.
        held_out: by test, times predicted by constants fitted without the row, shape (num_rows,), s; nan where the
            test does not keep the row out.
    """

    rows: Sequence[Row]
    cells: Sequence[str]
    predictions: Predictions
    held_out: Mapping[str, Floats]

    def figures(self, indices: Sequence[int], *, is_by_cell: bool = False) -> FitFigures:
        """Figures of the scored ones among some rows."""
        tests = {name: self._figure(values, indices, is_by_cell) for name, values in self.held_out.items()}
        return FitFigures(self._figure(self.predictions.predicted_s, indices, is_by_cell), tests)

    def _figure(self, predicted: Floats, indices: Sequence[int], is_by_cell: bool) -> FitFigure:
        chosen = [index for index in indices if np.isfinite(predicted[index]) and self.predictions.is_scored[index]]
        times, measured = predicted[chosen], self.predictions.measured_s[chosen]
        cells = [self.cells[index] for index in chosen]
        error = mape_by_cell(times, measured, cells) if is_by_cell else mape(times, measured)
        return FitFigure(len(chosen), error, rank_correlations(times, measured)[0])


def error_name(test: str) -> str:
    """Name of a test's error in the file of constants."""
    return "cross_validated_mape" if test == CELLS else f"leave_one_{test.replace(' ', '_')}_out_mape"


def set_fits(datasets: Sequence[Dataset], fitted: FittedRows) -> tuple[SetFit, ...]:
    """Figures by data set; the sets' rows follow one another in ``fitted``."""
    fits: list[SetFit] = []
    first = 0
    for dataset in datasets:
        indices = range(first, first + len(dataset.rows))
        first += len(dataset.rows)
        labels: dict[str, list[int]] = {}
        for index in indices:
            for label in group_labels(fitted.rows[index]):
                labels.setdefault(label, []).append(index)
        groups = {label: fitted.figures(own) for label, own in sorted(labels.items())}
        groups[BY_CELL] = fitted.figures(indices, is_by_cell=True)
        fits.append(SetFit(dataset.name, len(dataset.rows), fitted.figures(indices), groups))
    return tuple(fits)


def residuals(fitted: FittedRows, indices: Sequence[int]) -> dict[str, float]:
    """Errors over the rows that a group of constants touches, per cent by name; of each data set if several."""
    predictions = fitted.predictions
    scores = score(predictions.predicted_s[list(indices)], predictions.measured_s[list(indices)])
    found = {"mape": scores.mape, "median_ape": scores.median_ape, "p90_ape": scores.p90_ape}
    for test, figure in fitted.figures(indices).held_out.items():
        found[error_name(test)] = figure.mape
    names = sorted({fitted.rows[index].dataset for index in indices})
    for name in names if len(names) > 1 else []:
        own = [index for index in indices if fitted.rows[index].dataset == name]
        found[f"mape/{name}"] = fitted.figures(own).fitted.mape
    return found


def rows_by_group(
    parameters: Sequence[FitParameter], constants: FittedConstants, predictions: Predictions
) -> dict[str, list[int]]:
    """By group, the indices of scored rows whose prediction moves with one of its constants."""
    moved: dict[str, NDArray[np.bool_]] = {}
    for parameter in parameters:
        value = constants.value(parameter.group, parameter.name)
        step = STEP * (parameter.high - parameter.low)
        aside = value + step if value + step <= parameter.high else value - step
        after = predictions.again(constants.updated({parameter.group: {parameter.name: aside}}))
        # Unscored rows compare as nan: they do not move.
        moves = np.abs(after - predictions.predicted_s) > 1e-9 * predictions.predicted_s
        moved[parameter.group] = moved.get(parameter.group, np.zeros_like(moves)) | moves
    return {group: np.flatnonzero(rows).tolist() for group, rows in moved.items()}


def ids_by_dataset(rows: Sequence[Row], indices: Sequence[int]) -> dict[str, list[str]]:
    """Ids of rows by data set."""
    found: dict[str, list[str]] = {}
    for index in indices:
        found.setdefault(rows[index].dataset, []).append(rows[index].id)
    return found
