"""Constants with their sources and ranges, and the estimator's disputable options, read from constants.toml."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from phaze_opt.errors import InputError
from phaze_opt.record.document import Document, parse_toml, read_toml
from phaze_opt.record.input_files import is_number, shorten
from phaze_opt.record.suggestions import suggest

_OPTIONS_TABLE = "estimator_options"
_OPTION = "estimator option"
_VECTOR_CYCLES = "vector_cycles"
_T = TypeVar("_T")
_VECTOR_CYCLES_FACTOR = MappingProxyType({"nominal": 1.0, "halved": 0.5, "doubled": 2.0})


@dataclass(frozen=True, slots=True)
class Constant:
    """One constant: ``value`` in ``unit``, its plausible range, and its source or the reason it was assumed.

    ``option`` names the estimator option that alone reads it: while the option is unsaid, the constant is not varied.
    ``parameter`` names the parameter of the chip that alone reads it: the constant is varied where a chip has it.
    """

    value: float
    low: float
    high: float
    unit: str
    source: str
    is_assumption: bool
    option: str = ""
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class EstimatorOption:
    """One named choice of the estimator, what else it could be, and where the alternatives come from.

    ``unsaid`` is the choice under which neither the option nor the constants that it alone reads are varied.
    """

    choice: str
    alternatives: tuple[str, ...]
    source: str
    unsaid: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Constants:
    """All constants and options; two are equal when their values and choices are.

    Attributes:
        entries: constants by dotted key (``energy.hbm_pj_per_bit``).
        options: estimator options by name (``glb_limit``).
        digest: sha256 of the canonical values and choices, hexadecimal.
    """

    entries: Mapping[str, Constant]
    options: Mapping[str, EstimatorOption]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        """Freeze the mappings and take the digest."""
        values = {key: float(entry.value) for key, entry in self.entries.items()}
        choices = {name: option.choice for name, option in self.options.items()}
        # Values and choices alone: sources and ranges may be put in other words without another identity.
        canonical = json.dumps([values, choices], sort_keys=True, separators=(",", ":"), allow_nan=False)
        object.__setattr__(self, "entries", MappingProxyType(dict(self.entries)))
        object.__setattr__(self, "options", MappingProxyType(dict(self.options)))
        object.__setattr__(self, "digest", hashlib.sha256(canonical.encode()).hexdigest())

    def __reduce__(self) -> "tuple[type[Constants], tuple[dict[str, Constant], dict[str, EstimatorOption]]]":
        """Pickle as plain dictionaries: a mapping proxy does not pickle."""
        return Constants, (dict(self.entries), dict(self.options))

    def __eq__(self, other: object) -> bool:
        """Equal values and choices."""
        return isinstance(other, Constants) and self.digest == other.digest

    def __hash__(self) -> int:
        """Hash of the digest."""
        return hash(self.digest)

    def value(self, key: str) -> float:
        """Value of a constant, in its own unit.

        Raises:
            InputError: no constant has this key.
        """
        return _known(self.entries, key).value

    def option(self, name: str) -> str:
        """The choice in force for an estimator option.

        Raises:
            InputError: no option has this name.
        """
        return _known(self.options, name, kind=_OPTION).choice

    def is_said(self, name: str) -> bool:
        """Whether an option has another choice than the one under which it is not varied."""
        return name in self.options and self.options[name].choice != self.options[name].unsaid

    def _read(self) -> Iterator[tuple[str, Constant]]:
        """Constants that the options in force read."""
        return ((key, entry) for key, entry in self.entries.items() if not entry.option or self.is_said(entry.option))

    @property
    def alternatives(self) -> tuple[tuple[str, str], ...]:
        """Options with each choice that they do not have; those that are unsaid are left out."""
        said = [(name, option) for name, option in self.options.items() if self.is_said(name)]
        return tuple((name, other) for name, option in said for other in option.alternatives if other != option.choice)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Keys of the constants that are assumptions, in the file's order."""
        return tuple(key for key, entry in self._read() if entry.is_assumption)

    @property
    def uncertain(self) -> tuple[str, ...]:
        """Keys of the constants whose range is wider than their value, but those of parameters that a chip may lack."""
        return self.uncertain_with(())

    def uncertain_with(self, parameters: Collection[str]) -> tuple[str, ...]:
        """What a sensitivity study varies of chips that have some parameters: keys of constants with a range."""
        read = ((key, entry) for key, entry in self._read() if not entry.parameter or entry.parameter in parameters)
        return tuple(key for key, entry in read if entry.low < entry.high)

    def with_overrides(self, overrides: Mapping[str, float]) -> "Constants":
        """The same constants with some values replaced; ranges and sources stay.

        Raises:
            InputError: an unknown key (with a near miss), or a value that is not finite and positive.
        """
        entries = dict(self.entries)
        for key, value in overrides.items():
            rule = _number_fault(value, may_be_zero=_known(entries, key).low == 0)
            if rule:
                raise InputError(rule, key=key)
            entries[key] = replace(entries[key], value=float(value))
        return Constants(entries, self.options)

    def with_options(self, choices: Mapping[str, str]) -> "Constants":
        """The same constants with some estimator options chosen otherwise.

        The option ``vector_cycles`` scales every ``vector_cycles.*`` constant, overridden ones included.

        Raises:
            InputError: an unknown option or choice (with a near miss).
        """
        entries, options = dict(self.entries), dict(self.options)
        for name, choice in choices.items():
            if choice not in _known(options, name, kind=_OPTION).alternatives:
                hint = suggest(str(choice), options[name].alternatives)
                message = f"estimator option {name} cannot be {shorten(choice)}; {hint}"
                raise InputError(message)
            if name == _VECTOR_CYCLES:
                factor = _VECTOR_CYCLES_FACTOR[choice] / _VECTOR_CYCLES_FACTOR[options[name].choice]
                entries = _scale_group(entries, prefix=f"{_VECTOR_CYCLES}.", factor=factor)
            options[name] = replace(options[name], choice=choice)
        return Constants(entries, options)


