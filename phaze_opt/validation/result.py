"""What a validation finds: rows with predictions, figures of sets, groups and regimes, and the worst rows explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Part
from phaze_opt.validation.row import Row
from phaze_opt.validation.scores import Scores


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row: measured and predicted time, s; ``reason`` says why it is not scored and is empty if it is."""

    row: Row
    measured_s: float
    predicted_s: float
    regime: str
    cell: str
    reason: str

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """A row and where its predicted time goes."""

    result: RowResult
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Figures of some rows of a set.

    Attributes:
        label: which rows.
        scores: of those scored.
        baseline_mape: of the trivial model on them, per cent.
    """

    label: str
    scores: Scores
    baseline_mape: float


@dataclass(frozen=True, slots=True)
class SetResult:
    """Figures of one data set.

    Attributes:
        dataset: as read.
        family: what predicts it; empty if nothing does.
        rows: every row, in the file's order.
        scores: over the rows scored.
        mape_by_cell: mean over cells of the mean error within each, per cent.
        num_cells: cells of rows scored.
        baseline, baseline_mape: trivial model and its error on the rows scored, per cent.
        groups, regimes: figures of parts.
        worst: rows of largest error, worst first.
    """

    dataset: Dataset
    family: str
    rows: tuple[RowResult, ...]
    scores: Scores
    mape_by_cell: float
    num_cells: int
    baseline: str
    baseline_mape: float
    groups: tuple[GroupResult, ...]
    regimes: tuple[GroupResult, ...]
    worst: tuple[ExplainedRow, ...]

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.dataset.name

    @property
    def unscored_reasons(self) -> Mapping[str, int]:
        """How many rows are unscored for each reason, most first."""
        counts: dict[str, int] = {}
        for result in self.rows:
            if result.reason:
                counts[result.reason] = counts.get(result.reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal and what was reached: an error in per cent not to exceed, or a rank correlation to reach."""

    dataset: str
    group: str
    figure: str
    goal: float
    value: float

    @property
    def is_met(self) -> bool:
        """Whether the goal is reached; never where there is no value."""
        return self.value >= self.goal if self.figure == "spearman" else self.value <= self.goal


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """Figures of all sets under some constants."""

    fitted: FittedConstants
    sets: tuple[SetResult, ...]
    goals: tuple[GoalResult, ...]
