"""The TOML form of a study: tables to a plan, every fault one sentence with file, line and key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from phaze_opt.errors import InputError, PluginError
from phaze_opt.hardware.suggestion import suggest
from phaze_opt.hardware.toml_file import TomlDocument, read_toml, shorten
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.search.strategy import Goal
from phaze_opt.study.config import (
    Budget,
    Contender,
    Generality,
    Judgement,
    Setting,
    StudyConfig,
    Workload,
)
from phaze_opt.study.resolve import resolve_study
from phaze_opt.study.study_models import (
    WORDS,
    StrategyTable,
    StudyDocument,
    WorkloadTable,
)
from phaze_opt.study.toml_places import KeyPath, line_of
from phaze_opt.workload.zoo import list_models

_EnumT = TypeVar("_EnumT", bound=StrEnum)


def read_study(path: Path) -> StudyConfig:
    """The plan of a study file, known to work: models, files, plug-ins and their options are all looked at.

    Files named in it are relative to it.

    Raises:
        InputError: the file cannot be read or a part of the plan is wrong; says file, line and key.
        PluginError: a strategy or pruner is unknown or fails to load; says file, line and key.
    """
    source = StudySource(read_toml(path, kind="a study file (TOML)"), path.parent)
    document = source.validate()
    config = source.to_config(document, str(path))
    resolve_study(config, StudyOrigin(source, config))
    return config


@dataclass(frozen=True, slots=True)
class StudySource:
    """A study file that is being read.

    Attributes:
        toml: its values and text.
        folder: that files named in it are relative to.
    """

    toml: TomlDocument
    folder: Path

    def validate(self) -> StudyDocument:
        """Check keys and types.

        Raises:
            InputError: the first fault.
        """
        try:
            return StudyDocument.model_validate(self.toml.values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise self.fault(_describe(first), *_path_of(first, self.toml.values)) from error

    def fault(self, rule: str, *path: str | int) -> InputError:
        """The error of a key."""
        line = line_of(self.toml.text, path)
        return InputError(rule, source=self.toml.source, line=line, key=_dotted(path) or None)

    def word(self, enum: type[_EnumT], text: str, *path: str | int) -> _EnumT:
        """A word of a closed set.

        Raises:
            InputError: it is none of them.
        """
        try:
            return enum(text)
        except ValueError:
            message = f"'{text}' is unknown; {suggest(text, [member.value for member in enum])}"
            raise self.fault(message, *path) from None

    def to_config(self, document: StudyDocument, name: str) -> StudyConfig:
        """The plan that the tables describe.

        Raises:
            InputError: a word is unknown, or a budget has no limit or two.
        """
        study, statistics = document.study, document.statistics
        return StudyConfig(
            name=study.name,
            description=study.description,
            workloads=self._workloads(document),
            contenders=self._contenders(document),
            settings=self._settings(document),
            seeds=tuple(study.seeds),
            budget=self._budget(document),
            batch=study.batch,
            num_starts=study.starting_points,
            judgement=Judgement(
                statistics.confidence, statistics.bootstrap, tuple(statistics.targets), statistics.truth
            ),
            generality=self._generality(document),
            source=name,
        )

    def _budget(self, document: StudyDocument) -> Budget:
        """Evaluations, or seconds under a ceiling of evaluations."""
        budget = document.study.budget
        if budget.seconds is None:
            return Budget(evaluations=60 if budget.evaluations is None else budget.evaluations)
        if budget.evaluations is not None:
            message = "gives evaluations and seconds; give one of them"
            raise self.fault(message, "study", "budget")
        return Budget(evaluations=MAX_TRIALS_IN_TIME, seconds=budget.seconds)

    def _workloads(self, document: StudyDocument) -> tuple[Workload, ...]:
        """Those of the short form, each one model, then the tables."""
        short = tuple(Workload(_stem(name), (self._locate_model(name),)) for name in document.study.workloads)
        return short + tuple(self._workload(index, table) for index, table in enumerate(document.workload))

    def _workload(self, index: int, table: WorkloadTable) -> Workload:
        return Workload(
            name="+".join(_stem(model) for model in table.models) if table.name is None else table.name,
            models=tuple(self._locate_model(model) for model in table.models),
            common=self.word(CommonMean, table.common, "workload", index, "common"),
            weight=table.weight,
        )

    def _contenders(self, document: StudyDocument) -> tuple[Contender, ...]:
        """Those of the short form, then the tables."""
        short = tuple(Contender(name, name) for name in document.study.strategies)
        return short + tuple(_contender(table) for table in document.strategy)

    def _settings(self, document: StudyDocument) -> tuple[Setting, ...]:
        """The base setting, or one per table that starts from it."""
        base = {
            **_given(document.cluster),
            **_given(document.training),
            **_given(document.budgets),
            **_given(document.space, renamed={"file": "space"}),
            "objective": document.study.objective,
        }
        if document.setting is None:
            return (self._setting("default", base, document.constants, None),)
        return tuple(
            self._setting(
                table.name,
                {**base, **_given(table, without=("name", "constants"))},
                {**document.constants, **table.constants},
                index,
            )
            for index, table in enumerate(document.setting)
        )

    def _setting(
        self, name: str, values: Mapping[str, Any], constants: Mapping[str, float | str], index: int | None
    ) -> Setting:
        """A setting from the keys of a file."""
        for key in ("objective", "optimizer", "attention", "exclusivity", "recompute"):
            if key in values:
                self.word(WORDS[key], values[key], *setting_path(self.toml.values, index, key))
        fields = {_FIELDS.get(key, key): value for key, value in values.items()}
        fields["goal"] = Goal(fields["goal"])
        for key in ("network", "space"):
            if key in fields:
                fields[key] = self._locate_file(fields[key])
        for key in ("tensor_parallel", "hbm_gb", "micro_batches"):
            if key in fields:
                fields[key] = tuple(fields[key])
            elif fields.get("space") and key != "tensor_parallel":
                fields[key] = ()
        return Setting(name=name, constants=dict(constants), **fields)

    def _generality(self, document: StudyDocument) -> Generality | None:
        if document.generality is None:
            return None
        means = document.generality.means
        return Generality(tuple(self.word(CommonMean, text, "generality", "means", i) for i, text in enumerate(means)))

    def _locate_model(self, name: str) -> str:
        """A name of the zoo, or a file beside the study file."""
        return name if name in list_models() else self._locate_file(name)

    def _locate_file(self, name: str) -> str:
        """A name as it is, unless it looks like a file; then from the study file's folder."""
        is_file = name.endswith((".toml", ".json")) or "/" in name or (self.folder / name).exists()
        return str(self.folder / name) if is_file else name


