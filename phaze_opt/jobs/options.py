"""Options that several use cases share, declared once for the command line and for Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

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


RECORDS = "Output and records"
COSTS = "Money, energy and carbon"
MAX_JOBS = 1024
MAX_SEED = 2**32 - 1
RANGE_HELP = "Price the answer again under each doubt that it hangs on (no more than ten times)."
JOBS_HELP = "Processes; changes the time, never a number."
DASK_HELP = "Evaluate on a Dask cluster: tcp://HOST:PORT, or local (with --jobs processes)."
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
            InputError: as `machine_names`.
        """
        return machine_names(self.baseline)


def machine_names(text: str) -> tuple[str, ...]:
    """Machines separated by commas; sizes inline belong to one design, and one named again begins another.

    Raises:
        InputError: a name is blank, or two are of one machine.
    """
    from phaze_opt.hardware.device_catalogue import find_device

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
    of_machine: dict[str, str] = {}
    for name in found:
        if (device := find_device(name)) is not None and (other := of_machine.setdefault(device.name, name)) != name:
            message = f"{other} and {name} are one machine; name it once"
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


MIN_NUMBER, MAX_NUMBER = 1e-15, 1e15
"""Of what an option takes as a number: sums and products of such numbers stay finite."""
ZEROS = {"K": 3, "M": 6, "B": 9, "T": 12}
"""Of the letters that an amount may end with."""
_ENDINGS = "; K, M, B or T at its end stands for zeros (2K is 2000)"


GIVEN = "given"
"""Field of a request for the names of the options that were given, and not left at their defaults."""


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """What a parameter is made of: one dataclass of options, or a request, whose fields are such dataclasses.

    Attributes:
        kind: what the parameter takes.
        groups: dataclasses of options with their declarations, by field of the request; empty for ``kind`` itself.
    """

    kind: type
    groups: Mapping[str, tuple[type, list[Declaration]]]

    @property
    def is_request(self) -> bool:
        """Whether it asks which options were given too."""
        return "" not in self.groups

    @property
    def declared(self) -> list[Declaration]:
        """All options, in order."""
        return [known for _, group in self.groups.values() for known in group]

    def built(self, values_of: Callable[[type, Sequence[Declaration]], dict[str, Any]], given: frozenset[str]) -> Any:
        """The value: ``values_of`` says what fields of a dataclass of options come to."""
        values = {name: kind(**values_of(kind, known)) for name, (kind, known) in self.groups.items()}
        return self.kind(**values, given=given) if self.is_request else values[""]


def asked_options(annotation: Any) -> AskedOptions | None:
    """What a parameter asks for; None of one that is not made of options.

    Args:
        annotation: such as ``Annotated[Options, {option: {attribute: value}}]``, where a command declares an option
            differently than the dataclass.
    """
    kind, *changes = get_args(annotation) or (annotation,)
    if not (is_dataclass(kind) and isinstance(kind, type)):
        return None
    own = changes[0] if changes else {}
    if not any(each.name == GIVEN for each in fields(kind)):
        return AskedOptions(kind, {"": (kind, _varied(kind, own))})
    groups = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if name != GIVEN:
            options, *more = get_args(hint) or (hint,)
            groups[name] = options, _varied(options, (more[0] if more else {}) | own)
    return AskedOptions(kind, groups)


def _varied(options: type, changes: Mapping[str, Mapping[str, Any]]) -> list[Declaration]:
    """The declarations of a dataclass of options as one command has them."""
    return [replace(known, **changes.get(name, {})) for name, known in declarations(options).items()]


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
