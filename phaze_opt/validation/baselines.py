"""Trivial models to compare with: a constant utilisation, a roofline times a constant, a line for collectives.

They are fitted to the public measurements that come with the package, with the constant that is best for their own mean
error, and then predict whatever is validated.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.record.arrays import Floats
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.fit import TOLERANCE, rounded
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.row_times import AMOUNTS, MEASURED, SENT_BYTES, ideal_seconds, measured_seconds
from phaze_opt.validation.schema import DATASET_SCHEMAS, KERNEL_SETS


@dataclass(frozen=True, slots=True)
class Line:
    """Time = offset + slope x ideal; offset 0 for all but collectives."""

    offset_s: float
    slope: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """Lines by narrow key (device, operator), by wide key, and one for the whole set."""

    kind: str
    lines: Mapping[tuple[str, ...], Line]

    def seconds(self, rows: Sequence[Row]) -> Floats:
        """As `row_seconds`, shape (num_rows,)."""
        return np.array([self.row_seconds(row) for row in rows])

    def row_seconds(self, row: Row) -> float:
        """Predicted time of a row, s; nan where the device is not known."""
        line = next((self.lines[key] for key in _keys(row, self.kind) if key in self.lines), None)
        ideal = ideal_seconds(row, self.kind)
        return math.nan if line is None else line.offset_s + line.slope * ideal


def describe_baseline(kind: str) -> str:
    """What the baseline of a kind of file is, for tables; empty if there is none."""
    return {
        "operators": "roofline x one constant per device and operator",
        "attention": "roofline x one constant per device and type",
        "experts": "roofline x one constant per device and type",
        "collectives": "latency and bandwidth, one line per fabric",
        "expert exchanges": "latency and bandwidth, one line per device and direction",
        "training": "one utilisation per set and device",
        "layer": "one utilisation",
        "whole model": "one utilisation per device and mode",
        "memory": "one amount per device",
    }.get(kind, "")


def fit_baselines(datasets: Sequence[Dataset]) -> dict[str, Baseline]:
    """Baselines by published set, fitted to these measurements (the package's public half)."""
    return {
        dataset.name: Baseline(dataset.schema.kind, _fit_lines(dataset))
        for dataset in datasets
        if dataset.schema.kind in {*MEASURED, *AMOUNTS} and dataset.name in DATASET_SCHEMAS
    }


def _fit_lines(dataset: Dataset) -> dict[tuple[str, ...], Line]:
    kind = dataset.schema.kind
    parts: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for row in dataset.rows:
        ideal = ideal_seconds(row, kind)
        if math.isfinite(ideal):
            for key in _keys(row, kind):
                parts.setdefault(key, []).append((ideal, measured_seconds(row, kind)))
    fit: Callable[[Floats, Floats], Line] = _fit_line if kind in SENT_BYTES else _fit_constant
    return {key: fit(*np.array(pairs).T) for key, pairs in parts.items()}


def _keys(row: Row, kind: str) -> tuple[tuple[str, ...], ...]:
    """Keys of a row's line, narrowest first."""
    if row.dataset in KERNEL_SETS:
        narrow = (row.text("hardware"), f"{_operator(row)} {row.text('dtype')}")
    elif kind == "operators":
        narrow = (_scope(row), _operator(row))
    elif kind == "collectives":
        narrow = (row.text("hardware"), row.text("fabric", ""))
    elif kind == "expert exchanges":
        narrow = (row.text("hardware"), row.text("collective"))
    else:
        narrow = (row.text("hardware"), row.text("mode", ""))
    return narrow, ("any", *narrow[1:]), ()


def _scope(row: Row) -> str:
    """Device; all devices together where a set has hardly more than one row of each."""
    return "any" if row.dataset == "op_best_matmul" else row.text("hardware")


def _operator(row: Row) -> str:
    """Operator without what distinguishes its places in a layer: ``matmul`` for all with an inner size."""
    if row.text("k", ""):
        return "matmul"
    return row.text("op").rpartition(":")[2].partition("_")[0]


def _fit_constant(ideal: Floats, measured: Floats) -> Line:
    """The factor of least mean absolute percentage error: a weighted median of measured / ideal."""
    # The sum of |c / ratio - 1| bends where c is a row's ratio, by a weight of 1 / ratio: it is least where half of all
    # weight lies below c.
    ratios = measured / ideal
    order = np.argsort(ratios, kind="stable")
    weights = np.cumsum(1.0 / ratios[order])
    chosen = order[int(np.searchsorted(weights, weights[-1] / 2.0))]
    return Line(0.0, float(ratios[chosen]))


def _fit_line(ideal: Floats, measured: Floats) -> Line:
    """Offset and slope of least absolute log error, softened."""
    from scipy.optimize import least_squares

    # The shortest time shows the offset, the largest tenth of payloads the slope.
    large = ideal >= np.quantile(ideal, 0.9)
    start = np.log([measured.min(), float(np.median(measured[large] / ideal[large]))])

    def residuals(position: Floats) -> Floats:
        offset, slope = np.exp(position)
        return np.asarray(np.log((offset + slope * ideal) / measured))

    found = least_squares(residuals, start, loss="soft_l1", f_scale=0.05, xtol=TOLERANCE, ftol=None, gtol=None)
    offset, slope = np.exp(found.x)
    return Line(rounded(float(offset)), rounded(float(slope)))
