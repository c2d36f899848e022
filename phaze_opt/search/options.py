"""Typed options of strategies and pruners: what may be set, of which type and in which range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phaze_opt.errors import InputError
from phaze_opt.record.spelling import suggest

OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a strategy or pruner; its type is that of its default.

    Attributes:
        name: as given in `StrategyContext.options`.
        default: value when not given.
        help: one line on what it does.
        low: smallest value of a number, inclusive.
        high: largest value of a number, inclusive.
        choices: the words a string may be; empty for any.
    """

    name: str
    default: OptionValue
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()


def resolve_options(
    plugin: str, given: Mapping[str, OptionValue], *, known: Sequence[Option], kind: str = "strategy"
) -> dict[str, OptionValue]:
    """The value of every known option: as given where given, its default elsewhere.

    Args:
        plugin: name of the strategy or pruner.
        given: option values by name.
        known: its options.
        kind: what it is called in messages.

    Raises:
        InputError: an option is unknown (with near misses), of the wrong type or out of range.
    """
    names = [option.name for option in known]
    for name in given:
        if name not in names:
            message = f"{kind} '{plugin}' has no option '{name}'; {suggest(name, names)}"
            raise InputError(message, key=name)
    return {
        option.name: _checked(f"{kind} '{plugin}'", option, given[option.name])
        if option.name in given
        else option.default
        for option in known
    }


def _checked(who: str, option: Option, value: OptionValue) -> OptionValue:
    """The value, widened from int to float where needed, if type and range allow it."""
    wanted = type(option.default)
    if wanted is float and type(value) is int:
        value = float(value)
    if type(value) is not wanted:
        message = f"{who}: option {option.name} = {value!r} must be of type {wanted.__name__}"
        raise InputError(message, key=option.name)
    if isinstance(value, int | float) and not option.low <= value <= option.high:
        message = f"{who}: option {option.name} = {value} must lie in {option.low:g}..{option.high:g}"
        raise InputError(message, key=option.name)
    if option.choices and value not in option.choices:
        message = f"{who}: option {option.name} = {value!r} must be one of {', '.join(option.choices)}"
        raise InputError(message, key=option.name)
    return value
