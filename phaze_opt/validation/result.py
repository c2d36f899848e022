"""What a validation finds: goals, errors and rank correlations, figures of sets and groups, rows explained."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from phaze_opt.hardware.fitted import FittedConstants
from phaze_opt.hardware.spreads import LEVEL
from phaze_opt.record.arrays import Floats
from phaze_opt.record.near_ties import comparable
from phaze_opt.validation.dataset import Dataset
from phaze_opt.validation.family import Part
from phaze_opt.validation.measured_row import Row
from phaze_opt.validation.schema import BY_CELL, PUBLISHED_SETS


@dataclass(frozen=True, slots=True)
class ErrorGoal:
    """A mean absolute percentage error not to exceed, of a set or of a group of its rows."""

    dataset: str
    group: str
    percent: float


ERROR_GOALS = tuple(
    ErrorGoal(name, group, percent) for name, each in PUBLISHED_SETS.items() for group, percent in each.goals.items()
)
NORMS = "softmax/layernorm/gelu"


def group_labels(row: Row) -> tuple[str, ...]:
    """Groups that a row belongs to."""
    if row.dataset == "op_llmcompass":
        device, op = row.text("hardware").split("-")[0], row.text("op")
        return (f"{device} {op}",) if op == "matmul" else (NORMS, f"{device} {op}")
    return tuple(row.text(column) for column in PUBLISHED_SETS[row.dataset].groups if row.text(column, ""))


PER_CENT = 100.0


@dataclass(frozen=True, slots=True)
class Scores:
    """Figures of a set of rows; nan where there are too few rows.

    Attributes:
        num_rows: rows scored.
        mape: mean of |predicted / measured - 1|, per cent.
        median_ape, p90_ape: median and 90th percentile of the same, per cent.
        bias: mean of predicted / measured - 1, per cent: below 0 is too fast.
        spearman, kendall: rank correlations of predicted with measured; nan below 3 rows or if either is constant.
    """

    num_rows: int
    mape: float
    median_ape: float
    p90_ape: float
    bias: float
    spearman: float
    kendall: float


def relative_errors(predicted: Floats, measured: Floats) -> Floats:
    """Predicted / measured - 1, shape (num_rows,)."""
    return np.asarray(predicted / measured - 1.0)


def score(predicted: Floats, measured: Floats) -> Scores:
    """Score predictions.

    Args:
        predicted: positive times, shape (num_rows,), s.
        measured: positive times, shape (num_rows,), s.
    """
    if len(predicted) == 0:
        return Scores(0, *[math.nan] * 6)
    errors = relative_errors(predicted, measured)
    absolute = np.abs(errors)
    spearman, kendall = rank_correlations(predicted, measured)
    return Scores(
        num_rows=len(predicted),
        mape=float(absolute.mean()) * PER_CENT,
        median_ape=float(np.median(absolute)) * PER_CENT,
        p90_ape=float(np.quantile(absolute, 0.9)) * PER_CENT,
        bias=float(errors.mean()) * PER_CENT,
        spearman=spearman,
        kendall=kendall,
    )


def rank_correlations(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Spearman's and Kendall's (tau-b); nan below 3 rows or where one side is constant."""
    from scipy.stats import kendalltau, spearmanr

    if len(predicted) < 3 or np.ptp(predicted) == 0 or np.ptp(measured) == 0:
        return math.nan, math.nan
    # Predictions that rounding alone tells apart are ties, on every CPU.
    ranked = comparable(predicted), comparable(measured)
    return float(spearmanr(*ranked).statistic), float(kendalltau(*ranked).statistic)


def mape(predicted: Floats, measured: Floats) -> float:
    """Mean absolute percentage error, per cent; nan of nothing."""
    if len(predicted) == 0:
        return math.nan
    return float(np.abs(relative_errors(predicted, measured)).mean()) * PER_CENT


def mape_by_cell(predicted: Floats, measured: Floats, cells: Sequence[str]) -> float:
    """Mean over cells of the mean absolute percentage error within each: every cell counts once, per cent."""
    if len(predicted) == 0:
        return math.nan
    absolute = np.abs(relative_errors(predicted, measured))
    groups: dict[str, list[float]] = {}
    for cell, value in zip(cells, absolute.tolist(), strict=True):
        groups.setdefault(cell, []).append(value)
    return float(np.mean([np.mean(values) for values in groups.values()])) * PER_CENT


