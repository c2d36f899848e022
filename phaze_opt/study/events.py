"""What a study tells its observers, and how far it is; observers record, they never change a result.

Events are raised by the process that coordinates, from what is on disk: a cell's events come when the cell is finished,
and again (equal) when a study is resumed, so an observer must take the same event twice for one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.study.result import CellResult


@dataclass(frozen=True, slots=True)
class StudyStarted:
    """A study begins or resumes.

    Attributes:
        study_id, name, num_cells: what it is.
        description: Markdown.
        config: its resolved plan, ready for JSON.
        directory: of the study; None where nothing is on disk.
    """

    study_id: str
    name: str
    description: str
    num_cells: int
    config: Mapping[str, object]
    directory: Path | None = None


@dataclass(frozen=True, slots=True)
class CellFinished:
    """One search of the study is finished.

    Attributes:
        study_id: of the study.
        result: its trials.
        evaluations: of its trials, by number; repeats share one object.
        best_number: best trial, -1 if none is feasible.
    """

    study_id: str
    result: CellResult
    evaluations: tuple[Evaluation, ...]
    best_number: int


@dataclass(frozen=True, slots=True)
class StudyFinished:
    """The study has ended or was interrupted.

    Attributes:
        study_id: of the study.
        is_complete: every cell is finished.
        contender_metrics: metrics of each contender over all its cells (`summary`), by contender and name.
        cell_metrics: metrics of each cell (simple regret and the like), by key of the cell and name.
        notes: the findings in words, Markdown.
        cell_regrets_pct: regret of each cell after each of its evaluations (of several objectives: of the hypervolume),
            by key of the cell, percent.
    """

    study_id: str
    is_complete: bool
    contender_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    cell_metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    notes: str = ""
    cell_regrets_pct: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


StudyEvent = StudyStarted | CellFinished | StudyFinished


class StudyStage(StrEnum):
    """What a study is at."""

    SEARCHES = "trials"
    REFERENCES = "references"
    TRUTHS = "true optima"
    CHIPS = "designs on every model"
