"""Options of strategies and pruners: each is one field of a frozen dataclass, with its default, range and meaning."""

import math
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from phaze_opt.errors import InputError
from phaze_opt.record.suggestions import suggest

OptionValue = str | int | float | bool
Options = TypeVar("Options")
_RULE = "rule"


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a value must keep to; its type is that of the default.

    Attributes:
        help: one line on what the option does.
        low, high: smallest and largest value of a number, inclusive.
        choices: the words a string may be; empty for any.
    """

    help: str
    low: float
    high: float
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoOptions:
    """Of a strategy or pruner that has none."""


def option(
    default: OptionValue,
    help: str,  # noqa: A002
    *,
    low: float = -math.inf,
    high: float = math.inf,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field of a frozen dataclass of options.

    Args:
        default: value when not given.
        help: one line on what it does.
        low: smallest value of a number, inclusive.
        high: largest value of a number, inclusive.
        choices: the words a string may be; empty for any.
    """
    return field(default=default, metadata={_RULE: _Rule(help, low, high, choices)})


def resolve_options(
    options: type[Options], plugin: str, given: Mapping[str, OptionValue], *, kind: str = "strategy"
) -> Options:
    """The options of a strategy or pruner: as given where given, their defaults elsewhere.

    Args:
        options: a dataclass whose fields are made by `option`.
        plugin: name of the strategy or pruner.
        given: option values by name.
        kind: what it is called in messages.

    Raises:
        InputError: an option is unknown (with near misses), of the wrong type or out of range.
    """
    known = {entry.name: entry for entry in fields(options)}  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            message = f"{kind} '{plugin}' has no option '{name}'; {suggest(name, list(known))}"
            raise InputError(message, key=name)
    return options(**{name: _checked(f"{kind} '{plugin}'", known[name], value) for name, value in given.items()})


def _checked(who: str, entry: Field[Any], value: OptionValue) -> OptionValue:
    """The value, widened from int to float where needed, if type and range allow it."""
    rule: _Rule = entry.metadata[_RULE]
    wanted: type[object] = type(entry.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        message = f"{who}: option {entry.name} = {value!r} must be of type {wanted.__name__}"
        raise InputError(message, key=entry.name)
    if isinstance(value, int | float) and not rule.low <= value <= rule.high:
        message = f"{who}: option {entry.name} = {value} must lie in {rule.low:g}..{rule.high:g}"
        raise InputError(message, key=entry.name)
    if rule.choices and value not in rule.choices:
        message = f"{who}: option {entry.name} = {value!r} must be one of {', '.join(rule.choices)}"
        raise InputError(message, key=entry.name)
    return value
