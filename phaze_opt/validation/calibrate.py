"""Fit the constants of families to measurements, and say how well they predict rows kept out of the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants, FittedGroup
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import CompiledRows, Family, Parameter
from phaze_opt.validation.fitted_writing import build_groups
from phaze_opt.validation.folds import Fold, fold_by_cell, leave_one_out
from phaze_opt.validation.held_out import (
    Progress,
    cells_of,
    fit_family,
    predict_held_out,
    splits_of,
    with_starts,
)
from phaze_opt.validation.predict import Predictions, predict_rows
from phaze_opt.validation.row import Row
from phaze_opt.validation.scores import mape, score

Floats = NDArray[np.float64]
STEP = 1e-3
"""Share of a parameter's range by which it is moved to see which rows depend on it."""
CROSS_VALIDATED = "cross_validated_mape"


@dataclass(frozen=True, slots=True)
class SetFit:
    """How a fit does on one data set.

    Attributes:
        name: of the data set.
        num_rows, num_scored: rows given and scored.
        fitted_mape: on the rows fitted, per cent.
        cross_validated_mape: by folds of cells, per cent; nan if not asked for.
        held_out_mape: by name of a leave-one-out test, per cent.
    """

    name: str
    num_rows: int
    num_scored: int
    fitted_mape: float
    cross_validated_mape: float
    held_out_mape: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FamilyFit:
    """How a family was fitted: its number of constants, its groups for the file and its data sets."""

    family: str
    num_constants: int
    groups: Mapping[str, FittedGroup]
    sets: tuple[SetFit, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What was fitted: constants of all groups, and one record a family."""

    constants: FittedConstants
    families: tuple[FamilyFit, ...]

    @property
    def groups(self) -> dict[str, FittedGroup]:
        """All fitted groups, for the file."""
        return {name: group for family in self.families for name, group in family.groups.items()}


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """How to calibrate; see `calibrate`."""

    source: str
    has_held_out: bool
    is_start_known: bool
    on_progress: Progress


@dataclass(frozen=True, slots=True, eq=False)
class _HeldOut:
    """Predictions by constants fitted without the row: by cells, and by name of a leave-one-out test."""

    by_cell: Floats
    by_test: Mapping[str, Floats]


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
        families: in order; those without rows are passed over.
        datasets: measurements.
        start: constants that are kept, and starting values. Without the families' own groups the result depends on
            the measurements alone.
        source: what fits, for the file.
        has_held_out: also predict rows kept out of the fit.
        is_start_known: ``start`` comes from other measurements, so that fits without some rows may begin there too.
        on_progress: told what is being fitted.
    """
    options = _Options(source, has_held_out, is_start_known, on_progress or _silent)
    constants = start
    fits: list[FamilyFit] = []
    for family in families:
        own = [dataset for dataset in datasets if dataset.like in family.datasets]
        if not own or not family.parameters(_rows_of(own)):
            continue
        constants, fit = _calibrate_family(family, own, constants, options)
        fits.append(fit)
    return Calibration(constants=constants, families=tuple(fits))


def _calibrate_family(
    family: Family,
    datasets: Sequence[Dataset],
    start: FittedConstants,
    options: _Options,
) -> tuple[FittedConstants, FamilyFit]:
    rows = _rows_of(datasets)
    parameters = family.parameters(rows)
    options.on_progress(f"{family.name}: {len(parameters)} constants to {len(rows)} rows")
    fitted = with_starts(fit_family(family, rows, start), parameters)
    predictions = predict_rows(family, rows, fitted)
    held_out = _held_out(family, rows, start, options) if options.has_held_out else None
    users = _users(parameters, fitted, predictions)
    groups = build_groups(
        parameters,
        fitted,
        datasets={name: _ids(rows, indices) for name, indices in users.items()},
        residuals={name: _residuals(predictions, held_out, rows, indices) for name, indices in users.items()},
        source=options.source,
    )
    written = {name: {key: item.value for key, item in group.constants.items()} for name, group in groups.items()}
    sets = _set_fits(datasets, predictions, held_out)
    return fitted.updated(written), FamilyFit(family.name, len(parameters), groups, sets)


def _rows_of(datasets: Sequence[Dataset]) -> list[Row]:
    return [row for dataset in datasets for row in dataset.rows]


def _silent(_: str) -> None:
    """No progress."""


def _held_out(family: Family, rows: Sequence[Row], start: FittedConstants, options: _Options) -> _HeldOut:
    def predict(test: str, folds: Sequence[Fold]) -> Floats:
        def tell(label: str) -> None:
            options.on_progress(f"{family.name}: {test}, {label} kept out")

        return predict_held_out(family, rows, folds, start, keeps_groups=options.is_start_known, on_progress=tell)

    by_test = {name: predict(name, leave_one_out(labels)) for name, labels in splits_of(family, rows).items()}
    return _HeldOut(predict("cells", fold_by_cell(cells_of(family, rows))), by_test)


def _users(parameters: Sequence[Parameter], fitted: FittedConstants, predictions: Predictions) -> dict[str, list[int]]:
    """By group, the indices of scored rows whose prediction moves with one of its constants."""
    users: dict[str, list[int]] = {}
    for group in dict.fromkeys(parameter.group for parameter in parameters):
        own = [parameter for parameter in parameters if parameter.group == group]
        moved = np.zeros(len(predictions.places), dtype=bool)
        if predictions.compiled is not None:
            for parameter in own:
                moved |= _moves(parameter, fitted, predictions, predictions.compiled)
        users[group] = np.flatnonzero(moved).tolist()
    return users


def _moves(
    parameter: Parameter, fitted: FittedConstants, predictions: Predictions, compiled: CompiledRows
) -> NDArray[np.bool_]:
    value = fitted.value(parameter.group, parameter.name)
    step = STEP * (parameter.high - parameter.low)
    moved_value = value + step if value + step <= parameter.high else value - step
    seconds = compiled.seconds(fitted.updated({parameter.group: {parameter.name: moved_value}}))
    moved = np.zeros(len(predictions.places), dtype=bool)
    for index, place in enumerate(predictions.places):
        before = predictions.predicted_s[index]
        moved[index] = place >= 0 and abs(seconds[place] - before) > 1e-9 * before
    return moved


def _ids(rows: Sequence[Row], indices: Sequence[int]) -> dict[str, list[str]]:
    ids: dict[str, list[str]] = {}
    for index in indices:
        ids.setdefault(rows[index].dataset, []).append(rows[index].id)
    return ids


def _residuals(
    predictions: Predictions, held_out: _HeldOut | None, rows: Sequence[Row], indices: Sequence[int]
) -> dict[str, float]:
    """Errors over the rows that a group touches; by data set too if there are several."""
    measured = predictions.measured_s[indices]
    fitted = score(predictions.predicted_s[indices], measured)
    figures = {"mape": fitted.mape, "median_ape": fitted.median_ape, "p90_ape": fitted.p90_ape}
    names = sorted({rows[index].dataset for index in indices})
    for name in names if len(names) > 1 else []:
        own = [index for index in indices if rows[index].dataset == name]
        figures[f"mape/{name}"] = mape(predictions.predicted_s[own], predictions.measured_s[own])
    if held_out is not None:
        figures[CROSS_VALIDATED] = _held_out_mape(held_out.by_cell, predictions, indices)
        for test, predicted in held_out.by_test.items():
            figures[f"leave_one_{test.replace(' ', '_')}_out_mape"] = _held_out_mape(predicted, predictions, indices)
    return figures


def _held_out_mape(predicted: Floats, predictions: Predictions, indices: Sequence[int]) -> float:
    chosen = [index for index in indices if np.isfinite(predicted[index]) and predictions.is_scored[index]]
    return mape(predicted[chosen], predictions.measured_s[chosen])


def _set_fits(datasets: Sequence[Dataset], predictions: Predictions, held_out: _HeldOut | None) -> tuple[SetFit, ...]:
    fits: list[SetFit] = []
    first = 0
    for dataset in datasets:
        indices = list(range(first, first + len(dataset.rows)))
        first += len(dataset.rows)
        scored = [index for index in indices if predictions.is_scored[index]]
        fits.append(
            SetFit(
                name=dataset.name,
                num_rows=len(indices),
                num_scored=len(scored),
                fitted_mape=mape(predictions.predicted_s[scored], predictions.measured_s[scored]),
                cross_validated_mape=np.nan
                if held_out is None
                else _held_out_mape(held_out.by_cell, predictions, scored),
                held_out_mape={}
                if held_out is None
                else {name: _held_out_mape(values, predictions, scored) for name, values in held_out.by_test.items()},
            )
        )
    return tuple(fits)
