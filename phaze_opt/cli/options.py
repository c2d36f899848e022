"""Options of commands, made of their declarations; numbers are refused with the option, the value and the rule."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from phaze_opt.errors import InputError
from phaze_opt.objective.scenario_options import (
    MACHINES,
    MODELS,
    WORKLOAD,
    Declaration,
    Kind,
    ScenarioOptions,
    declarations,
    declared,
    same,
)
from phaze_opt.record.input_files import comma_advice, shorten
from phaze_opt.record.suggestions import parse_word

if TYPE_CHECKING:
    from phaze_opt.objective.bill import CostTerms
    from phaze_opt.track.protocol import TrackerConfig

RECORDS = "Output and records"
COSTS = "Money, energy and carbon"
MAX_JOBS = 1024
MAX_SEED = 2**32 - 1
MIN_NUMBER, MAX_NUMBER = 1e-15, 1e15
"""Of what an option takes as a number: sums and products of such numbers stay finite."""
ZEROS = {"K": 3, "M": 6, "B": 9, "T": 12}
"""Of the letters that an amount may end with."""
_ENDINGS = "; K, M, B or T at its end stands for zeros (2K is 2000)"
RANGE_HELP = "Price the answer again under each doubt that it hangs on (no more than ten times)."
JOBS_HELP = "Processes; changes the time, never a number."
DASK_HELP = "Evaluate on a Dask cluster: tcp://HOST:PORT, or local (with --jobs processes)."

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
BASELINE = "tpu-v4"
_of_workload = partial(declared, panel=WORKLOAD)
_of_records = partial(declared, panel=RECORDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """One model, or several for a common design."""

    model: str = _of_workload(
        "", "A model of the zoo, a Hugging Face config.json or a traced model.", Kind.TEXT, values=MODELS
    )
    models: str = _of_workload("", "Several, comma-separated: one design for all.", Kind.TEXT, values=MODELS)
    allow_unknown: bool = _of_workload(
        False, "Count operations of traced models that no rule knows by their bytes, and name them.", Kind.SWITCH
    )
    common: str = _of_workload(
        "arithmetic",
        "Mean over models: arithmetic, geometric or worst.",
        Kind.WORD,
        enumeration="phaze_opt.objective.scenario:CommonMean",
    )

    @property
    def names(self) -> str:
        """What was given, under either option."""
        return self.model or self.models


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Where a command keeps its work, and what records it."""

    work_dir: Path = _of_records(Path(), "Where journals, certificates and the local store are kept.", Kind.PATH)
    tracking_uri: str = _of_records(
        "",
        "An MLflow store; by default MLFLOW_TRACKING_URI (the place for passwords), else a sqlite file here.",
        Kind.TEXT,
    )
    experiment: str = _of_records("phaze-opt", "Name of the MLflow experiment.", Kind.TEXT)
    tracking: bool = _of_records(True, "Record it with the tracker.", Kind.SWITCH)
    tracker: str = _of_records("mlflow", "Tracker plug-in that records.", Kind.TEXT, values="phaze_opt.trackers")

    @property
    def chosen_tracker(self) -> str:
        """The tracker's name; that of the one that records nothing where tracking is off."""
        from phaze_opt.plugins import PluginGroup, given_plugin

        return given_plugin(PluginGroup.TRACKERS, self.tracker) if self.tracking else "null"

    def tracker_config(self) -> TrackerConfig:
        """The tracker's configuration."""
        from phaze_opt.track.protocol import TrackerConfig

        return TrackerConfig(tracking_uri=self.tracking_uri, experiment=self.experiment, work_dir=self.work_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostOptions:
    """At what prices, on which grid and for how many tokens costs are said; no throughput follows from them."""

    tokens: float | None = declared(
        None, "Also say what training on so many tokens takes, such as 15T.", Kind.AMOUNT, panel=COSTS, shown="none"
    )
    grid: str = declared(
        "world", "Where it runs: world, taiwan, united_states, iceland, wind or coal.", Kind.TEXT, panel=COSTS
    )
    prices: Path | None = declared(
        None,
        "Prices of your own by key (TOML), such as memory.hbm_usd_per_gb = 14.",
        Kind.PATH,
        panel=COSTS,
        shown="the package's",
    )

    def terms(self) -> CostTerms:
        """What costs are said on.

        Raises:
            InputError: an unknown grid, or a file of prices that breaks a rule.
        """
        from phaze_opt.hardware.economics.prices import load_prices, read_prices
        from phaze_opt.objective.bill import CostTerms

        prices = load_prices() if self.prices is None else read_prices(self.prices)
        try:
            return CostTerms(prices, self.grid, self.tokens)
        except InputError as error:
            raise InputError(str(error).removeprefix(f"'{error.key}': "), source="--grid") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineOptions:
    """What a design is held against."""

    baseline: str = declared(
        BASELINE,
        "Say how much better the design is than these, machines that exist under their own software: presets or files, "
        "comma-separated.",
        Kind.TEXT,
        panel=RECORDS,
        values=MACHINES,
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The machines.

        Raises:
            InputError: a name is blank or repeated.
        """
        return machine_names(self.baseline)


def machine_names(text: str) -> tuple[str, ...]:
    """Machines separated by commas; sizes inline belong to one design, and one named again begins another.

    Raises:
        InputError: a name is blank or repeated.
    """
    found: list[str] = []
    keys: set[str] = set()
    for word in (each.strip() for each in text.split(",")):
        key, is_size, _ = word.partition("=")
        if is_size and keys and key.strip() not in keys:
            found[-1] += f",{word}"
        else:
            found.append(word)
            keys = set()
        keys |= {key.strip()} if is_size else set()
    if not all(found) or len(set(found)) < len(found):
        message = f"'{text[:60]}' must be machines separated by commas, each once, such as h100,mi300x"
        raise InputError(message, source="--baseline")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormOptions:
    """Whose published form an answer has."""

    published_form: str | None = same(ScenarioOptions, "published_form")

    def checked(self) -> str | None:
        """The form that was asked for.

        Raises:
            InputError: there is none of the name.
        """
        from phaze_opt.objective.scenario import PublishedForm

        if self.published_form is None:
            return None
        return parse_word(PublishedForm, self.published_form, source="--as").value


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginOptions:
    """Code of the user's own that a file names, and that runs as the user names it too."""

    plugin_file: tuple[str, ...] = declared(
        (), "A file of a strategy or pruner of your own (mine.py) that the study names. May be repeated.", Kind.TEXTS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SiliconOptions:
    """What chips are built of, the network whose links they drive, and whether they are of the published form."""

    published_form: str | None = same(ScenarioOptions, "published_form")
    silicon: str | None = same(ScenarioOptions, "silicon")
    process_nm: int = same(ScenarioOptions, "process_nm")
    hbm_generation: str | None = same(ScenarioOptions, "hbm_generation")
    network: str = same(ScenarioOptions, "network")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give typer one option a field of every dataclass of options that a command takes; required ones come first.

    A parameter annotated with such a dataclass (``Annotated[Options, {field: {attribute: value}}]`` where this command
    declares a field differently) gets a value of it. What was not given, and has no default of its own on this
    command, is left to the field's default.
    """
    groups: dict[str, list[Declaration]] = {}
    kinds: dict[str, type] = {}
    flat: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind, *changes = get_args(parameter.annotation) or (parameter.annotation,)
        if not is_dataclass(kind):
            flat.append(parameter)
            continue
        assert isinstance(kind, type)
        kinds[parameter.name] = kind
        groups[parameter.name] = varied(kind, changes[0] if changes else {})
        flat += [_parameter(known) for known in groups[parameter.name]]

    @wraps(command)
    def run(**values: Any) -> None:
        built = {name: kinds[name](**_given(known, values)) for name, known in groups.items()}
        command(**values, **built)

    flat.sort(key=lambda each: (each.kind, each.default is not inspect.Parameter.empty))
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {}
    return run


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line rather than at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def varied(options: type, changes: Mapping[str, Mapping[str, Any]]) -> list[Declaration]:
    """The declarations of a dataclass of options as one command has them."""
    return [replace(known, **changes.get(name, {})) for name, known in declarations(options).items()]


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


def _given(known: Sequence[Declaration], values: dict[str, Any]) -> dict[str, Any]:
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


def number(known: Declaration) -> Callable[[str | float], float]:
    """A parser of counts, amounts and gaps (typer also runs it on defaults); it raises `InputError` for all else."""

    def parse(text: str | float) -> float:
        if known.kind is Kind.COUNT:
            count = read_integer(str(text), low=known.low, high=known.high)
            if count is not None:
                return count
            rule = f"an integer from {known.low:,} to {known.high:,}"
        else:
            value = _float(_spelled_out(text) if known.kind is Kind.AMOUNT else text)
            rule = _broken_rule(known.kind, value)
            if not rule:
                return value
        message = f"{shorten(str(text))} must be {rule}{comma_advice(text)}"
        raise InputError(message, source=known.flag)

    return parse


def _broken_rule(kind: Kind, value: float) -> str:
    """What an amount or a gap must be and is not; empty if it is."""
    if kind is Kind.GAP:
        return "" if 0 <= value < 1 else "a relative gap, at least 0 and below 1"
    if not (math.isfinite(value) and value > 0):
        return f"a positive, finite number{_ENDINGS if math.isnan(value) else ''}"
    return "" if MIN_NUMBER <= value <= MAX_NUMBER else f"from {MIN_NUMBER:g} to {MAX_NUMBER:g}"


def _spelled_out(text: str | float) -> str | float:
    """A number without the letter behind it that stands for its zeros: 1.5T is 1.5e12."""
    if not isinstance(text, str) or not text.strip()[:-1]:
        return text
    digits, letter = text.strip()[:-1], text.strip()[-1].upper()
    return f"{digits}e{ZEROS[letter]}" if letter in ZEROS and digits[-1] in ".0123456789" else text


def _float(text: str | float) -> float:
    """The number that a text spells; not a number where it spells none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_integer(text: str, *, low: int, high: int) -> int | None:
    """The integer that a text spells in plain decimal digits, if it is one within the limits."""
    word = text.strip()
    digits = word.removeprefix("-").lstrip("0") or "0"
    if not word.isascii() or not word.removeprefix("-").isdigit() or len(digits) > len(str(high)):
        return None
    value = -int(digits) if word.startswith("-") else int(digits)
    return value if low <= value <= high else None


def parse_integers(text: str, *, option: str, high: int, low: int = 1) -> tuple[int, ...]:
    """Comma-separated integers from ``low`` to ``high``, ascending and distinct.

    Raises:
        InputError: one of them is not.
    """
    values = []
    for word in text.split(","):
        value = read_integer(word, low=low, high=high)
        if value is None:
            example = ",".join(str(each) for each in (1, 2, 4, 8) if each <= high)
            message = f"{shorten(text)} must be integers from {low} to {high:,} separated by commas, such as {example}"
            if word != text:
                message += f"; {shorten(word.strip())} is not"
            raise InputError(message, source=option)
        values.append(value)
    return tuple(sorted(set(values)))
