"""From a study's plan to its searches: conditions (setting x workload) and cells (condition x contender x seed)."""

from dataclasses import dataclass

from phaze_opt.hardware.constants import Constants
from phaze_opt.objective.goals import Goal, evaluations_digest, problem_digest
from phaze_opt.objective.scenario import Scenario
from phaze_opt.search.config import SearchConfig
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.config import Contender, Setting, StudyConfig, StudyWorkload


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
