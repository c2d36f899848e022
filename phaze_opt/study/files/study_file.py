"""The TOML form of a study: its tables, and a plan of them, every fault one sentence with file, line and key."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields
from enum import StrEnum
from pathlib import Path
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, create_model

from phaze_opt.errors import InputError, PluginError
from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario_options import Declaration, Kind, ScenarioOptions, SpaceOptions, declarations
from phaze_opt.plugins import NAME_AGAIN, GivenPlugin, PluginGroup, named_again, plugin_name, short_name
from phaze_opt.record.document import Document, read_toml
from phaze_opt.record.input_files import is_there
from phaze_opt.record.line_numbers import KeyPath
from phaze_opt.record.suggestions import known_as
from phaze_opt.study.config import (
    MAX_CELLS,
    MAX_LISTED,
    WRITTEN,
    Budget,
    Contender,
    Generality,
    Judgement,
    Number,
    PublishedClaim,
    Setting,
    Some,
    StudyConfig,
    StudyWorkload,
    Text,
    Word,
    distinct,
)
from phaze_opt.study.files.resolve import resolve_study
from phaze_opt.workload.zoo import list_models


class Table(BaseModel):
    """A table whose keys are known and whose values have the type they are written in."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _of_plan(
    title: str,
    kind: type[Any],
    keys: Mapping[str, str] | None = None,
    /,
    *,
    optional: Sequence[str] = (),
    **others: Any,
) -> Any:
    """A table whose keys are fields of a part of the plan.

    Args:
        title: of the table.
        kind: the part.
        keys: field by key; all fields by their own names unless given.
        optional: keys that may be left out, which is not their field's default.
        others: type and default of further keys.
    """
    hints, known = get_type_hints(kind), {field.name: field for field in fields(kind)}
    made = {}
    for key, field in (keys or {name: name for name in known}).items():
        written, default = known[field].metadata.get(WRITTEN, hints[field]), _default(known[field])
        made[key] = (written | None, None) if key in optional else (written, default)
    return create_model(title, __base__=Table, **(made | others))


def _default(field: Field[Any]) -> Any:
    if field.default is not MISSING:
        return field.default
    return ... if field.default_factory is MISSING else field.default_factory()


def _written(option: Declaration) -> Any:
    """The type of an option of a scenario in a file."""
    count = Annotated[int, pydantic.Field(ge=option.low, le=option.high)]
    kinds: dict[Kind, Any] = {
        Kind.COUNT: count,
        Kind.COUNTS: Annotated[tuple[count, ...], Some, AfterValidator(distinct)],
        Kind.AMOUNT: Annotated[Number, pydantic.Field(gt=0)],
        Kind.GAP: Annotated[Number, pydantic.Field(ge=0, lt=1)],
        Kind.TEXT: Text,
        Kind.SWITCH: bool,
    }
    if option.kind is Kind.WORD:
        return Annotated[option.words(), Word] if option.enumeration else Text
    return kinds[option.kind]


OPTIONS = {
    option.key: option
    for options in (ScenarioOptions, SpaceOptions)
    for option in declarations(options).values()
    if option.table
}
"""Options of a scenario and of a space that study files have, by key."""
FIELDS = {key: option.name for key, option in OPTIONS.items()} | {"objective": "goal", "micro_batch": "micro_batches"}
"""The field of `Setting` by key of the file, where the two may differ."""


def _of_options(title: str, /, *tables: str, **others: Any) -> Any:
    """A table whose keys are the options of some tables; what is not given is left to the plan's defaults."""
    keys = {
        # A table cannot hold its own name: ``[space]`` says ``file`` for what ``[[setting]]`` calls ``space``.
        "file" if (key,) == tables else key: (_written(option) | None, None)
        for key, option in OPTIONS.items()
        if option.table in tables
    }
    return create_model(title, __base__=Table, **(keys | others))


def _several(table: Any) -> Any:
    """A list of tables or names."""
    return Annotated[GenericAlias(list, (table,)), pydantic.Field(max_length=MAX_LISTED)]