MAX_TRIALS_IN_TIME = 100_000
"""Ceiling of a budget in seconds."""
_FIELDS = {"objective": "goal", "micro_batch": "micro_batches", "sequence_parallel": "is_sequence_parallel"}
"""Keys of the file whose field of `Setting` is called otherwise."""
_SECTIONS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("devices", "network", "global_batch"), ("cluster", "")),
    **dict.fromkeys(
        (
            "sequence_length",
            "optimizer",
            "attention",
            "exclusivity",
            "recompute",
            "tensor_parallel",
            "sequence_parallel",
            "schedule_gap",
        ),
        ("training", ""),
    ),
    **dict.fromkeys(("max_area_mm2", "max_tdp_w"), ("budgets", "")),
    **dict.fromkeys(("hbm_gb", "micro_batch"), ("space", "")),
    "space": ("space", "file"),
    "objective": ("study", ""),
}
"""Table of a key of a setting, and its name there if it is another."""


def setting_path(values: Mapping[str, Any], index: int | None, key: str) -> KeyPath:
    """Where a key of a setting is written: in its own table, or in the one that all settings start from."""
    if index is not None and key in values["setting"][index]:
        return ("setting", index, key)
    if key == "constants":
        return ("constants",)
    section, name = _SECTIONS[key]
    return (section, name or key)


@dataclass(frozen=True, slots=True)
class StudyOrigin:
    """Names file, line and key of whatever is wrong with a plan that was read from a file."""

    source: StudySource
    config: StudyConfig

    @contextmanager
    def at(self, kind: str, name: str, key: str) -> Iterator[None]:
        """A block whose faults are about one key."""
        try:
            yield
        except InputError as error:
            path = self._path(kind, name, key or str(error.key or ""), error)
            raise self.source.fault(_plain(error), *path) from error
        except PluginError as error:
            path = self._path(kind, name, "pruner" if "pruner" in str(error) and key else "strategy", error)
            raise PluginError(str(self.source.fault(str(error), *path))) from error

    def _path(self, kind: str, name: str, key: str, error: Exception) -> KeyPath:
        """The keys of a part of the plan, from the outside in."""
        values = self.source.toml.values
        if kind == "setting":
            return self._setting_path(name, key, error)
        if kind == "workload":
            return self._entry_path("workload", "workloads", name, key)
        if kind == "contender":
            path = self._entry_path("strategy", "strategies", name, key)
            return self._option_path(path, str(getattr(error, "key", "") or ""))
        if kind == "study" and key in {"workloads", "strategies"} and key not in values["study"]:
            return ("study",)
        return (kind, key)

    def _setting_path(self, name: str, field: str, error: Exception) -> KeyPath:
        """A key of a setting, by the field of `Setting` or of the scenario made of it."""
        values = self.source.toml.values
        tables = values.get("setting")
        index = None if tables is None else [table.get("name") for table in tables].index(name)
        key = {field: key for key, field in _FIELDS.items()}.get(field, field)
        if key == "name" or (key not in _SECTIONS and key != "constants"):
            return ("setting", index) if index is not None else ()
        path = setting_path(values, index, key)
        if key == "constants":
            path = self._constant_path(path, values, index, str(error))
        return path

    def _constant_path(self, path: KeyPath, values: Mapping[str, Any], index: int | None, text: str) -> KeyPath:
        """The constant that a message names."""
        own = {} if index is None else values["setting"][index].get("constants", {})
        for table, where in ((own, ("setting", index, "constants")), (values.get("constants", {}), ("constants",))):
            for key in table:
                if f"'{key}'" in text or key in text.split():
                    return (*(part for part in where if part is not None), key)
        return path

    def _entry_path(self, table: str, short: str, name: str, key: str) -> KeyPath:
        """A part by its name: an element of the short form or a table of its own."""
        parts = self.config.workloads if table == "workload" else self.config.contenders
        names = [part.name for part in parts]
        num_short = len(self.source.toml.values["study"].get(short, ()))
        # Of two of one name the second is at fault.
        position = len(names) - 1 - names[::-1].index(name)
        if position < num_short:
            return ("study", short, position)
        entry = self.source.toml.values[table][position - num_short]
        where: KeyPath = (table, position - num_short)
        return (*where, key) if key in entry else where

    def _option_path(self, path: KeyPath, option: str) -> KeyPath:
        """The option of a strategy or pruner that is at fault."""
        if len(path) < 2 or path[0] != "strategy" or not option:
            return path
        entry = self.source.toml.values["strategy"][path[1]]
        for key in ("options", "pruner_options"):
            if option in entry.get(key, {}):
                return ("strategy", path[1], key, option)
        return path


