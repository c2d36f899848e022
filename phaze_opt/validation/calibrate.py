"""Fit the constants of families to measurements, and say how well they predict rows kept out of the fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.fitted_writing import build_groups
from phaze_opt.validation.held_out import (
    Progress,
    cells_of,
    fit_family,
    fold_by_cell,
    leave_one_out,
    predict_held_out,
    with_starts,
)
from phaze_opt.validation.predict import predict_rows
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
        if reason:
            unfitted.append(reason)
        if reason or not parameters:
            continue
        tell(f"{family.name}: {len(parameters)} constants to {len(rows)} rows")
        known = constants
        constants = with_starts(fit_family(family, rows, known), parameters)
        held_out = _held_out(family, rows, known, keeps_groups=is_start_known, tell=tell) if has_held_out else {}
        fitted = FittedRows(rows, cells_of(family, rows), predict_rows([family], rows, constants), held_out)
        groups = _groups(parameters, constants, fitted, source)
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
    parameters: Sequence[FitParameter], constants: FittedConstants, fitted: FittedRows, source: str
) -> dict[str, FittedGroup]:
    """Groups of the file, each with the rows that it touches."""
    users = rows_by_group(parameters, constants, fitted.predictions)
    return build_groups(
        parameters,
        constants,
        datasets={name: ids_by_dataset(fitted.rows, indices) for name, indices in users.items()},
        residuals={name: residuals(fitted, indices) for name, indices in users.items()},
        source=source,
    )


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
