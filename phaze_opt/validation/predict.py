"""Predictions of rows, each by the family of the published set that it is like, also by constants fitted without it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Flags, Floats
from phaze_opt.record.suggestions import suggest
from phaze_opt.validation.collectives import COLLECTIVE_KINDS, COLLECTIVES
from phaze_opt.validation.dies import DIES
from phaze_opt.validation.family import CompiledRows, Family, FitParameter, Part, RangedRows, TermedRows
from phaze_opt.validation.fit import Progress, fit_family, with_starts, without_groups
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.memory import MEMORY
from phaze_opt.validation.operators import OPERATORS
from phaze_opt.validation.packs import pack_families
from phaze_opt.validation.schema import NOT_PREDICTED
from phaze_opt.validation.silicon import SILICON
from phaze_opt.validation.training.family import EXPERTS, MODERN_TRAINING, TRAINING

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


FAMILIES = (COLLECTIVES, COLLECTIVE_KINDS, OPERATORS, TRAINING, MODERN_TRAINING, EXPERTS, MEMORY, SILICON, DIES)
"""Of the package, in the order of fitting: later ones may build on earlier ones."""


def load_families(names: Sequence[str] = ()) -> tuple[Family, ...]:
    """The package's families and those of packs, or some of them by name, in the order of fitting.

    Raises:
        InputError: an unknown name, with a near miss.
    """
    families = (*FAMILIES, *pack_families())
    known = [family.name for family in families]
    for name in names:
        if name not in known:
            message = f"no family of models is named '{name}'; {suggest(name, known)}"
            raise InputError(message, source="--only")
    return tuple(family for family in families if not names or family.name in names)