@dataclass(frozen=True, slots=True)
class RowResult:
    """One row: measured and predicted time, s; ``reason`` says why it is not scored and is empty if it is.

    A row whose value nobody published may be predicted though it is not scored. ``low_s`` and ``high_s`` are the range
    that 90 of 100 rows of its kind lie in that no constant was fitted to; nan where no range is known. ``least_s`` and
    ``most_s`` are the least and the most of the software that it may be of; nan where that is one.
    """

    row: Row
    measured_s: float
    predicted_s: float
    regime: str
    cell: str
    reason: str
    low_s: float = math.nan
    high_s: float = math.nan
    least_s: float = math.nan
    most_s: float = math.nan

    @property
    def is_middle(self) -> bool:
        """Whether the prediction is the middle of several software, because the row names none that is known."""
        return self.least_s < self.most_s

    @property
    def is_within(self) -> bool:
        """Whether the measured time lies between the least and the most of them."""
        return self.least_s <= self.measured_s <= self.most_s

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def is_held(self) -> bool:
        """Whether the measurement lies in the range."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, slots=True)
class RangeScores:
    """How ranges of 90 % hold on rows scored.

    Attributes:
        num_rows: rows with a range.
        held: share of them whose measurement lies in it; nan of none.
        half_width: median over rows of half the range, as a share of the prediction; nan of none.
    """

    num_rows: int
    held: float
    half_width: float


def range_scores(rows: Sequence[RowResult]) -> RangeScores:
    """How the ranges of some rows hold, of those that have one."""
    known = [row for row in rows if math.isfinite(row.low_s)]
    if not known:
        return RangeScores(0, math.nan, math.nan)
    held = sum(row.is_held for row in known) / len(known)
    return RangeScores(len(known), held, median((row.high_s - row.low_s) / (2.0 * row.predicted_s) for row in known))


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
        ranges: how the ranges of its rows hold.
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
    ranges: RangeScores

    @property
    def name(self) -> str:
        """Name of the data set."""
        return self.dataset.name

    @property
    def unmeasured(self) -> tuple[RowResult, ...]:
        """Rows that are predicted and scored against nothing."""
        return tuple(each for each in self.rows if each.reason and math.isfinite(each.predicted_s))

    @property
    def unscored_reasons(self) -> Mapping[str, int]:
        """How many rows are unscored for each reason, most first."""
        counts = Counter(result.reason for result in self.rows if result.reason)
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

    def to_json(self) -> dict[str, Any]:
        """Figures by data set; errors in per cent, nan where nothing is scored."""
        return {
            "datasets": {result.name: _set_to_json(result) for result in self.sets},
            "goals": [{**asdict(goal), "is_met": goal.is_met} for goal in self.goals],
            "fitted_digest": self.fitted.digest,
        }


def _set_to_json(result: SetResult) -> dict[str, Any]:
    groups = {group.label: _group_to_json(group) for group in result.groups}
    if result.num_cells > 1:
        groups[BY_CELL] = {"rows": result.scores.num_rows, "cells": result.num_cells, "mape": result.mape_by_cell}
    return {
        "rows": len(result.rows),
        "scored": result.scores.num_rows,
        "unscored_reasons": dict(result.unscored_reasons),
        "unmeasured": [{"line": each.row.line, "predicted": each.predicted_s} for each in result.unmeasured],
        **_scores_to_json(result.scores),
        "baseline_mape": result.baseline_mape,
        "baseline": result.baseline,
        "mape_by_cell": result.mape_by_cell,
        "range": {"level": LEVEL, **asdict(result.ranges)},
        "groups": groups,
        "regimes": {group.label: _group_to_json(group) for group in result.regimes},
        "family": result.family,
        "like": ", ".join(result.dataset.likes),
        "is_context": result.dataset.is_context,
        "middles": [
            {"line": each.row.line, "predicted": each.predicted_s, "low": each.least_s, "high": each.most_s}
            for each in result.rows
            if each.is_middle
        ],
    }


def _group_to_json(group: GroupResult) -> dict[str, Any]:
    scores = _scores_to_json(group.scores)
    return {"rows": group.scores.num_rows, **scores, "baseline_mape": group.baseline_mape}


def _scores_to_json(scores: Scores) -> dict[str, float]:
    return {name: value for name, value in asdict(scores).items() if name != "num_rows"}
