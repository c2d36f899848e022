"""Columns of design points: of points told, of random draws, and of some rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from phaze_opt.space.decode import PointColumns, decode_columns
from phaze_opt.space.point import DesignPoint
from phaze_opt.space.search_space import SearchSpace


def columns_of(points: Sequence[DesignPoint]) -> PointColumns:
    """Columns of points, in their order."""
    return PointColumns(
        **{
            field.name: np.array([getattr(point, field.name) for point in points], dtype=np.int64)
            for field in fields(PointColumns)
        }
    )


def draw_columns(space: SearchSpace, *, count: int, rng: np.random.Generator) -> PointColumns:
    """Kept points, each equally likely, with replacement."""
    return decode_columns(space, rng.integers(space.size, size=count))


def take_rows(columns: PointColumns, rows: NDArray[np.intp]) -> PointColumns:
    """Some of the rows, in the order given."""
    return PointColumns(**{field.name: getattr(columns, field.name)[rows] for field in fields(columns)})
