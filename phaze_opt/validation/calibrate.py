"""Fit the constants of families to measurements, and say how well they predict rows kept out of the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants, FittedGroup
from phaze_opt.validation.calibration_figures import (
    CELLS,
    FittedRows,
    SetFit,
    ids_by_dataset,
    residuals,
    rows_by_group,
    set_fits,
)
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Family, Parameter
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
from phaze_opt.validation.predict import none_predicted, predict_rows, why_none_predicted
from phaze_opt.validation.row import Row

Floats = NDArray[np.float64]


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
        unfitted: of families none of whose rows can be predicted, a sentence each that says why.
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


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    """How to calibrate; see `calibrate`."""

    source: str
    has_held_out: bool
    is_start_known: bool
    on_progress: Progress


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
    options = _Options(source, has_held_out, is_start_known, on_progress or _silent)
    constants = start
    fits: list[FamilyFit] = []
    unfitted: list[str] = []
    for family in families:
        own = [part for dataset in datasets if (part := dataset.of(family.datasets)).rows]
        if not own:
            continue
        parameters = family.parameters(_rows_of(own))
        reason = _why_unfitted(family, _rows_of(own), with_starts(constants, parameters) if parameters else None)
        if reason:
            unfitted.append(reason)
        if reason or not parameters:
            continue
        constants, fit = _calibrate_family(family, own, parameters, constants, options)
        fits.append(fit)
    return Calibration(constants=constants, families=tuple(fits), unfitted=tuple(unfitted))


def _why_unfitted(family: Family, rows: Sequence[Row], constants: FittedConstants | None) -> str:
    """Why no row says anything of the family's constants; empty if some do, or if it has none to fit (None)."""
    if constants is None:
        return why_none_predicted(family, rows)
    if not predict_rows(family, rows[:1], constants).unscored:
        return ""
    unscored = predict_rows(family, rows, constants).unscored
    if len(unscored) < len(rows):
        return ""
    return none_predicted(family, rows, unscored[0])


def _calibrate_family(
    family: Family,
    datasets: Sequence[Dataset],
    parameters: Sequence[Parameter],
    start: FittedConstants,
    options: _Options,
) -> tuple[FittedConstants, FamilyFit]:
    rows = _rows_of(datasets)
    options.on_progress(f"{family.name}: {len(parameters)} constants to {len(rows)} rows")
    constants = with_starts(fit_family(family, rows, start), parameters)
    fitted = FittedRows(
        rows=rows,
        cells=cells_of(family, rows),
        predictions=predict_rows(family, rows, constants),
        held_out=_held_out(family, rows, start, options) if options.has_held_out else {},
    )
    users = rows_by_group(parameters, constants, fitted.predictions)
    groups = build_groups(
        parameters,
        constants,
        datasets={name: ids_by_dataset(rows, indices) for name, indices in users.items()},
        residuals={name: residuals(fitted, indices) for name, indices in users.items()},
        source=options.source,
    )
    return constants, FamilyFit(family.name, len(parameters), groups, set_fits(datasets, fitted))


def _held_out(family: Family, rows: Sequence[Row], start: FittedConstants, options: _Options) -> dict[str, Floats]:
    """Predictions of every test, the folds over cells first."""

    def predict(test: str, folds: Sequence[Fold]) -> Floats:
        def tell(label: str) -> None:
            options.on_progress(f"{family.name}: {test}, {label} kept out")

        return predict_held_out(family, rows, folds, start, keeps_groups=options.is_start_known, on_progress=tell)

    tests = {CELLS: fold_by_cell(cells_of(family, rows))}
    tests |= {name: leave_one_out(labels) for name, labels in splits_of(family, rows).items()}
    return {name: predict(name, folds) for name, folds in tests.items()}


def _rows_of(datasets: Sequence[Dataset]) -> list[Row]:
    return [row for dataset in datasets for row in dataset.rows]


def _silent(_: str) -> None:
    """No progress."""
