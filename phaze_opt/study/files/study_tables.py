"""The tables of a study file, as pydantic checks them: their keys are fields of the plan (`study.config`).

What a key means, its default and its limits are stated where the plan is, or with a scenario's options
(`objective.scenario_options`); here stand only the names of keys and tables, where a file calls them otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, create_model

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario_options import Declaration, Kind, ScenarioOptions, SpaceOptions, declarations
from phaze_opt.study.config import (
    MAX_LISTED,
    WRITTEN,
    Budget,
    Contender,
    Generality,
    Judgement,
    Number,
    PublishedClaim,
    Some,
    StudyConfig,
    StudyWorkload,
    Text,
    Word,
    distinct,
)


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
SECTIONS = {name: _of_options(name, name) for name in ("cluster", "training", "space", "budgets")}
"""Tables that every setting starts from."""
_SECTION_FIELDS: dict[str, Any] = {name: (table, table()) for name, table in SECTIONS.items()}
SettingTable = _of_options(
    "SettingTable", *SECTIONS, name=(Text, ...), objective=(_OBJECTIVE | None, None), constants=(_CONSTANTS, {})
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
