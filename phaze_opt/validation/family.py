"""The seam of this room: a family predicts the rows of some data sets and says which constants it can fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.row import Row


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that may be fitted: its place, unit, physical bounds, start and meaning; SI units.

    ``is_log`` fits its logarithm: rates, bandwidths and times whose size is unknown.
    """

    group: str
    name: str
    unit: str
    low: float
    high: float
    start: float
    meaning: str
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A named share of a predicted time, s."""

    name: str
    seconds: float


class CompiledRows(Protocol):
    """Rows prepared once, predicted again and again under other constants."""

    @property
    def measured_s(self) -> NDArray[np.float64]:
        """Measured time of every row given, shape (num_rows,); meaningless where unscored."""
        ...

    @property
    def unscored(self) -> Mapping[int, str]:
        """Why a row cannot be predicted, by its index; those rows' predictions are nan."""
        ...

    def seconds(self, fitted: FittedConstants) -> NDArray[np.float64]:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored."""
        ...

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one row goes; the parts add up to it."""
        ...


class Family(Protocol):
    """Predicts the rows of some data sets."""

    @property
    def name(self) -> str:
        """Short name, such as ``operators``."""
        ...

    @property
    def datasets(self) -> tuple[str, ...]:
        """Data sets (file stems) that it predicts."""
        ...

    def parameters(self, rows: Sequence[Row]) -> tuple[Parameter, ...]:
        """What can be fitted on these rows: few, each with a physical meaning."""
        ...

    def compile(self, rows: Sequence[Row]) -> CompiledRows:
        """Prepare rows; a row that cannot be predicted is unscored with a reason, never an exception.

        Raises:
            InputError: a malformed value, by file, line and column.
        """
        ...

    def regime(self, row: Row) -> str:
        """Which regime a row belongs to, for errors by regime (``memory-bound``, ``tp 8 pp 16`` ...)."""
        ...

    def cell(self, row: Row) -> str:
        """What folds of a cross-validation may not split: rows of one cell are near copies of each other."""
        ...


@runtime_checkable
class FitsItself(Protocol):
    """What a family may offer besides: its own fit, such as one in steps or with weights by data set."""

    def fit(self, rows: Sequence[Row], start: FittedConstants) -> FittedConstants:
        """``start`` with the family's parameters fitted to these rows; deterministic."""
        ...


@runtime_checkable
class HoldsOut(Protocol):
    """What a family may offer besides: what generalisation is tested over, such as devices or hidden sizes."""

    def splits(self, rows: Sequence[Row]) -> Mapping[str, Sequence[str]]:
        """By name of a test (``device``), the label of every row; each label is kept out of a fit in turn.

        Rows with an empty label are always fitted and never scored in that test.
        """
        ...