def _contender(table: StrategyTable) -> Contender:
    """A contender; its name says what it is unless given."""
    name = table.strategy if not table.pruner else f"{table.strategy}+{table.pruner}"
    return Contender(
        name=name if table.name is None else table.name,
        strategy=table.strategy,
        options=dict(table.options),
        pruner=table.pruner,
        pruner_options=dict(table.pruner_options),
    )


def _given(
    table: BaseModel, *, renamed: Mapping[str, str] | None = None, without: Sequence[str] = ()
) -> dict[str, Any]:
    """The keys of a table that the file sets."""
    names = renamed or {}
    return {names.get(key, key): getattr(table, key) for key in table.model_fields_set if key not in without}


def _stem(name: str) -> str:
    """A model's name: of a config.json that of its folder, of another file that of the file."""
    path = Path(name)
    if path.name == "config.json" and path.parent.name:
        return path.parent.name
    return path.stem if path.suffix == ".json" else path.name


def _plain(error: InputError) -> str:
    """An error's sentence; the key it names is said by the place already, a file of its own is kept."""
    text = str(error)
    return text.removeprefix(f"'{error.key}': ") if error.source is None and error.key is not None else text


def _dotted(path: Sequence[str | int]) -> str:
    """``strategy[1].options.x``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def _path_of(error: ErrorDetails, values: Mapping[str, Any]) -> KeyPath:
    """The keys of a pydantic error that the file has; what it says of alternatives of a type is left out."""
    path: list[str | int] = []
    inner: Any = values
    for part in error["loc"]:
        is_there = (isinstance(inner, dict) and part in inner) or (
            isinstance(inner, list) and isinstance(part, int) and part < len(inner)
        )
        if not is_there:
            if error["type"] == "missing":
                path.append(part)
            break
        path.append(part)
        inner = inner[part]
    return tuple(path)


def _describe(error: ErrorDetails) -> str:
    """What is wrong, in this package's words."""
    kind, given, limits = error["type"], error.get("input"), error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"is unknown; {suggest(str(error['loc'][-1]), _known_keys(error['loc'][:-1]))}"
    if kind == "missing":
        return "is missing"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if kind == "too_short":
        return "is empty; give at least one value"
    if kind == "string_too_short":
        return "is empty; give a name"
    for name, words in (
        ("gt", "greater than"),
        ("ge", "at least"),
        ("lt", "less than"),
        ("le", "at most"),
    ):
        if name in limits:
            return f"value {shorten(given)} must be {words} {limits[name]}"
    wanted = _TYPES.get(kind)
    return f"value {shorten(given)} must be {wanted}" if wanted else f"value {shorten(given)}: {error['msg']}"


_TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "finite_number": "a finite number",
    "int_from_float": "an integer",
}


def _known_keys(path: Sequence[str | int]) -> list[str]:
    """Keys of the table at a path of the file."""
    model: Any = StudyDocument
    for part in path:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        model = next((kind for kind in _nested(annotation) if issubclass(kind, BaseModel)), model)
    return list(model.model_fields)


def _nested(annotation: Any) -> Iterator[type[Any]]:
    """The classes inside an annotation."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for inner in get_args(annotation):
        yield from _nested(inner)