STUDY = {"starting_points": "num_starts", **{key: key for key in ("name", "description", "seeds", "batch")}}
STATISTICS = {"bootstrap": "num_bootstrap", **{key: key for key in ("confidence", "targets", "truth")}}
"""Fields of `StudyConfig` and `Judgement` by the keys of ``[study]`` and ``[statistics]``."""
_OBJECTIVE, _CONSTANTS = Annotated[Goal, Word], dict[str, Number | str]

BudgetTable = _of_plan("BudgetTable", Budget, optional=("evaluations",))
StudyTable = _of_plan(
    "StudyTable",
    StudyConfig,
    STUDY,
    description=(str, ""),
    objective=(_OBJECTIVE, Goal.THROUGHPUT),
    budget=(BudgetTable, BudgetTable()),
    workloads=(_several(Text), []),
    strategies=(_several(Text), []),
)
_TABLES_OF_OPTIONS = {name: _of_options(name, name) for name in ("cluster", "training", "space", "budgets")}
"""Tables that every setting starts from."""
_SECTION_FIELDS: dict[str, Any] = {name: (table, table()) for name, table in _TABLES_OF_OPTIONS.items()}
SettingTable = _of_options(
    "SettingTable",
    *_TABLES_OF_OPTIONS,
    name=(Text, ...),
    objective=(_OBJECTIVE | None, None),
    constants=(_CONSTANTS, {}),
)
WorkloadTable = _of_plan("WorkloadTable", StudyWorkload, optional=("name",))
StrategyTable = _of_plan("StrategyTable", Contender, optional=("name",))
StatisticsTable = _of_plan("StatisticsTable", Judgement, STATISTICS)
GeneralityTable = _of_plan("GeneralityTable", Generality)
ClaimTable = _of_plan("ClaimTable", PublishedClaim)
StudyDocument: Any = create_model(
    "StudyDocument",
    __base__=Table,
    study=(StudyTable, ...),
    constants=(_CONSTANTS, {}),
    setting=(_several(SettingTable) | None, pydantic.Field(None, min_length=1)),
    workload=(_several(WorkloadTable), []),
    strategy=(_several(StrategyTable), []),
    statistics=(StatisticsTable, StatisticsTable()),
    generality=(GeneralityTable | None, None),
    claim=(_several(ClaimTable), []),
    **_SECTION_FIELDS,
)
"""A study file."""


MAX_TRIALS_IN_TIME = 100_000
"""Ceiling of a budget in seconds."""


def read_study(path: Path, plugin_files: Sequence[str] = ()) -> StudyConfig:
    """The plan of a study file, known to work: models, files, plug-ins and their options are all looked at.

    Files named in it are relative to it.

    Args:
        path: of the file.
        plugin_files: code that it may name, as its user names it too; by the names of the files.

    Raises:
        InputError: the file cannot be read or a part of the plan is wrong; says file, line and key.
        PluginError: a strategy or pruner is unknown or fails to load; says file, line and key.
    """
    toml = read_toml(path, kind="a study file (TOML)")
    files = [Path(file) for file in plugin_files]
    config = _Reader(toml, path.parent, files).to_config(toml.validate(StudyDocument), str(path))
    names = {name for each in config.contenders for name in (each.strategy, each.pruner)}
    for file in files:
        if file not in {name.file for name in names if isinstance(name, GivenPlugin)}:
            message = f"'{file}' is named by no strategy or pruner of {path}; leave it out"
            raise InputError(message, source=NAME_AGAIN)
    resolve_study(config, StudyOrigin(toml, config).at)
    return config


