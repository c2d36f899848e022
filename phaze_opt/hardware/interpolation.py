"""Log-log interpolation of published tables, exact at their entries."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from phaze_opt.record.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class LogLogTable:
    """A positive function given at increasing positive points.

    Between entries it is linear in log-log; beyond the first and last entry the outermost segment is continued.
    At an entry the published figure is returned bit for bit, so that sums of table entries stay exact.
    """

    points: tuple[float, ...]
    values: tuple[float, ...]

    def __call__(self, queries: Ints | Floats) -> Floats:
        """Values at ``queries`` (any shape); same shape."""
        points, values = np.array(self.points), np.array(self.values)
        query = np.asarray(queries, dtype=np.float64)
        segment = np.clip(np.searchsorted(points, query, side="right") - 1, 0, len(points) - 2)
        log_points, log_values = np.log(points), np.log(values)
        # A line in log-log is a power law, which areas and energies of memories follow over a few doublings.
        slope = np.diff(log_values) / np.diff(log_points)
        estimate = np.exp(log_values[segment] + slope[segment] * (np.log(query) - log_points[segment]))
        exact = np.clip(np.searchsorted(points, query), 0, len(points) - 1)
        return np.where(points[exact] == query, values[exact], estimate)


def read_csv_rows(name: str) -> Sequence[dict[str, str]]:
    """Rows of a table that ships beside this module; lines that begin with ``#`` are notes."""
    text = resources.files("phaze_opt.hardware").joinpath(name).read_text(encoding="utf-8")
    return tuple(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
