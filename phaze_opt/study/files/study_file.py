"""The TOML form of a study: tables to a plan, every fault one sentence with file, line and key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.record.document import Document, read_toml
from phaze_opt.record.input_files import is_there
from phaze_opt.record.spelling import suggest
from phaze_opt.study.config import Budget, Contender, Generality, Judgement, Setting, StudyConfig, Workload
from phaze_opt.study.files.resolve import resolve_study
from phaze_opt.study.files.study_models import WORDS, StrategyTable, StudyDocument, WorkloadTable
from phaze_opt.study.files.study_origin import FIELDS, StudyOrigin, setting_path
from phaze_opt.workload.zoo import list_models

_EnumT = TypeVar("_EnumT", bound=StrEnum)
MAX_TRIALS_IN_TIME = 100_000
"""Ceiling of a budget in seconds."""


def read_study(path: Path) -> StudyConfig:
    """The plan of a study file, known to work: models, files, plug-ins and their options are all looked at.

    Files named in it are relative to it.

    Raises:
        InputError: the file cannot be read or a part of the plan is wrong; says file, line and key.
        PluginError: a strategy or pruner is unknown or fails to load; says file, line and key.
    """
    toml = read_toml(path, kind="a study file (TOML)")
    config = _Reader(toml, path.parent).to_config(toml.validate(StudyDocument), str(path))
    resolve_study(config, StudyOrigin(toml, config))
    return config


@dataclass(frozen=True, slots=True)
class _Reader:
    """Tables to a plan; files named in them are relative to a folder."""

    toml: Document
    folder: Path

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
            raise self.toml.fault(message, "study", "budget")
        return Budget(evaluations=MAX_TRIALS_IN_TIME, seconds=budget.seconds)

    def _workloads(self, document: StudyDocument) -> tuple[Workload, ...]:
        """Those of the short form, each one model, then the tables."""
        short = tuple(Workload(_stem(name), (self._locate_model(name),)) for name in document.study.workloads)
        return short + tuple(self._workload(index, table) for index, table in enumerate(document.workload))

    def _workload(self, index: int, table: WorkloadTable) -> Workload:
        return Workload(
            name="+".join(_stem(model) for model in table.models) if table.name is None else table.name,
            models=tuple(self._locate_model(model) for model in table.models),
            common=self._word(CommonMean, table.common, "workload", index, "common"),
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
                self._word(WORDS[key], values[key], *setting_path(self.toml.values, index, key))
        fields = {FIELDS.get(key, key): value for key, value in values.items()}
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
        return Generality(tuple(self._word(CommonMean, text, "generality", "means", i) for i, text in enumerate(means)))

    def _word(self, enum: type[_EnumT], text: str, *path: str | int) -> _EnumT:
        """A word of a closed set.

        Raises:
            InputError: it is none of them.
        """
        try:
            return enum(text)
        except ValueError:
            message = f"'{text}' is unknown; {suggest(text, [member.value for member in enum])}"
            raise self.toml.fault(message, *path) from None

    def _locate_model(self, name: str) -> str:
        """A name of the zoo, or a file beside the study file."""
        return name if name in list_models() else self._locate_file(name)

    def _locate_file(self, name: str) -> str:
        """A name as it is, unless it looks like a file; then from the study file's folder."""
        is_file = name.endswith((".toml", ".json")) or "/" in name or is_there(self.folder / name)
        return str(self.folder / name) if is_file else name


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
