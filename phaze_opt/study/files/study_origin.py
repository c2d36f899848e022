"""From a part of a plan back to the place in the study file that it was read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from phaze_opt.errors import InputError, PluginError
from phaze_opt.record.document import Document
from phaze_opt.record.places import KeyPath
from phaze_opt.study.config import StudyConfig
from phaze_opt.study.files.study_models import BudgetsTable, ClusterTable, SpaceTable, TrainingTable

FIELDS = {"objective": "goal", "micro_batch": "micro_batches", "sequence_parallel": "is_sequence_parallel"}
"""Keys of the file whose field of `Setting` is called otherwise."""
_TABLES: Mapping[str, type[BaseModel]] = {
    "cluster": ClusterTable,
    "training": TrainingTable,
    "budgets": BudgetsTable,
    "space": SpaceTable,
}
SECTIONS: Mapping[str, tuple[str, str]] = {
    **{key: (section, key) for section, table in _TABLES.items() for key in table.model_fields},
    "space": ("space", "file"),
    "objective": ("study", "objective"),
}
"""Table of a key of a setting, and its name there."""


def setting_path(values: Mapping[str, Any], index: int | None, key: str) -> KeyPath:
    """Where a key of a setting is written: in its own table, or in the one that all settings start from."""
    if index is not None and key in values["setting"][index]:
        return ("setting", index, key)
    if key == "constants":
        return ("constants",)
    return SECTIONS[key]


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
            path = self._path(kind, name, key or str(error.key or ""), error)
            raise self.toml.fault(_plain(error), *path) from error
        except PluginError as error:
            path = self._path(kind, name, "pruner" if "pruner" in str(error) and key else "strategy", error)
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
        return (kind, key) if key and key != kind else (kind,)

    def _setting_path(self, name: str, field: str, error: Exception) -> KeyPath:
        """A key of a setting, by the field of `Setting` or of the scenario made of it."""
        values = self.toml.values
        tables = values.get("setting")
        # Of two of one name the second is at fault.
        index = None if tables is None else max(i for i, table in enumerate(tables) if table.get("name") == name)
        key = {field: key for key, field in FIELDS.items()}.get(field, field)
        if key not in SECTIONS and key != "constants":
            return ("setting", index, "name") if index is not None else ("study",)
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


def _plain(error: InputError) -> str:
    """An error's sentence; the key it names is said by the place already, a file of its own is kept."""
    text = str(error)
    return text.removeprefix(f"'{error.key}': ") if error.source is None and error.key is not None else text
