"""The best evaluation of each condition of a study, as a search ranks them."""

from __future__ import annotations

from phaze_opt.errors import InputError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.study.load import open_evaluations
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import StudyResult


def best_evaluation(result: StudyResult, condition: Condition) -> Evaluation | None:
    """The best feasible evaluation of all searches of a condition by the first objective; None if there is none.

    Of equals the one of least area, then of least TDP, then the first in the study's order.
    """
    trials = [
        trial
        for cell in result.cells
        if cell.cell.condition.key == condition.key
        for trial in cell.trials
        if trial.values and not trial.is_repeat
    ]
    if not trials:
        return None
    highest = max(trial.values[0] for trial in trials)
    points = dict.fromkeys(trial.point for trial in trials if trial.values[0] == highest)
    read = open_evaluations(result, condition)
    try:
        return min((read(point) for point in points), key=lambda found: (found.area_mm2, found.tdp_w))
    except InputError:  # evaluations of other machines are kept there
        return None