@dataclass(frozen=True, slots=True)
class _Reader:
    """Tables to a plan; files named in them are relative to a folder, and those of code are named by the user too."""

    toml: Document
    folder: Path
    plugin_files: Sequence[Path] = ()

    def to_config(self, document: Any, name: str) -> StudyConfig:
        """The plan that the tables describe.

        Raises:
            InputError: a budget has no limit or two, or the study has no end.
        """
        study, generality = document.study, document.generality
        short = tuple(StudyWorkload(_stem(model), (self._locate_model(model),)) for model in study.workloads)
        plan = StudyConfig(
            **({"description": study.description} | _given(study, STUDY)),
            workloads=(*short, *map(self._workload, document.workload)),
            contenders=(*map(self._named, study.strategies), *map(self._contender, document.strategy)),
            settings=self._settings(document),
            budget=self._budget(study.budget),
            judgement=Judgement(**_given(document.statistics, STATISTICS)),
            generality=None if generality is None else Generality(generality.means),
            claims=tuple(PublishedClaim(**_given(table)) for table in document.claim),
            source=name,
        )
        problems = len(plan.settings) * len(plan.workloads)
        searches = problems * len(plan.contenders) * len(plan.seeds)
        if problems > MAX_LISTED or searches > MAX_CELLS:
            rule = f"asks for {searches:,} searches of {problems:,} problems; at most {MAX_CELLS:,} of {MAX_LISTED:,}"
            raise self.toml.fault(rule, "study")
        return plan

    def _budget(self, budget: Any) -> Budget:
        """Evaluations, or seconds under a ceiling of evaluations."""
        if budget.seconds is None:
            return Budget(**_given(budget))
        if budget.evaluations is not None:
            message = "gives evaluations and seconds; give one of them"
            raise self.toml.fault(message, "study", "budget")
        return Budget(evaluations=MAX_TRIALS_IN_TIME, seconds=budget.seconds)

    def _workload(self, table: Any) -> StudyWorkload:
        models = tuple(map(self._locate_model, table.models))
        return StudyWorkload(**({"name": "+".join(map(_stem, table.models))} | _given(table) | {"models": models}))

    def _settings(self, document: Any) -> tuple[Setting, ...]:
        """The base setting, or one per table that starts from it."""
        base = {
            **_given(document.cluster),
            **_given(document.training),
            **_given(document.budgets),
            **_given(document.space, {"file": "space", "hbm_gb": "hbm_gb", "micro_batch": "micro_batch"}),
            "objective": document.study.objective,
            "constants": document.constants,
        }
        if document.setting is None:
            return (self._setting(base),)
        return tuple(
            self._setting(base | _given(table) | {"constants": document.constants | table.constants})
            for table in document.setting
        )

    def _setting(self, values: Mapping[str, Any]) -> Setting:
        """A setting from the keys of a file."""
        fields: dict[str, Any] = {
            FIELDS.get(key, key): str(value) if isinstance(value, StrEnum) and key != "objective" else value
            for key, value in values.items()
        }
        fields |= {key: self._locate_file(fields[key]) for key in ("network", "space") if key in fields}
        return Setting(**fields)

    def _locate_model(self, name: str) -> str:
        """A name of the zoo, or a file beside the study file."""
        known = known_as(name, list_models())
        return known if known in list_models() else self._locate_file(name)

    def _locate_file(self, name: str) -> str:
        """A name as it is, unless it looks like a file; then from the study file's folder."""
        is_file = name.endswith((".toml", ".json")) or "/" in name or is_there(self.folder / name)
        return str(self.folder / name) if is_file else name

    def _locate_plugin(self, group: PluginGroup, name: str) -> str:
        """The name of a plug-in, given in any case; ``file.py:Class`` from the study file's folder."""
        return named_again(str(self.folder / name), self.plugin_files) if ".py:" in name else plugin_name(group, name)

    def _named(self, strategy: str) -> Contender:
        located = self._locate_plugin(PluginGroup.STRATEGIES, strategy)
        return Contender(short_name(located), located)

    def _contender(self, table: Any) -> Contender:
        """A contender; its name says what it is unless given."""
        given = _given(table)
        groups = {"strategy": PluginGroup.STRATEGIES, "pruner": PluginGroup.PRUNERS}
        own = {key: self._locate_plugin(group, given[key]) for key, group in groups.items() if given.get(key)}
        return Contender(**{"name": "+".join(map(short_name, own.values()))} | given | own)


