"""The tables of a study file, as pydantic checks them."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from phaze_opt.objective.goals import Goal
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.placement.problem import RecomputePolicy
from phaze_opt.schedule.problem import Exclusivity
from phaze_opt.search.options import OptionValue
from phaze_opt.workload.training import AttentionForm, Optimizer

MAX_SEED = 2**32 - 1
MAX_SEEDS = 1000
MAX_TRIALS = 1_000_000
MAX_COUNT = 1 << 20
MIN_BOOTSTRAP = 100
"""Resamples below which the ends of an interval are chance."""


def _widen(value: object) -> object:
    """An integer where a number belongs is one."""
    return float(value) if type(value) is int else value


def _count_seeds(value: object) -> object:
    """A number of seeds means the first so many, from 0."""
    if type(value) is int:
        if not 1 <= value <= MAX_SEEDS:
            message = f"value {value} must be a number of seeds from 1 to {MAX_SEEDS}, or a list of seeds"
            raise ValueError(message)
        return list(range(value))
    return value


def _distinct(values: list[object]) -> list[object]:
    """Each value once: a value given twice is a slip, and would count double in a space or a table."""
    for index, value in enumerate(values):
        if value in values[:index]:
            message = f"names {value} twice; give each value once"
            raise ValueError(message)
    return values


Number = Annotated[float, BeforeValidator(_widen), Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Counts = Annotated[list[Count], Field(min_length=1), AfterValidator(_distinct)]
Text = Annotated[str, Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]
Words = Annotated[list[Text], Field(min_length=1), AfterValidator(_distinct)]

Seeds = Annotated[list[Annotated[int, Field(ge=0, le=MAX_SEED)]], BeforeValidator(_count_seeds), Field(min_length=1)]
# Words are checked where they mean something, so that a near miss is suggested.
Word = Text


class Table(BaseModel):
    """A table whose keys are known and whose values have the type they are written in."""

    model_config = ConfigDict(extra="forbid", strict=True)


class BudgetTable(Table):
    """``budget = { evaluations = 60 }``: what each search may spend."""

    evaluations: Annotated[int, Field(ge=1, le=MAX_TRIALS)] | None = None
    seconds: Positive | None = None


class StudyTable(Table):
    """``[study]``."""

    name: Text
    description: str = ""
    objective: Word = Goal.THROUGHPUT.value
    seeds: Seeds = [0, 1, 2, 3, 4]
    budget: BudgetTable = BudgetTable()
    batch: Annotated[int, Field(ge=1, le=4096)] = 4
    starting_points: Annotated[int, Field(ge=0, le=4096)] = 1
    workloads: list[Text] = []
    strategies: list[Text] = []


class ClusterTable(Table):
    """``[cluster]``."""

    devices: Annotated[int, Field(ge=1)] | None = None
    network: Text | None = None
    global_batch: Annotated[int, Field(ge=1)] | None = None


class TrainingTable(Table):
    """``[training]``."""

    sequence_length: Count | None = None
    optimizer: Word | None = None
    attention: Word | None = None
    exclusivity: Word | None = None
    recompute: Word | None = None
    tensor_parallel: Counts | None = None
    sequence_parallel: bool | None = None
    schedule_gap: Annotated[Number, Field(ge=0, lt=1)] | None = None


class SpaceTable(Table):
    """``[space]``."""

    file: Text | None = None
    hbm_gb: Counts | None = None
    micro_batch: Counts | None = None


class BudgetsTable(Table):
    """``[budgets]`` of a chip."""

    max_area_mm2: Positive | None = None
    max_tdp_w: Positive | None = None


Constants = dict[str, Number | str]


class SettingTable(ClusterTable, TrainingTable, BudgetsTable):
    """``[[setting]]``: a name, and what differs from the tables above."""

    name: Text
    objective: Word | None = None
    space: Text | None = None
    hbm_gb: Counts | None = None
    micro_batch: Counts | None = None
    constants: Constants = {}


class WorkloadTable(Table):
    """``[[workload]]``."""

    name: Text | None = None
    models: Texts
    common: Word = CommonMean.ARITHMETIC.value
    weight: Positive = 1.0


class StrategyTable(Table):
    """``[[strategy]]``."""

    name: Text | None = None
    strategy: Text
    options: dict[str, OptionValue] = {}
    pruner: str = ""
    pruner_options: dict[str, OptionValue] = {}


class StatisticsTable(Table):
    """``[statistics]``."""

    confidence: Annotated[Number, Field(gt=0, lt=1)] = 0.95
    bootstrap: Annotated[int, Field(ge=MIN_BOOTSTRAP, le=10_000_000)] = 10_000
    targets: Annotated[list[Annotated[Number, Field(gt=0, lt=1)]], Field(min_length=1), AfterValidator(_distinct)] = [
        0.05,
        0.01,
        0.001,
    ]
    truth: Word = "best-known"


class GeneralityTable(Table):
    """``[generality]``."""

    means: Words = [mean.value for mean in CommonMean]


class StudyDocument(Table):
    """A study file."""

    study: StudyTable
    cluster: ClusterTable = ClusterTable()
    training: TrainingTable = TrainingTable()
    space: SpaceTable = SpaceTable()
    budgets: BudgetsTable = BudgetsTable()
    constants: Constants = {}
    setting: Annotated[list[SettingTable], Field(min_length=1)] | None = None
    workload: list[WorkloadTable] = []
    strategy: list[StrategyTable] = []
    statistics: StatisticsTable = StatisticsTable()
    generality: GeneralityTable | None = None


WORDS = {
    "objective": Goal,
    "optimizer": Optimizer,
    "attention": AttentionForm,
    "exclusivity": Exclusivity,
    "recompute": RecomputePolicy,
    "common": CommonMean,
    "means": CommonMean,
}
"""Keys whose words are of a closed set."""
