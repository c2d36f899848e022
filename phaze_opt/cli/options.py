"""Options of commands, made of their declarations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from phaze_opt.jobs.options import RECORDS, AskedOptions, asked_options, number, parse_integers
from phaze_opt.objective.scenario_options import Declaration, Kind

CONTEXT = "context"
"""Parameter of a command that says which options stand on the command line."""
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one line of JSON on standard output.", rich_help_panel=RECORDS)
]
DetailsOption = Annotated[
    bool,
    typer.Option("--details", help="Print every table and note that the answer comes from.", rich_help_panel=RECORDS),
]
ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Write a page with figures (HTML) there, and each figure as SVG and PNG beside it.",
        rich_help_panel=RECORDS,
    ),
]


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give typer one option a field of every dataclass of options that a command takes; required ones come first.

    A parameter annotated with such a dataclass, or with a request of several (`jobs.options.asked_options`), gets
    a value of it. What was not given, and has no default of its own on this command, is left to the field's default.
    """
    asked: dict[str, AskedOptions] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        options = asked_options(parameter.annotation)
        if options is None:
            flat.append(parameter)
            continue
        asked[parameter.name] = options
        flat += [_parameter(known) for known in options.declared]

    @wraps(command)
    def run(**values: Any) -> None:
        given: frozenset[str] = frozenset()
        if asks_context:
            context = values[CONTEXT] if has_context else values.pop(CONTEXT)
            given = frozenset(name for name in values if is_given(context, name))
        built = {name: each.built(partial(_given, values=values), given) for name, each in asked.items()}
        command(**values, **built)

    has_context = any(each.name == CONTEXT for each in flat)
    asks_context = any(each.is_request for each in asked.values())
    if asks_context and not has_context:
        flat.append(inspect.Parameter(CONTEXT, inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    flat.sort(key=lambda each: (each.kind, each.default is not inspect.Parameter.empty))
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def typer_option(known: Declaration) -> Any:
    """An option of the command line, to annotate a parameter with."""
    flag = f"{known.flag}/--no-{known.flag[2:]}" if known.kind is Kind.SWITCH and known.default else known.flag
    return typer.Option(
        flag,
        *((f"--{known.alias}",) if known.alias else ()),
        help=known.help,
        parser=number(known) if known.kind in METAVARS else None,
        metavar=METAVARS.get(known.kind),
        rich_help_panel=known.panel or None,
        show_default=known.shown or True,
        autocompletion=completer(known) if known.values or known.enumeration else None,
    )


def completer(known: Declaration) -> Callable[[str], list[str]]:
    """What an option may be that begins so, in any case; of several with commas between, what the last may be."""

    def complete(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        names = [each for each in known_values(known) if each.casefold().startswith(begun.casefold())]
        return [f"{before}{comma}{name}" for name in names]

    return complete


def known_values(known: Declaration) -> tuple[str, ...]:
    """All that an option may be, as far as that can be listed."""
    from phaze_opt.plugins import PluginGroup, list_plugins

    if known.values in set(PluginGroup):
        return tuple(entry.name for entry in list_plugins(PluginGroup(known.values)))
    return tuple(resolve_name(known.values)() if known.values else known.words())


METAVARS: Mapping[Kind, str] = {Kind.COUNT: "INTEGER", Kind.AMOUNT: "NUMBER", Kind.GAP: "NUMBER"}
_TYPES: Mapping[Kind, Any] = {
    Kind.COUNT: int,
    Kind.AMOUNT: float,
    Kind.GAP: float,
    Kind.TEXTS: list[str],
    Kind.PATH: Path,
    Kind.SWITCH: bool,
}


def _parameter(known: Declaration) -> inspect.Parameter:
    """A declaration as typer reads it: a keyword with its default, if it has one on this command."""
    default = known.default
    if isinstance(default, tuple):
        default = ",".join(str(each) for each in default) or None
    kind = _TYPES.get(known.kind, str)
    return inspect.Parameter(
        known.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if known.is_required else default,
        annotation=Annotated[kind if default is not None else kind | None, typer_option(known)],
    )


def _given(_: type, known: Sequence[Declaration], values: dict[str, Any]) -> dict[str, Any]:
    """Values of a dataclass of options; None where nothing was given."""
    given = {each.name: values.pop(each.name) for each in known}
    for each in known:
        if given[each.name] is None:
            del given[each.name]
        elif each.kind is Kind.COUNTS:
            given[each.name] = parse_integers(given[each.name], option=each.flag, low=each.low, high=each.high)
        elif each.kind is Kind.TEXTS:
            given[each.name] = tuple(given[each.name])
    return given
