"""Evaluating the winner of a search again: what is printed is what its point is worth, whatever a journal says."""

from __future__ import annotations

import math
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.objective.evaluation import Evaluation, ScheduleQuality
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.record.input_files import shorten_path
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.search.trial import Trial

ROUNDING = 1e-12
"""Relative difference between two evaluations of one point on one machine, or on two."""


def confirm_winner(best: Trial[Evaluation], objective: PointObjective, *, goal: Goal, journal: Path) -> None:
    """Evaluate the best trial's point again and compare.

    Where a schedule ended at its time limit, two evaluations may differ, and nothing is compared.

    Args:
        best: the trial that is about to be called the best.
        objective: evaluates points; made for this, so that it remembers nothing.
        goal: what its values are of.
        journal: file of the trials, to be named.

    Raises:
        InputError: the point is worth something else than its trial says.
    """
    again = objective.evaluate(best.point)
    if _has_time_limit(again) or _has_time_limit(best.evaluation):
        return
    values = goal_values(goal, again)
    if len(values) == len(best.values) and all(map(_is_same, values, best.values)):
        return
    message = (
        f"trial {best.number} says that {best.point} is worth {_shown(best.values)}, but evaluated again it is worth "
        f"{_shown(values)}: the file was changed, or an estimator gives different answers to one question; search "
        "without --resume"
    )
    raise InputError(message, source=shorten_path(journal), key=f"trial {best.number}")


def _is_same(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=ROUNDING, abs_tol=0.0)


def _shown(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.9g}" for value in values) or "nothing, as it is infeasible"


def _has_time_limit(evaluation: Evaluation) -> bool:
    """Whether a schedule depends on how fast the machine was."""
    return any(schedule.status is ScheduleQuality.TIME_LIMIT for schedule in evaluation.schedules) or any(
        _has_time_limit(member) for member in evaluation.members
    )
