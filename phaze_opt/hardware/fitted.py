"""Constants fitted to measurements of real machines: values, bounds, residuals and rows (fitted_constants.json).

The file is written by `phaze_opt.validation.calibrate` only. Every group is one thing that was fitted: the operators of
a device under one clock, the all-reduce of a fabric, a training software stack.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from pydantic import BaseModel, ConfigDict

from phaze_opt.errors import InputError
from phaze_opt.record.document import parse_json_object
from phaze_opt.record.input_files import read_text_file
from phaze_opt.record.suggestions import suggest

FORMAT = 1
ROUNDING = 1e-5
"""Values are written with six digits: by so much one at a bound may stand beyond it."""

_KIND = "a file of fitted constants as `phaze-opt calibrate` writes it"


@dataclass(frozen=True, slots=True, eq=False)
class FittedConstants:
    """Values by group and name, such as ``operators/a100-80g/host`` and ``launch_s``; SI units.

    Attributes:
        groups: values of every group.
    """

    groups: Mapping[str, Mapping[str, float]]
    _digest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        """Freeze the mappings; those of other constants are frozen already."""
        frozen = {
            name: values if isinstance(values, MappingProxyType) else MappingProxyType(dict(values))
            for name, values in self.groups.items()
        }
        object.__setattr__(self, "groups", MappingProxyType(frozen))

    @property
    def digest(self) -> str:
        """Sha256 of the values, hexadecimal; taken when first asked for, as fits make thousands of such values."""
        if not self._digest:
            # Values alone: bounds, residuals and rows of the file change no prediction.
            plain = {name: dict(values) for name, values in self.groups.items()}
            text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
            object.__setattr__(self, "_digest", hashlib.sha256(text.encode()).hexdigest())
        return self._digest

    def __reduce__(self) -> "tuple[type[FittedConstants], tuple[dict[str, dict[str, float]]]]":
        """Pickle as plain dictionaries: a mapping proxy does not pickle."""
        return FittedConstants, ({name: dict(values) for name, values in self.groups.items()},)

    def __eq__(self, other: object) -> bool:
        """Equal values."""
        return isinstance(other, FittedConstants) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash of the digest."""
        return hash(self.digest)

    def has(self, group: str) -> bool:
        """Whether anything was fitted under this name."""
        return group in self.groups

    def group(self, name: str) -> Mapping[str, float]:
        """Values of one group.

        Raises:
            InputError: nothing was fitted under this name; the message names a near miss.
        """
        if name not in self.groups:
            message = f"nothing was fitted under '{name}'; {suggest(name, tuple(self.groups))}"
            raise InputError(message, key=name)
        return self.groups[name]

    def value(self, group: str, name: str) -> float:
        """One value, SI.

        Raises:
            InputError: the group or the constant is unknown.
        """
        values = self.group(group)
        if name not in values:
            message = f"group '{group}' has no constant '{name}'; {suggest(name, tuple(values))}"
            raise InputError(message, key=name)
        return values[name]

    def updated(self, groups: Mapping[str, Mapping[str, float]]) -> "FittedConstants":
        """The same with some groups' values replaced or added; names not given keep their value."""
        return FittedConstants(
            {**self.groups, **{name: {**self.groups.get(name, {}), **values} for name, values in groups.items()}}
        )


class FittedValue(BaseModel):
    """One constant of the file: its value, the bounds it was fitted within, its unit and what it means."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    value: float
    low: float
    high: float
    unit: str
    meaning: str


class FittedGroup(BaseModel):
    """One group of the file.

    Attributes:
        constants: by name.
        datasets: rows used, as ids by data set.
        residuals: figures of the fit in per cent by name (``mape``, ``median_ape``, ``cross_validated_mape`` ...).
        source: what fitted it, or where a value that was not fitted comes from.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    constants: dict[str, FittedValue]
    datasets: dict[str, list[str]]
    residuals: dict[str, float]
    source: str


class FittedFile(BaseModel):
    """The whole file.

    Attributes:
        format: of the file.
        groups: by name.
        sets: by data set fitted to, mean errors in per cent by name (``mape``, ``cross_validated_mape``,
            ``leave_one_device_out_mape`` ...).
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: int
    groups: dict[str, FittedGroup]
    sets: dict[str, dict[str, float]] = {}

    def constants(self) -> FittedConstants:
        """Values alone, as the models read them."""
        return FittedConstants(
            {name: {key: entry.value for key, entry in group.constants.items()} for name, group in self.groups.items()}
        )


def read_fitted_file(path: Path) -> FittedFile:
    """The file with bounds, residuals and rows.

    Raises:
        InputError: it cannot be read, or is no such file; names the key.
    """
    return _parse(read_text_file(path, kind=_KIND), source=str(path))


def load_fitted(path: Path | None = None) -> FittedConstants:
    """The package's fitted constants, or those of a file that ``phaze-opt calibrate`` wrote.

    Raises:
        InputError: the file is faulty, or lacks constants that the package's groups of the same names have.
    """
    if path is None:
        return _load_own()
    found = read_fitted_file(path).constants()
    missing = missing_constants(found)
    if missing:
        message = f"lacks {len(missing)} constants that this version reads, such as {missing[0]}; fit the file anew"
        raise InputError(message, source=str(path))
    return found


def missing_constants(fitted: FittedConstants) -> list[str]:
    """Constants that groups of a file lack and the package's groups of the same names have, ``NAME of GROUP``."""
    own = _load_own().groups
    return [
        f"{key} of {name}" for name, known in fitted.groups.items() for key in own.get(name, {}) if key not in known
    ]


@cache
def read_own_file() -> FittedFile:
    """The package's file with bounds, residuals and rows."""
    file = resources.files("phaze_opt.hardware").joinpath("fitted_constants.json")
    return _parse(file.read_text(encoding="utf-8"), source="fitted_constants.json")


@cache
def _load_own() -> FittedConstants:
    return read_own_file().constants()


def _parse(text: str, *, source: str) -> FittedFile:
    file = parse_json_object(text, source=source, kind=_KIND).validate(FittedFile)
    _check(file, source=source)
    return file


def _check(file: FittedFile, *, source: str) -> None:
    """A format of its own would be read wrongly; a value beyond its bounds gives times that mean nothing.

    Raises:
        InputError: either, by key.
    """
    if file.format != FORMAT:
        message = f"{file.format} is not the format that this version reads, {FORMAT}; fit the file anew"
        raise InputError(message, source=source, key="format")
    for name, group in file.groups.items():
        for key, entry in group.constants.items():
            low, high = entry.low - ROUNDING * abs(entry.low), entry.high + ROUNDING * abs(entry.high)
            if not low <= entry.value <= high:
                message = f"{entry.value:g} is not within its bounds, {entry.low:g} to {entry.high:g}"
                raise InputError(message, source=source, key=f"groups.{name}.constants.{key}.value")
