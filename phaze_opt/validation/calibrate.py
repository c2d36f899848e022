"""Fit the constants of families to measurements, and say how well they predict rows fitted and rows kept out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.hardware.fitted import FittedConstants, FittedGroup
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.fit import Progress, fit_family, rounded, with_starts, written_value
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import (
    Predictions,
    cells_of,
    fold_by_cell,
    leave_one_out,
    predict_held_out,
    predict_rows,
)
from phaze_opt.validation.result import group_labels, mape, mape_by_cell, rank_correlations, score
from phaze_opt.validation.schema import BY_CELL

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


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """How a family was fitted: its number of constants, its groups for the file and its data sets."""

    family: str
    num_constants: int
    groups: Mapping[str, FittedGroup]
    sets: tuple[SetFit, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What was fitted.

    Attributes:
        constants: of all groups.
        families: one record a family.
        unfitted: of families none of whose rows can be predicted, or whose are too few, a sentence each that says why.
    """

    constants: FittedConstants
    families: tuple[FamilyFit, ...]
    unfitted: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, FittedGroup]:
        """All fitted groups, for the file."""
        return {name: group for family in self.families for name, group in family.groups.items()}

    @property
    def sets(self) -> dict[str, dict[str, float]]:
        """Errors of all data sets by name, for the file."""
        return {item.name: item.residuals for family in self.families for item in family.sets}


def calibrate(
    families: Sequence[Family],
    datasets: Sequence[Dataset],
    start: FittedConstants,
    *,
    source: str,
    has_held_out: bool = True,
    is_start_known: bool = False,
    on_progress: Progress | None = None,
) -> Calibration:
    """Fit families one after the other; each sees what the earlier ones fitted.

    Args:
        families: in order; those without rows, or without constants, are passed over.
        datasets: measurements.
        start: constants that are kept, and starting values. Without the families' own groups the result depends on
            the measurements alone.
        source: what fits, for the file.
        has_held_out: also predict rows kept out of the fit.
        is_start_known: ``start`` comes from other measurements, so that fits without some rows may begin there too.
        on_progress: told what is being fitted.
    """
    tell = on_progress or (lambda _: None)
    constants = start
    fits: list[FamilyFit] = []
    unfitted: list[str] = []
    for family in families:
        own = [part for dataset in datasets if (part := dataset.of(family.datasets)).rows]
        rows = [row for dataset in own for row in dataset.rows]
        if not rows:
            continue
        parameters = family.parameters(rows)
        reason = _why_unfitted(family, rows, with_starts(constants, parameters))
        if not (reason or parameters) and family.has_own_fit:
            reason = (
                f"{family.name}: too few rows to fit a constant ({len(rows):,} given); it takes eight of one "
                "machine or library, and of collectives eight of one kind on links that the package knows"
            )
        if reason:
            unfitted.append(reason)
        if reason or not parameters:
            continue
        tell(f"{family.name}: {len(parameters)} constants to {len(rows)} rows")
        known = constants
        constants = with_starts(fit_family(family, rows, known), parameters)
        held_out = _held_out(family, rows, known, keeps_groups=is_start_known, tell=tell) if has_held_out else {}
        fitted = FittedRows(rows, cells_of(family, rows), predict_rows([family], rows, constants), held_out)
        groups = _groups(family, parameters, constants, fitted, source=source)
        fits.append(FamilyFit(family.name, len(parameters), groups, set_fits(own, fitted)))
    return Calibration(constants=constants, families=tuple(fits), unfitted=tuple(unfitted))


def _why_unfitted(family: Family, rows: Sequence[Row], constants: FittedConstants) -> str:
    """Why no row says anything of the family's constants; empty if some do."""
    if not predict_rows([family], rows[:1], constants).unscored:
        return ""
    unscored = predict_rows([family], rows, constants).unscored
    if len(unscored) < len(rows):
        return ""
    return f"{family.name}: none of {len(rows):,} rows can be predicted; line {rows[0].line}: {unscored[0]}"


def _groups(
    family: Family, parameters: Sequence[FitParameter], constants: FittedConstants, fitted: FittedRows, *, source: str
) -> dict[str, FittedGroup]:
    """Groups of the file, each with ids of the rows that fit it and their errors."""
    groups = {}
    for name, touched in rows_by_group(parameters, constants, fitted.predictions).items():
        indices = [index for index in touched if family.is_fitted(fitted.rows[index])]
        ids: dict[str, list[str]] = {}
        for row in (fitted.rows[index] for index in indices):
            ids.setdefault(row.dataset, []).append(row.id)
        errors = residuals(fitted, indices)
        groups[name] = FittedGroup(
            constants={each.name: written_value(each, constants) for each in parameters if each.group == name},
            datasets={key: sorted(own) for key, own in ids.items()},
            residuals={key: rounded(value) for key, value in errors.items() if math.isfinite(value)},
            source=source,
        )
    return groups


def _held_out(
    family: Family, rows: Sequence[Row], start: FittedConstants, *, keeps_groups: bool, tell: Progress
) -> dict[str, Floats]:
    """Predictions of every test, the folds over cells first."""
    tests = {CELLS: fold_by_cell(cells_of(family, rows))}
    tests |= {name: leave_one_out([label(row) for row in rows]) for name, label in family.splits.items()}
    found = {}
    for test, folds in tests.items():
        named = [replace(fold, label=f"{family.name}: {test}, {fold.label} kept out") for fold in folds]
        found[test] = predict_held_out(family, rows, named, start, keeps_groups=keeps_groups, on_progress=tell)
    return found


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
    moved: dict[str, Flags] = {}
    for parameter in parameters:
        value = constants.value(parameter.group, parameter.name)
        # A row is used by a group if its prediction moves with a constant of it, however the formulas lead there.
        step = STEP * (parameter.high - parameter.low)
        aside = value + step if value + step <= parameter.high else value - step
        after = predictions.again(constants.updated({parameter.group: {parameter.name: aside}}))
        # Unscored rows compare as nan: they do not move.
        moves = np.abs(after - predictions.predicted_s) > 1e-9 * predictions.predicted_s
        moved[parameter.group] = moved.get(parameter.group, np.zeros_like(moves)) | moves
    return {group: np.flatnonzero(rows).tolist() for group, rows in moved.items()}
