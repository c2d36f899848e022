"""The plan of a study as values: what is compared, on what, at which cost, how it is judged; and the searches it makes.

Study files are checked by the same fields (`files.study_tables`): where a file is held to more than a field's type,
such as limits, the field says so itself. Conditions are setting x workload, cells condition x contender x seed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.goals import Goal, evaluations_digest, problem_digest
from phaze_opt.objective.scenario import CommonMean, Scenario
from phaze_opt.objective.scenario_options import ScenarioOptions
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.options import OptionValue
from phaze_opt.space.search_space import SearchSpace

WRITTEN = "written"
"""Key in a field's metadata of its type in a study file, where that is narrower than the field's own."""
MAX_SEED = 2**32 - 1
MAX_LISTED = 1000
"""Values of one list of a study file, seeds among them, and problems of a study: settings x workloads."""
MAX_CELLS = 100_000
"""Searches of a study."""
MIN_BOOTSTRAP = 100
"""Resamples below which the ends of an interval are chance."""


def distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Each value once: a value given twice is a slip, and would count double in a space or a table."""
    for index, value in enumerate(values):
        if value in values[:index]:
            message = f"names {value} twice; give each value once"
            raise ValueError(message)
    return values


def _count_seeds(value: object) -> object:
    """A number of seeds means the first so many, from 0."""
    if type(value) is int:
        if not 1 <= value <= MAX_LISTED:
            message = f"value {value} must be a number of seeds from 1 to {MAX_LISTED}, or a list of seeds"
            raise ValueError(message)
        return list(range(value))
    return value


def written(kind: Any, default: Any) -> Any:
    """A field with a default whose values in a study file are of a narrower type."""
    return field(default=default, metadata={WRITTEN: kind})


Number = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Share = Annotated[Number, Field(gt=0, lt=1)]
Text = Annotated[str, Field(min_length=1)]
# A file has lists and words; `strict=False` lets them stand for tuples and members of enumerations.
Some = Field(min_length=1, max_length=MAX_LISTED, strict=False)
Word = Field(strict=False)
Seeds = Annotated[tuple[Annotated[int, Field(ge=0, le=MAX_SEED)], ...], BeforeValidator(_count_seeds), Some]


@dataclass(frozen=True, slots=True)
class Budget:
    """What each search of a study may spend: evaluations (for claims) or seconds (for use, never for claims)."""

    evaluations: int = written(Annotated[int, Field(ge=1, le=1_000_000)], 60)
    seconds: float | None = written(Positive | None, None)


@dataclass(frozen=True, slots=True)
class StudyWorkload:
    """One model, or several that share one design.

    Attributes:
        name: unique in the study.
        models: zoo names or config files.
        common: mean over several models.
        weight: of the workload in means over workloads.
    """

    name: str = field(metadata={WRITTEN: Text})
    models: tuple[str, ...] = field(metadata={WRITTEN: Annotated[tuple[Text, ...], Some]})
    common: CommonMean = written(Annotated[CommonMean, Word], CommonMean.ARITHMETIC)
    weight: float = written(Positive, 1.0)


@dataclass(frozen=True, slots=True)
class Contender:
    """One strategy under comparison: a plug-in with its options and, maybe, a pruner.

    Attributes:
        name: unique in the study; the strategy's own name unless given.
        strategy: plug-in of the group ``phaze_opt.strategies``.
        options: its options.
        pruner: plug-in of the group ``phaze_opt.pruners``; empty for none.
        pruner_options: its options.
    """

    name: str = field(metadata={WRITTEN: Text})
    strategy: str = field(metadata={WRITTEN: Text})
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    pruner: str = ""
    pruner_options: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(ScenarioOptions):
    """One set of circumstances: the options of a scenario with a goal, a space and assumptions.

    Attributes:
        name: unique in the study; ``default`` if a study has one setting.
        goal: what is maximised.
        micro_batches, hbm_gb: values joined to the space; of full plans, the micro-batches that plans may have. Those
            of the space unless given.
        space: phaze, die or a space file; empty for that of the silicon.
        constants: values of assumptions (and named choices) of constants.toml that replace the package's own.
    """

    name: str = "default"
    goal: Goal = Goal.THROUGHPUT
    micro_batches: tuple[int, ...] = ()
    hbm_gb: tuple[int, ...] = ()
    space: str = ""
    constants: Mapping[str, float | str] = field(default_factory=dict)


class TruthForm(StrEnum):
    """What regret is against.

    CERTIFY proves every setting x workload of one objective, and leaves certificates in the working directory;
    ENUMERATE bounds every point and evaluates what bounds leave open; BEST_KNOWN takes the best of all searches.
    """

    CERTIFY = "certify"
    ENUMERATE = "enumerate"
    BEST_KNOWN = "best-known"


