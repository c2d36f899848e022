"""``points.parquet`` as columns: names, types, and what each row may hold by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phaze_opt.certify.certificate import (
    NO_MULTIPLIERS,
    POINTS_FILE,
    Infeasibility,
    PlacementBound,
    PointStatus,
)
from phaze_opt.certify.check.report import demand, refuse
from phaze_opt.errors import CertificateError
from phaze_opt.hardware.template import AXES, AXIS, PointColumns

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Texts = NDArray[np.object_]

_ARROW_TYPES = {
    "index": "int64",
    **{axis.name: axis.parquet for axis in AXES},
    "area_mm2": "double",
    "tdp_w": "double",
    "throughput_samples_per_s": "double",
    "throughput_upper_samples_per_s": "double",
    "status": "string",
    "bound": "string",
    "reason": "string",
    "multipliers_index": "int32",
}
_COMPRESSIONS = ("SNAPPY", "UNCOMPRESSED")
"""Neither unpacks to much more than some twenty times its size."""
SPARE_ROWS = 10_000
"""Rows, beside twice as many as points, that are unpacked at most."""


@dataclass(frozen=True, slots=True)
class PointsTable:
    """Columns of ``points.parquet``, each of shape (num_rows,), named as in the file but for those of the point."""

    index: Ints
    points: PointColumns
    area_mm2: Floats
    tdp_w: Floats
    throughput_samples_per_s: Floats
    throughput_upper_samples_per_s: Floats
    status: Texts
    bound: Texts
    reason: Texts
    multipliers_index: Ints

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.index)

    @property
    def is_solved(self) -> NDArray[np.bool_]:
        """Rows that claim a solution, shape (num_rows,)."""
        return np.asarray(self.status == PointStatus.SOLVED.value, dtype=np.bool_)

    @property
    def has_bound(self) -> NDArray[np.bool_]:
        """Rows whose bound follows from multipliers, shape (num_rows,)."""
        return np.asarray(self.bound != PlacementBound.NONE.value, dtype=np.bool_)


def read_points(content: bytes, *, num_rows: int) -> PointsTable:
    """Read the table from the bytes of its file.

    The footer is judged first: columns, types and the number of rows, so that nothing larger than the space is
    unpacked. Text is unpacked as codes of the words that there are.

    Args:
        content: of the file.
        num_rows: points of the space; the table may have few more, so that the check can say which is too many.

    Raises:
        CertificateError: the file is truncated, or its columns, types or sizes are others.
    """
    import pyarrow
    from pyarrow import parquet

    words = [name for name, kind in _ARROW_TYPES.items() if kind == "string"]
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(content), read_dictionary=words)
        _check_footer(file, num_rows)
        table = file.read(use_threads=False)
        table.validate(full=True)
        for name in table.column_names:
            if table[name].null_count:
                refuse(f"column {name} has empty cells", file=POINTS_FILE)
        columns = {name: _column(table, name) for name in table.column_names}
        points = PointColumns(**{name: columns.pop(name) for name in AXIS if name in columns})
        return PointsTable(points=points, **columns)
    except CertificateError:
        raise
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        message = f"cannot be read as Parquet ({type(error).__name__})"
        refuse(message, file=POINTS_FILE, cause=error)


def _check_footer(file: Any, num_rows: int) -> None:
    """Columns, types, sizes and compression as they are written, and not many more rows than points."""
    metadata = file.metadata
    found = {field.name: str(getattr(field.type, "value_type", field.type)) for field in file.schema_arrow}
    missing = {name for name, axis in AXIS.items() if isinstance(axis.default, int) and name not in found}
    for name, kind in _ARROW_TYPES.items():
        if found.get(name) != kind and name not in missing:
            message = f"column {name} is {found.get(name, 'missing')}, not {kind}"
            refuse(message, file=POINTS_FILE)
    unknown = [name for name in file.schema_arrow.names if name not in _ARROW_TYPES]
    if unknown or metadata.num_columns != len(_ARROW_TYPES) - len(missing):
        refuse(f"columns {unknown or file.schema_arrow.names} are unknown or double", file=POINTS_FILE)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    if metadata.num_rows > 2 * num_rows + SPARE_ROWS or sum(group.num_rows for group in groups) != metadata.num_rows:
        message = f"states {metadata.num_rows:,} rows but the space has {num_rows:,} points"
        refuse(message, file=POINTS_FILE, row=min(num_rows, metadata.num_rows))
    for group in groups:
        for column in map(group.column, range(group.num_columns)):
            if column.compression not in _COMPRESSIONS or column.num_values != group.num_rows:
                message = f"column {column.path_in_schema} has {column.num_values:,} {column.compression} values"
                refuse(message, file=POINTS_FILE)


def _column(table: Any, name: str) -> Any:
    """One column as an array: whole numbers as int64, text as objects."""
    kind = _ARROW_TYPES[name]
    column = table[name]
    if kind != "string":
        return column.to_numpy().astype(np.float64 if kind == "double" else np.int64)
    parts = [np.array(chunk.dictionary.to_pylist(), dtype=object)[chunk.indices.to_numpy()] for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=object)


def check_rows(points: PointsTable) -> None:
    """What every row must hold by itself, before anything is worked out again.

    Raises:
        CertificateError: a number is not finite or negative, a word is unknown, or words and numbers disagree.
    """
    for name in ("area_mm2", "tdp_w", "throughput_samples_per_s", "throughput_upper_samples_per_s"):
        values = getattr(points, name)
        good = np.isfinite(values) & (values >= 0.0)
        demand(good, lambda row, n=name, v=values: f"{n} is {v[row]}, which is no finite number from 0 up")
    for name, words in (("status", PointStatus), ("bound", PlacementBound), ("reason", Infeasibility)):
        texts = getattr(points, name)
        known = np.isin(texts, [word.value for word in words])
        demand(known, lambda row, n=name, t=texts: f"{n} is '{t[row]:.40}', which is no {n} of a certificate")
    _check_agreement(points)


def _check_agreement(points: PointsTable) -> None:
    """Status, bound, reason, bounds and multipliers go together."""
    over_budget = np.isin(points.reason, [Infeasibility.OVER_AREA.value, Infeasibility.OVER_TDP.value])
    is_feasible = points.reason == Infeasibility.FEASIBLE.value
    upper, attained = points.throughput_upper_samples_per_s, points.throughput_samples_per_s
    demand(over_budget == ~points.has_bound, "bound is none where, and only where, a budget is broken")
    demand(
        (points.multipliers_index == NO_MULTIPLIERS) == ~points.has_bound,
        f"multipliers_index is {NO_MULTIPLIERS} where, and only where, bound is none",
    )
    demand(is_feasible | (upper == 0.0), "throughput_upper_samples_per_s is not 0 though the row is infeasible")
    demand(~is_feasible | (upper > 0.0), "throughput_upper_samples_per_s is 0 though the row is not infeasible")
    demand(is_feasible | ~points.is_solved, "an infeasible row cannot be solved")
    demand(
        points.is_solved == (attained > 0.0),
        "throughput_samples_per_s is above 0 where, and only where, the row is solved",
    )