def _given(table: Any, fields: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What the file says in a table, by field.

    Args:
        table: of the file.
        fields: those asked for, by key; all by their own names unless given.
    """
    return {
        key if fields is None else fields[key]: getattr(table, key)
        for key in table.model_fields_set
        if fields is None or key in fields
    }


def _stem(name: str) -> str:
    """A model's name: of a config.json that of its folder, of another file that of the file."""
    path = Path(name)
    if path.name == "config.json" and path.parent.name:
        return path.parent.name
    return path.stem if path.suffix == ".json" else path.name


SECTIONS: Mapping[str, KeyPath] = {
    **{key: (option.table, key) for key, option in OPTIONS.items()},
    "space": ("space", "file"),
    "objective": ("study", "objective"),
    "constants": ("constants",),
}
"""Where the keys of a setting stand that holds for all."""


@dataclass(frozen=True, slots=True)
class StudyOrigin:
    """Names file, line and key of whatever is wrong with a plan that was read from a file."""

    toml: Document
    config: StudyConfig

    @contextmanager
    def at(self, kind: str, name: str, key: str) -> Iterator[None]:
        """A block whose faults are about one key."""
        try:
            yield
        except InputError as error:
            path = self._path(kind, name, _option_field(error) or key or str(error.key or ""), error)
            raise self.toml.fault(_plain(error), *path) from error
        except PluginError as error:
            plugin = "pruner" if "pruner" in str(error) and key else "strategy"
            path = self._path(kind, name, key if kind == "setting" else plugin, error)
            raise PluginError(str(self.toml.fault(str(error), *path))) from error

    def _path(self, kind: str, name: str, key: str, error: Exception) -> KeyPath:
        """The keys of a part of the plan, from the outside in."""
        values = self.toml.values
        if kind == "setting":
            return self._setting_path(name, key, error)
        if kind == "workload":
            return self._entry_path("workload", "workloads", name, key)
        if kind == "contender" and key == "num_starts":
            return ("study", "starting_points")
        if kind == "contender":
            path = self._entry_path("strategy", "strategies", name, key)
            return self._option_path(path, str(getattr(error, "key", "") or ""))
        if kind == "study" and key in {"workloads", "strategies"} and key not in values["study"]:
            return ("study",)
        part: KeyPath = ("claim", int(name)) if kind == "claim" else (kind,)
        return (*part, key) if key and key != kind else part

    def _setting_path(self, name: str, field: str, error: Exception) -> KeyPath:
        """A key of a setting, by the field of `Setting` or of the scenario made of it."""
        values = self.toml.values
        tables = values.get("setting")
        # Of two of one name the second is at fault.
        index = None if tables is None else max(i for i, table in enumerate(tables) if table.get("name") == name)
        key = {field: key for key, field in FIELDS.items()}.get(field, field)
        if key not in SECTIONS:
            return ("setting", index, "name") if index is not None else ("study",)
        path: KeyPath = SECTIONS[key]
        if index is not None and key in values["setting"][index]:
            path = ("setting", index, key)
        return self._constant_path(path, values, index, str(error)) if key == "constants" else path

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
        num_short = len(self.toml.values["study"].get(short, ()))
        # Of two of one name the second is at fault.
        position = len(names) - 1 - names[::-1].index(name)
        if position < num_short:
            return ("study", short, position)
        entry = self.toml.values[table][position - num_short]
        where: KeyPath = (table, position - num_short)
        return (*where, key) if key in entry else where

    def _option_path(self, path: KeyPath, option: str) -> KeyPath:
        """The option of a strategy or pruner that is at fault."""
        if len(path) < 2 or path[0] != "strategy" or not option:
            return path
        entry = self.toml.values["strategy"][path[1]]
        for key in ("options", "pruner_options"):
            if option in entry.get(key, {}):
                return ("strategy", path[1], key, option)
        return path


_BY_FLAG = {option.flag: option for option in OPTIONS.values()}
_FLAG = re.compile("|".join(rf"{re.escape(flag)}(?![a-z-])" for flag in sorted(_BY_FLAG, reverse=True)))


def _option_field(error: InputError) -> str:
    """The field of the option whose flag an error names; empty where it names none."""
    option = _BY_FLAG.get(error.source or "")
    return "" if option is None else option.name


def _plain(error: InputError) -> str:
    """An error's sentence with keys in place of flags; the key it names is said by the place already.

    A file of its own is kept.
    """
    text = str(error)
    if error.source is None and error.key is not None:
        text = text.removeprefix(f"'{error.key}': ")
    if error.source in _BY_FLAG:
        text = text.removeprefix(f"{error.source}: ")
    return _FLAG.sub(lambda found: f"'{_BY_FLAG[found[0]].key}'", text)