@dataclass(frozen=True, slots=True)
class Judgement:
    """How searches are judged.

    Attributes:
        confidence: of bootstrap intervals and of every claim.
        num_bootstrap: resamples.
        targets: relative regrets whose first evaluation is reported.
        truth: what regret is against, one of `TruthForm`.
    """

    confidence: float = written(Share, 0.95)
    num_bootstrap: int = written(Annotated[int, Field(ge=MIN_BOOTSTRAP, le=10_000_000)], 10_000)
    targets: tuple[float, ...] = written(
        Annotated[tuple[Share, ...], Some, AfterValidator(distinct)], (0.05, 0.01, 0.001)
    )
    truth: TruthForm = written(Annotated[TruthForm, Word], TruthForm.BEST_KNOWN)


@dataclass(frozen=True, slots=True)
class Generality:
    """The per-model versus common-design question; asked of the single-model workloads of a study.

    Attributes:
        means: means of throughput over each model's own best that a common design is chosen by.
    """

    means: tuple[CommonMean, ...] = written(
        Annotated[tuple[Annotated[CommonMean, Word], ...], Some, AfterValidator(distinct)],
        (CommonMean.ARITHMETIC, CommonMean.GEOMETRIC, CommonMean.WORST),
    )


@dataclass(frozen=True, slots=True)
class PublishedClaim:
    """What somebody published, which a study holds against the best designs of two of its settings.

    Attributes:
        words: who claims what of what.
        claimed: how many times the best value of one setting is that of another.
        setting, over: these two; each of one objective.
        why: why the two figures differ, or what makes them agree.
    """

    words: str = field(metadata={WRITTEN: Text})
    claimed: float = field(metadata={WRITTEN: Positive})
    setting: str = field(metadata={WRITTEN: Text})
    over: str = field(metadata={WRITTEN: Text})
    why: str = field(metadata={WRITTEN: Text})


@dataclass(frozen=True, slots=True)
class StudyConfig:
    """A controlled study: every contender on every workload in every setting, once per seed.

    Attributes:
        name: of letters, digits and dashes.
        description: what is asked, for people (Markdown).
        settings, workloads, contenders, seeds: the axes of the plan; names are unique in each.
        budget: of each search.
        batch: points asked for at a time, whatever the number of workers.
        num_starts: starting points of each search, the same for all contenders of one seed.
        judgement: how searches are judged.
        generality: ask the per-model versus common question too; None for not.
        claims: what others published of two settings.
        source: the file it was read from, if any; plays no part in results.
    """

    name: str = field(metadata={WRITTEN: Text})
    description: str
    workloads: tuple[StudyWorkload, ...]
    contenders: tuple[Contender, ...]
    settings: tuple[Setting, ...] = (Setting(),)
    seeds: tuple[int, ...] = written(Seeds, (0, 1, 2, 3, 4))
    budget: Budget = field(default_factory=Budget)
    batch: int = written(Annotated[int, Field(ge=1, le=4096)], 4)
    num_starts: int = written(Annotated[int, Field(ge=0, le=4096)], 1)
    judgement: Judgement = field(default_factory=Judgement)
    generality: Generality | None = None
    source: str = ""
    claims: tuple[PublishedClaim, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """What searches of one setting and workload share: the problem.

    Attributes:
        setting, workload: of the study.
        scenario: resolved.
        space: resolved.
        constants: resolved, the setting's overrides included.
    """

    setting: Setting
    workload: StudyWorkload
    scenario: Scenario
    space: SearchSpace
    constants: Constants

    @property
    def goal(self) -> Goal:
        """What is maximised."""
        return self.setting.goal

    @property
    def key(self) -> str:
        """``<setting>.<workload>``: its name in the study's directory and tables."""
        return f"{self.setting.name}.{self.workload.name}"

    @property
    def evaluations_digest(self) -> str:
        """Equal where evaluations of a point are equal: scenario, constants and package; not goal and space."""
        return evaluations_digest(self.scenario, self.constants)

    @property
    def problem_digest(self) -> str:
        """Equal where optima are equal: also the space and the goal. What a certificate is matched by."""
        return problem_digest(self.scenario, self.constants, space=self.space, goal=self.goal)


@dataclass(frozen=True, slots=True)
class Cell:
    """One search of a study."""

    condition: Condition
    contender: Contender
    seed: int

    @property
    def key(self) -> str:
        """``<setting>.<workload>.<contender>.<seed>``: unique in the study, a file name."""
        return f"{self.condition.key}.{self.contender.name}.{self.seed}"


def search_config(study: StudyConfig, cell: Cell) -> SearchConfig:
    """How a cell searches."""
    return SearchConfig(
        strategy=cell.contender.strategy,
        options=cell.contender.options,
        goal=cell.condition.goal,
        num_trials=study.budget.evaluations,
        seed=cell.seed,
        batch=study.batch,
        pruner=cell.contender.pruner,
        pruner_options=cell.contender.pruner_options,
        num_starts=study.num_starts,
        max_seconds=study.budget.seconds,
        name=f"{study.name}: {cell.key}",
    )
