"""The seam of this room: a family predicts the rows of some data sets and says which constants it can fit."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.record.arrays import Floats
from phaze_opt.validation.measured_row import Row, read_rows

Label = Callable[[Row], str]


@dataclass(frozen=True, slots=True)
class FitParameter:
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
    def measured_s(self) -> Floats:
        """Measured time of every row given, shape (num_rows,); meaningless where unscored."""
        ...

    @property
    def unscored(self) -> Mapping[int, str]:
        """Why a row cannot be predicted, by its index; those rows' predictions are nan."""
        ...

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored."""
        ...

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one row goes; the parts add up to it."""
        ...


@runtime_checkable
class RangedRows(Protocol):
    """Compiled rows some of which are priced in several ways, as the middle of them."""

    def range_s(self, fitted: FittedConstants) -> tuple[Floats, Floats]:
        """Least and most of every row, shape (num_rows,), s; nan where unscored."""
        ...


@runtime_checkable
class TermedRows(Protocol):
    """Compiled rows whose predictions are sums of named terms."""

    def longest(self, fitted: FittedConstants) -> Sequence[str]:
        """Name of the term that takes longest of every row, ``(num_rows,)``; empty where unscored."""
        ...


class CompiledBlock(Protocol):
    """Rows that are predicted in one call: one device, one type, one kind of operator or the like."""

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted times, shape (rows of the block,), s."""
        ...

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one of them goes."""
        ...


Case = TypeVar("Case")
Block = TypeVar("Block", bound=CompiledBlock)


@dataclass(frozen=True, slots=True, eq=False)
class BlockedRows(Generic[Block]):
    """Rows compiled in blocks.

    Attributes:
        measured_s: measured time of every row, shape (num_rows,), s.
        unscored: why a row is not predicted, by its index.
        blocks: with the places of their rows.
    """

    measured_s: Floats
    unscored: Mapping[int, str]
    blocks: tuple[tuple[list[int], Block], ...]

    def seconds(self, fitted: FittedConstants) -> Floats:
        """Predicted time of every row, shape (num_rows,), s; nan where unscored."""
        predicted = np.full(len(self.measured_s), np.nan)
        for places, block in self.blocks:
            predicted[places] = block.seconds(fitted)
        return predicted

    def explain(self, fitted: FittedConstants, index: int) -> tuple[Part, ...]:
        """Where the predicted time of one row goes; nothing for an unscored row."""
        for places, block in self.blocks:
            if index in places:
                return block.explain(fitted, places.index(index))
        return ()


def compile_blocks(
    rows: Sequence[Row],
    *,
    read: Callable[[Row], Case | str],
    measured: Callable[[Row], float],
    build: Callable[[Sequence[Case], Sequence[Row]], Block],
    key: Callable[[Case], Hashable] = id,
) -> BlockedRows[Block]:
    """Rows read and put into blocks, in the order of their first rows.

    Args:
        rows: any.
        read: what one row describes, or why it is not predicted; see `read_rows`.
        measured: measured time of one row, s.
        build: the block of rows with one key, of what they describe and the rows themselves.
        key: what rows of a block share; every row is a block of its own unless given.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    measured_s = np.array([measured(row) for row in rows], float)
    cases, unscored = read_rows(read, rows)
    places: dict[Hashable, list[int]] = {}
    for index, case in cases.items():
        places.setdefault(key(case), []).append(index)
    blocks = ((own, build([cases[at] for at in own], [rows[at] for at in own])) for own in places.values())
    return BlockedRows(measured_s, unscored, tuple(blocks))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """What predicts the rows of some data sets.

    Attributes:
        name: short name, such as ``operators``.
        datasets: data sets (file stems) that it predicts.
        parameters: what can be fitted on some rows: few, each with a physical meaning.
        compile: prepares rows; a row that cannot be predicted is unscored with a reason, and an `InputError` is for
            malformed values, by file, line and column.
        regime: which regime a row belongs to, for errors by regime (``memory-bound``, ``tp 8 pp 16`` ...).
        cell: what folds of a cross-validation may not split: rows of one cell are near copies of each other.
        fit: its own fit, such as one in steps or with weights by data set: gives the constants with the family's
            parameters fitted to the rows. Bounded least squares of all at once unless given.
        is_pulled: whether that pulls constants to their starts (`validation.fit.fit_towards_starts`).
        splits: what generalisation is tested over, such as devices or hidden sizes: by name of a test the label of a
            row. Each label is kept out of a fit in turn; rows with an empty one are always fitted, never scored.
        is_fitted: which rows fits may see; the others are predicted alone.
        facts: what decides how far off a row's prediction may be, by name, beside `validation.validate.row_facts`.
        scaled_by: traits of the scale of its errors (`hardware.spreads.Scale`).
        unseen: the kind of ranges of a row of which nobody knows the software; empty where none plays a part.
        nearness: how near a row's machine is to others that were measured, in a word or two: what ranges of a machine
            never seen differ by; empty where nothing is known of it.
        apart: the kind of ranges of a user's row that is like none of those kept out by cells; empty for others.
        predict_unmeasured: of rows whose value nobody published, what is predicted, by index; nothing is scored.
    """

    name: str
    datasets: tuple[str, ...]
    parameters: Callable[[Sequence[Row]], tuple[FitParameter, ...]]
    compile: Callable[[Sequence[Row]], CompiledRows]
    regime: Label
    cell: Label
    fit: Callable[[Sequence[Row], FittedConstants], FittedConstants] | None = None
    is_pulled: bool = False
    splits: Mapping[str, Label] = field(default_factory=dict)
    is_fitted: Callable[[Row], bool] = lambda row: True
    facts: Callable[[Row], Mapping[str, str]] = lambda row: {}
    scaled_by: tuple[str, ...] = ("set", "machine", "regime")
    unseen: str = ""
    nearness: Label = lambda row: ""
    apart: Label = lambda row: ""
    predict_unmeasured: Callable[[Sequence[Row], FittedConstants], Mapping[int, float]] = lambda rows, fitted: {}

    @property
    def has_own_fit(self) -> bool:
        """Whether its fit is another than plain bounded least squares."""
        return self.is_pulled or self.fit is not None
