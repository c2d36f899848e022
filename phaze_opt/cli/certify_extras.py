"""What ``phaze-opt certify`` adds to a proof: the best design of lower value, where all of the best ones tie."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from phaze_opt.cli.output import working

if TYPE_CHECKING:
    from phaze_opt.certify.problem import CertifyProblem
    from phaze_opt.certify.result import CertifyResult, RankedDesign
    from phaze_opt.report.runner_up import RunnerUp

MAX_EVALUATIONS = 40
"""Points looked at for the best one of lower value; beyond that the best one seen is named as that."""


def find_runner_up(result: CertifyResult, problem: CertifyProblem) -> RunnerUp | None:
    """The best design of lower value and why it loses; None if there is none.

    It is among the best designs unless all of these tie. Then points are evaluated from the highest bound down until no
    bound is left that exceeds the best value below the optimum.

    Raises:
        InputError: the certificate's table cannot be read.
    """
    from phaze_opt.report.runner_up import explain_runner_up

    goal = problem.goal
    found = explain_runner_up(result.best, goal=goal)
    if found is not None or not result.best:
        return found
    with working("looking for the runner-up"):
        second, is_certain = _evaluate_below(result, problem)
    if second is None:
        return None
    explained = explain_runner_up((result.best[0], second), goal=goal)
    return None if explained is None else replace(explained, is_certain=is_certain)


def _evaluate_below(result: CertifyResult, problem: CertifyProblem) -> tuple[RankedDesign | None, bool]:
    """The best point below the optimum, and whether no other can be between."""
    import numpy as np

    from phaze_opt.certify.reading import read_values
    from phaze_opt.certify.result import RankedDesign
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.objective.goals import goal_values
    from phaze_opt.report.certificate import TIED

    known = read_values(result.certificate, result.directory)
    attained, upper = known.values, known.values_upper
    least = result.best[0].value * (1.0 - TIED)
    is_open = (attained < least) & (upper > 0.0)
    order = [index for index in np.argsort(-upper, kind="stable").tolist() if is_open[index]]
    num_tied = int(np.count_nonzero(attained >= least))
    objective = Objective(problem.scenario, constants=problem.constants)
    second: RankedDesign | None = None
    for count, index in enumerate(order):
        if second is not None and upper[index] <= second.value:
            return second, True
        if count == MAX_EVALUATIONS:
            return second, False
        evaluation = objective.evaluate(problem.space.point(index))
        value = next(iter(goal_values(problem.goal, evaluation)), 0.0)
        if value >= least:
            num_tied += 1
        elif value > (0.0 if second is None else second.value):
            point = problem.space.point(index)
            second = RankedDesign(1 + num_tied, index, point, value, float(upper[index]), evaluation)
    return second, True