class _ConstantTable(BaseModel):
    """A constant as written in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    source: str | None = None
    assumption: str | None = None
    option: str = ""
    parameter: str = ""

    @model_validator(mode="after")
    def _check_origin(self) -> "_ConstantTable":
        if (self.source is None) == (self.assumption is None):
            message = "needs exactly one of source and assumption"
            raise ValueError(message)
        return self

    def to_constant(self) -> Constant:
        spread = 1.0 if self.assumption is None else 2.0
        low = self.value / spread if self.low is None else self.low
        high = self.value * spread if self.high is None else self.high
        origin = self.source if self.assumption is None else self.assumption
        is_assumption = self.assumption is not None
        return Constant(self.value, low, high, self.unit, str(origin), is_assumption, self.option, self.parameter)


class _OptionTable(BaseModel):
    """An estimator option as written in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    choice: str
    alternatives: list[str]
    source: str
    unsaid: str = ""

    def to_option(self) -> EstimatorOption:
        return EstimatorOption(self.choice, tuple(self.alternatives), self.source, self.unsaid)


def load_constants(path: Path | str | None = None) -> Constants:
    """Constants of the package, or of a file in the same form that holds all of them.

    Args:
        path: a TOML file; None for the package's own.

    Raises:
        InputError: the file cannot be read or breaks a rule; the message names file, line and key.
    """
    if path is None:
        return _load_packaged()
    constants = parse_constants(read_toml(Path(path), kind="a constants file (TOML)"))
    _check_same_keys(constants, _load_packaged(), source=str(path))
    return constants


@cache
def _load_packaged() -> Constants:
    text = resources.files("phaze_opt.hardware").joinpath("constants.toml").read_text(encoding="utf-8")
    return parse_constants(parse_toml(text, source="constants.toml"))


def parse_constants(document: Document) -> Constants:
    """Constants and options of a file in this form.

    Raises:
        InputError: it breaks a rule; the message names file, line and key.
    """
    values = dict(document.values)
    option_tables = values.pop(_OPTIONS_TABLE, {})
    if not isinstance(option_tables, dict):
        rule = "must be a table of options"
        raise document.fault(rule, _OPTIONS_TABLE)
    entries = {".".join(key): _constant(document, key) for key in _walk(values, prefix=())}
    options = {}
    for name in option_tables:
        option = document.validate(_OptionTable, _OPTIONS_TABLE, name).to_option()
        if option.choice not in option.alternatives:
            rule = f"choice {shorten(option.choice)} is unknown; {suggest(option.choice, option.alternatives)}"
            raise document.fault(rule, _OPTIONS_TABLE, name, "choice")
        options[name] = option
    return Constants(entries, options)


def _constant(document: Document, key: tuple[str, ...]) -> Constant:
    """The constant in a table of the file."""
    constant = document.validate(_ConstantTable, *key).to_constant()
    for name in ("value", "low", "high"):
        rule = _number_fault(getattr(constant, name), may_be_zero=constant.low == 0)
        if rule:
            raise document.fault(rule, *key, name)
    if not constant.low <= constant.value <= constant.high:
        rule = f"value {constant.value} must lie within low {constant.low} and high {constant.high}"
        raise document.fault(rule, *key)
    return constant


def _walk(table: Mapping[str, Any], *, prefix: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of the leaves of nested tables: whatever is no table, or is a table without sub-tables."""
    for key, value in table.items():
        path = (*prefix, key)
        if isinstance(value, dict) and any(isinstance(inner, dict) for inner in value.values()):
            yield from _walk(value, prefix=path)
        else:
            yield path


def _number_fault(value: float, *, may_be_zero: bool) -> str:
    """What is wrong with the value of a constant; empty if nothing is."""
    if is_number(value) and (value > 0 or (may_be_zero and value == 0)):
        return ""
    return f"value {shorten(value)} must be a finite {'non-negative' if may_be_zero else 'positive'} number"


def _check_same_keys(constants: Constants, packaged: Constants, *, source: str) -> None:
    for key in constants.entries:
        _known(packaged.entries, key, source=source)
    for name in constants.options:
        _known(packaged.options, name, kind=_OPTION, source=source)
    for key in (*packaged.entries, *packaged.options):
        if key not in constants.entries and key not in constants.options:
            message = "is missing; start from a copy of the package's constants.toml"
            raise InputError(message, source=source, key=key)


def _scale_group(entries: Mapping[str, Constant], *, prefix: str, factor: float) -> dict[str, Constant]:
    return {
        key: replace(entry, value=entry.value * factor) if key.startswith(prefix) else entry
        for key, entry in entries.items()
    }


def _known(known: Mapping[str, _T], name: str, *, kind: str = "constant", source: str | None = None) -> _T:
    """What has a name.

    Raises:
        InputError: nothing has.
    """
    if name in known:
        return known[name]
    message = f"no {kind} is named {shorten(name)}; {suggest(str(name), known)}"
    raise InputError(message, source=source)
