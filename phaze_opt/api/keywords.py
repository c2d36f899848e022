"""Options of commands as keywords of functions, by the declarations that the command line has too."""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial, wraps
from numbers import Integral
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from phaze_opt.api.kept_words import KeptWords
from phaze_opt.errors import InputError
from phaze_opt.jobs.options import AskedOptions, asked_options, number, parse_integers
from phaze_opt.objective.scenario_options import Declaration, Kind, declarations
from phaze_opt.record.suggestions import suggest

_T = TypeVar("_T")
WATCH = "watch"
"""Parameter of a function for what hears of it while it runs."""
ON_PROGRESS = "on_progress"
_FLAG = re.compile(r"--[a-z][a-z-]*")


def with_keywords(
    function: Callable[..., _T], *, reads: Mapping[str, Callable[[Any], Any]] = MappingProxyType({})
) -> Callable[..., _T]:
    """Give a function one keyword a field of every dataclass of options that it takes; all else stays as it is.

    A parameter annotated with such a dataclass, or with a request of several (`jobs.options.asked_options`), gets
    a value of it. What goes wrong is said of the keyword, and nothing is printed: ``on_progress`` is told of a stage,
    how much of it is done, of how much (None: not known yet), and a few words.

    Args:
        function: what runs.
        reads: what makes an option's value of what is given, by keyword.

    Raises:
        InputError: from the function returned, with the keyword as its key: unknown, missing, or a value that breaks
            the rule of its declaration.
    """
    asked: dict[str, AskedOptions] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        group = asked_options(parameter.annotation)
        if group is None:
            flat += [] if parameter.name == WATCH else [parameter]
            continue
        asked[parameter.name] = group
        flat += [_parameter(known) for known in group.declared]
    flat.append(inspect.Parameter(ON_PROGRESS, inspect.Parameter.KEYWORD_ONLY, default=None))
    flat.sort(key=lambda each: each.kind)
    declared = {known.name: known for group in asked.values() for known in group.declared}
    own = {each.name for each in flat} - declared.keys()
    aliases = {known.alias: known.name for known in declared.values() if known.alias}
    wanted = inspect.signature(function).parameters.keys()

    @wraps(function)
    def run(*positional: Any, **named: Any) -> _T:
        show = named.pop(ON_PROGRESS, None)
        named = _with_long_names(named, aliases)
        options = {name: value for name, value in named.items() if name not in own}
        options |= {name: read(options[name]) for name, read in reads.items() if options.get(name) is not None}
        rest: dict[str, Any] = {name: value for name, value in named.items() if name in own}
        rest |= {WATCH: KeptWords(show)} if WATCH in wanted else {}
        with _said_of_keywords(declared, own):
            _check_names(options, declared, own, function.__name__)
            given = frozenset(named)
            built = {name: group.built(partial(_values, given=options), given) for name, group in asked.items()}
            return function(*positional, **rest, **built)

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__doc__ = f"{inspect.getdoc(function) or ''}\n\nKeywords:\n{_described(declared.values())}\n"
    return run


def _with_long_names(named: Mapping[str, Any], aliases: Mapping[str, str]) -> dict[str, Any]:
    """Keywords by their long names, refused where both names of one are given."""
    for alias, name in aliases.items():
        if alias in named and name in named:
            message = f"is the short name of {name}, which is given too; leave out one of them"
            raise InputError(message, key=alias)
    return {aliases.get(name, name): value for name, value in named.items()}


