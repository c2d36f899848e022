"""One measured row of a data set, with typed access that names file, line and column when a value is wrong."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeVar

from phaze_opt.errors import InputError
from phaze_opt.hardware.device import Device
from phaze_opt.hardware.device_catalogue import DeviceCatalogue, find_device, shipped_devices
from phaze_opt.units import MICRO

T = TypeVar("T")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a CSV file.

    Attributes:
        dataset: published set whose models predict it.
        source, line: file and line.
        values: its texts by column, stripped, empty where not published.
        machines: what its ``hardware`` may name; the package's machines unless given.
        is_guessed: whether the set was guessed, so that nothing says which software the row is of.
    """

    dataset: str
    source: str
    line: int
    values: Mapping[str, str]
    machines: DeviceCatalogue | None = None
    is_guessed: bool = False

    @property
    def id(self) -> str:
        """Its id column, or its file and line if it has none."""
        return self.values.get("id") or f"{PurePath(self.source).stem or self.dataset}:{self.line}"

    def text(self, column: str, default: str | None = None) -> str:
        """Text of a column.

        Raises:
            InputError: empty or missing, without a default.
        """
        value = self.values.get(column, "")
        if value:
            return value
        if default is not None:
            return default
        raise self._fault(column, "is empty; give a value")

    def number(self, column: str, default: float | None = None) -> float:
        """Finite number of a column.

        Raises:
            InputError: empty without a default, no number, or not finite.
        """
        if default is not None and not self.values.get(column, ""):
            return default
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self._fault(column, f"value '{text[:40]}' is no number") from None
        if not math.isfinite(value):
            raise self._fault(column, f"value '{text[:40]}' is not finite")
        return value

    def integer(self, column: str, default: int | None = None) -> int:
        """Whole number of a column.

        Raises:
            InputError: as `number`, or the value has a fraction.
        """
        value = self.number(column, None if default is None else float(default))
        if value != int(value):
            raise self._fault(column, f"value {value} must be a whole number")
        return int(value)

    def joined(self, *columns: str) -> str:
        """Texts of some columns, as the name of a configuration."""
        return "|".join(self.values.get(column, "") for column in columns)

    def device(self) -> Device:
        """The machine of its ``hardware`` column.

        Raises:
            InputError: the column is empty (with its line), or names no one machine (without).
        """
        name, known = self.text("hardware"), self._catalogue
        device = self.find_device()
        if device is not None:
            return device
        if known.named(name):
            return known.load(name)
        message = f"{known.explain(name)} or describe it in a file of its own (--machine)"
        raise InputError(message, key="hardware")

    def find_device(self) -> Device | None:
        """As `device`; None if the column names no one machine, or there is none."""
        name = self.text("hardware", "")
        if not name:
            return None
        return find_device(name) if self.machines is None else self.machines.find(name)

    @property
    def _catalogue(self) -> DeviceCatalogue:
        return shipped_devices() if self.machines is None else self.machines

    def _fault(self, column: str, rule: str) -> InputError:
        return InputError(f"column '{column}': {rule}", source=self.source, line=self.line)


def latency_s(row: Row) -> float:
    """Measured time of a row of operators or collectives, s."""
    return row.number("latency_us") * MICRO


def shown(text: str) -> str:
    """A name or a value as it stands in a message: on one line, and cut."""
    return " ".join(text.split())[:_SHOWN]


def read_rows(read: Callable[[Row], T | str], rows: Sequence[Row]) -> tuple[dict[int, T], dict[int, str]]:
    """What rows describe, by index, and of the others why they cannot be predicted.

    Args:
        read: what one row describes, or a reason; an `InputError` is a reason too unless it is of a place of the row.
        rows: any.

    Raises:
        InputError: a malformed value, by file, line and column.
    """
    found: dict[int, T] = {}
    refused: dict[int, str] = {}
    for index, row in enumerate(rows):
        try:
            value = read(row)
        except InputError as error:
            if error.line is not None and error.source == row.source:
                raise
            value = str(error)
        if isinstance(value, str):
            refused[index] = value
        else:
            found[index] = value
    return found, refused
