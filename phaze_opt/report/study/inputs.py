"""What a report of a study is made from: persisted results, their judgement, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal
from phaze_opt.report.study.findings import describe_findings
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.scores import ContenderScore, StudySummary


@dataclass(frozen=True, slots=True, eq=False)
class ReportInputs:
    """A study, its judgement, and the evaluations of what it tried.

    Attributes:
        result: read back from the study's directory.
        summary: of the same result.
        evaluations: by key of the condition and point; those that are not kept may be absent.
        run_ids: runs of the tracker by key of the cell, where they are known.
    """

    result: StudyResult
    summary: StudySummary
    evaluations: Mapping[str, Mapping[DesignPoint, Evaluation]] = field(default_factory=dict)
    run_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[str, ...]:
        """What the study found, in sentences."""
        return describe_findings(self.result, self.summary)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Names in the study's order: the place in it is a contender's look in every figure."""
        return tuple(contender.name for contender in self.result.config.contenders)

    @property
    def budget(self) -> int:
        """Evaluations that each search was granted."""
        return self.result.config.budget.evaluations

    @property
    def is_multi_objective(self) -> bool:
        """Whether any condition has several objectives."""
        return any(condition.goal is Goal.PARETO for condition in self.result.conditions)

    def cells_of(self, condition: Condition) -> tuple[CellResult, ...]:
        """Finished searches of a condition."""
        return tuple(cell for cell in self.result.cells if cell.cell.condition.key == condition.key)

    def scores_of(self, condition: Condition) -> tuple[ContenderScore, ...]:
        """Contenders in a condition, best first."""
        return tuple(score for score in self.summary.by_condition if score.condition == condition.key)

    def describe_run(self, cell_key: str, number: int) -> str:
        """Where a trial is to be found: its cell, its number, and its run where known."""
        text = f"{cell_key} trial {number}"
        run_id = self.run_ids.get(cell_key, "")
        return f"{text} (run {run_id})" if run_id else text