def _parameter(known: Declaration) -> inspect.Parameter:
    default = inspect.Parameter.empty if known.is_required else known.default
    return inspect.Parameter(known.name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _described(declared: Iterable[Declaration]) -> str:
    """A line for each keyword, as ``--help`` has them."""
    return "\n".join(
        f"    {known.name}{f' ({known.alias})' if known.alias else ''}: {known.help}"
        f"{f' Default: {known.shown}.' if known.shown else ''}"
        for known in declared
    )


def _check_names(
    given: Mapping[str, Any], declared: Mapping[str, Declaration], own: Iterable[str], function: str
) -> None:
    """Refuse what no option is named, and say all that is missing at once."""
    flags = {known.flag.lstrip("-").replace("-", "_"): name for name, known in declared.items()}
    for name in given:
        if name not in declared:
            meant = f"it is called {flags[name]} in Python" if name in flags else suggest(name, [*declared, *own])
            message = f"is no option of {function}; {meant}"
            raise InputError(message, key=name)
    missing = [name for name, known in declared.items() if known.is_required and given.get(name) is None]
    if missing:
        example = ", ".join(f"{name}=..." for name in missing)
        message = f"must be given: {function}({example})"
        raise InputError(message, key=", ".join(missing))


def _values(options: type, declared: Sequence[Declaration], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a dataclass of options; what was not given and has no default of its own is left to its field."""
    usual = declarations(options)
    said = [known for known in declared if given.get(known.name) is not None]
    varying = [known for known in declared if known.default not in (None, usual[known.name].default)]
    defaults = {known.name: known.default for known in varying}
    return {**defaults, **{known.name: read_value(known, given[known.name]) for known in said}}


def read_value(known: Declaration, value: Any) -> Any:
    """A value as its option takes it: numbers, words, lists and paths of Python, or the text of the command line.

    Raises:
        InputError: it breaks the rule of the declaration; ``source`` is the option's flag.
    """
    if isinstance(value, Enum):
        value = value.value
    if known.kind is Kind.SWITCH:
        if isinstance(value, bool):
            return value
        raise _refusal(known, value, "True or False")
    if isinstance(value, bool):
        raise _refusal(known, value, f"a {known.kind.value}, and no truth value")
    if known.kind is Kind.COUNTS:
        text = _joined(known, value)
        return parse_integers(text, option=known.flag, low=known.low, high=known.high) if text else ()
    if known.kind in {Kind.COUNT, Kind.AMOUNT, Kind.GAP}:
        return number(known)(value if isinstance(value, str) else _number(known, value))
    if known.kind is Kind.PATH:
        return Path(_text(known, value))
    if known.kind is Kind.TEXTS:
        return _texts(known, value)
    return _joined(known, value)


def _number(known: Declaration, value: Any) -> float | str:
    """A number; a count as the text of an integer."""
    try:
        return str(operator.index(value)) if known.kind is Kind.COUNT else float(value)
    except (TypeError, ValueError):
        raise _refusal(known, value, "an integer" if known.kind is Kind.COUNT else "a number") from None


def _texts(known: Declaration, value: Any) -> tuple[str, ...]:
    """Several texts; of a mapping NAME=VALUE."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={str(each).lower() if isinstance(each, bool) else each}" for name, each in value.items())
    return (str(value),) if isinstance(value, str | Path) else tuple(_text(known, each) for each in _each(known, value))


def _joined(known: Declaration, value: Any) -> str:
    """A text; several values are joined by commas, and a mapping (sizes of a chip) as NAME=VALUE."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={each}" for name, each in value.items())
    if isinstance(value, str | Path | Integral):
        return _text(known, value)
    return ",".join(_text(known, each) for each in _each(known, value))


def _each(known: Declaration, value: Any) -> Sequence[Any]:
    if isinstance(value, float):
        raise _refusal(known, value, f"a {known.kind.value}, or several in a list")
    try:
        return tuple(value)
    except TypeError:
        raise _refusal(known, value, f"a {known.kind.value}, or several in a list") from None


def _text(known: Declaration, value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise _refusal(known, value, "a text, a path or an integer")
    return str(operator.index(value))


def _refusal(known: Declaration, value: Any, rule: str) -> InputError:
    message = f"{repr(value)[:60]} must be {rule}"
    return InputError(message, source=known.flag)


@contextmanager
def said_of(name: str) -> Iterator[None]:
    """Say errors that name no place as errors of one keyword."""
    try:
        yield
    except InputError as error:
        if type(error) is not InputError or error.source is not None or error.key is not None:
            raise
        raise InputError(str(error), key=name) from error


@contextmanager
def _said_of_keywords(declared: Mapping[str, Declaration], own: Iterable[str]) -> Iterator[None]:
    """Say errors of flags as errors of keywords."""
    names = {f"--{name.replace('_', '-')}": name for name in own}
    names |= {known.flag: known.name for known in declared.values()}
    try:
        yield
    except InputError as error:
        message, source, key = str(error), error.source, error.key
        if type(error) is not InputError or (source is not None and source not in names):
            raise
        if source is not None:
            message, key = message.removeprefix(f"{source}: "), names[source]
        elif key is not None:
            message = message.removeprefix(f"'{key}': ")
        said = _FLAG.sub(lambda found: names.get(found[0], found[0]), message)
        raise InputError(said, key=key) from error
