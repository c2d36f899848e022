"""``points.parquet`` as columns: names, types, and what each row may hold by itself."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
from phaze_opt.certify.check.refusal import refuse

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Texts = NDArray[np.object_]

_ARROW_TYPES = {
    "index": "int64",
    "num_tc": "int32",
    "num_vc": "int32",
    "tc_width": "int32",
    "tc_depth": "int32",
    "vc_width": "int32",
    "glb_bytes": "int64",
    "hbm_bytes": "int64",
    "micro_batch": "int32",
    "area_mm2": "double",
    "tdp_w": "double",
    "throughput_samples_per_s": "double",
    "throughput_upper_samples_per_s": "double",
    "status": "string",
    "bound": "string",
    "reason": "string",
    "multipliers_index": "int32",
}
POINT_COLUMNS = (
    "num_tc",
    "num_vc",
    "tc_width",
    "tc_depth",
    "vc_width",
    "glb_bytes",
    "hbm_bytes",
    "micro_batch",
)
"""Columns that are the point itself."""


@dataclass(frozen=True, slots=True)
class PointsTable:
    """Columns of ``points.parquet``, each of shape (num_rows,), named as in the file."""

    index: Ints
    num_tc: Ints
    num_vc: Ints
    tc_width: Ints
    tc_depth: Ints
    vc_width: Ints
    glb_bytes: Ints
    hbm_bytes: Ints
    micro_batch: Ints
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


def read_points(content: bytes) -> PointsTable:
    """Read the table from the bytes of its file.

    Raises:
        CertificateError: the file is truncated, or its columns or types are others.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(pyarrow.BufferReader(content), use_threads=False)
        table.validate(full=True)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        message = f"cannot be read as Parquet ({type(error).__name__})"
        refuse(message, file=POINTS_FILE, cause=error)
    found = {field.name: str(field.type) for field in table.schema}
    for name, kind in _ARROW_TYPES.items():
        if found.get(name) != kind:
            message = f"column {name} is {found.get(name, 'missing')}, not {kind}"
            refuse(message, file=POINTS_FILE)
    unknown = [name for name in table.column_names if name not in _ARROW_TYPES]
    if unknown or len(table.column_names) != len(_ARROW_TYPES):
        refuse(f"columns {unknown or table.column_names} are unknown or double", file=POINTS_FILE)
    for name in _ARROW_TYPES:
        if table[name].null_count:
            refuse(f"column {name} has empty cells", file=POINTS_FILE)
    return PointsTable(**{field.name: _column(table, field.name) for field in fields(PointsTable)})


def _column(table: Any, name: str) -> Any:
    """One column as an array: whole numbers as int64, text as objects."""
    kind = _ARROW_TYPES[name]
    if kind == "string":
        return np.array(table[name].to_pylist(), dtype=object)
    return table[name].to_numpy().astype(np.float64 if kind == "double" else np.int64)


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
        demand(known, lambda row, n=name, t=texts: f"{n} is '{t[row]}', which is no {n} of a certificate")
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


def demand(good: NDArray[np.bool_] | np.bool_, rule: Any, *, offset: int = 0) -> None:
    """Refuse the first row that is not good.

    Args:
        good: of each row, shape (num_rows,).
        rule: the sentence's end, or what makes it from the row's position.
        offset: row of the first position.

    Raises:
        CertificateError: names the row.
    """
    if bool(np.all(good)):
        return
    row = int(np.argmin(good))
    message = rule(row) if callable(rule) else rule
    refuse(message, file=POINTS_FILE, row=row + offset)
