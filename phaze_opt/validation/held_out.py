"""Rows kept out of a fit in turn, and their predictions: by cells, or a device, a size or a model at a time."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.family import Family, FitParameter
from phaze_opt.validation.fit import fit_parameters
from phaze_opt.validation.fitted_writing import as_written
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.predict import predict_rows

Progress = Callable[[str], None]
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
    # By hashes: as mixed as a random draw, and the same on every machine and for any order of the rows.
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


def fit_family(family: Family, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
    """Fit a family's parameters to those rows that it fits, by its own method, else by bounded least squares.

    Values are as they are written.

    Linear algebra runs on one thread: more would add up in another order, and a fit end in other last digits.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        own = [row for row in rows if family.is_fitted(row)]
        parameters = family.parameters(own)
        if family.fit is not None:
            return as_written(parameters, family.fit(own, start))
        return as_written(parameters, fit_parameters(family.compile(own), parameters, start))


def without_groups(fitted: FittedConstants, names: Collection[str]) -> FittedConstants:
    """The constants without some groups."""
    return FittedConstants({name: values for name, values in fitted.groups.items() if name not in names})


def cells_of(family: Family, rows: Sequence[Row]) -> tuple[str, ...]:
    """Cell of every row; cells of different data sets are different."""
    return tuple(f"{row.dataset}|{family.cell(row)}" for row in rows)


def predict_held_out(
    family: Family,
    rows: Sequence[Row],
    folds: Sequence[Fold],
    start: FittedConstants,
    *,
    keeps_groups: bool = False,
    on_progress: Progress | None = None,
) -> Floats:
    """Predict every row by constants fitted without it; nan where no fold holds it out or it is unscored.

    Args:
        family: what predicts.
        rows: all rows of the family.
        folds: parts to keep out in turn.
        start: constants of other families; the family's own are dropped, so that nothing is known of rows kept out.
        keeps_groups: begin at the family's own constants in ``start`` all the same: they come from other measurements.
        on_progress: told the label of each fold.

    Returns:
        Shape (num_rows,), s.
    """
    parameters = family.parameters(rows)
    own = () if keeps_groups else {parameter.group for parameter in parameters}
    bare = without_groups(start, own)
    predicted = np.full(len(rows), np.nan)
    for fold in folds:
        if on_progress is not None:
            on_progress(fold.label)
        fitted = fit_family(family, [rows[index] for index in fold.kept], bare)
        held_out = [rows[index] for index in fold.held_out]
        predicted[list(fold.held_out)] = _predict_unseen(family, held_out, fitted, parameters)
    return predicted


def _predict_unseen(
    family: Family, rows: Sequence[Row], fitted: FittedConstants, parameters: Sequence[FitParameter]
) -> Floats:
    """Predict rows of perhaps unseen groups: by what the family makes of it, else by the parameters' starts."""
    try:
        return predict_rows([family], rows, fitted).predicted_s
    except InputError:
        return predict_rows([family], rows, with_starts(fitted, parameters)).predicted_s


def with_starts(fitted: FittedConstants, parameters: Sequence[FitParameter]) -> FittedConstants:
    """The constants, and the start of every parameter that has no value."""
    missing: dict[str, dict[str, float]] = {}
    for parameter in parameters:
        if parameter.name not in fitted.groups.get(parameter.group, {}):
            missing.setdefault(parameter.group, {})[parameter.name] = parameter.start
    return fitted.updated(missing)
