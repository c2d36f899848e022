"""What stands at the top of a proof: designs that tie, the best one of lower value, and those of a front."""

from dataclasses import dataclass

import numpy as np

from phaze_opt.certify.certificate import BOUND_SLACK
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.prove import read_values, with_rows_of
from phaze_opt.certify.result import CertifyResult, RankedDesign
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import FrontAxis, goal_values
from phaze_opt.objective.least_within import FrontMember

TIED = 4.0 * BOUND_SLACK
"""Relative difference up to which two values are the same: bounds are widened by `BOUND_SLACK` for rounding."""
MAX_EVALUATIONS = 40
"""Points looked at for the best one of lower value; beyond that the best one seen is named as that."""


@dataclass(frozen=True, slots=True)
class Ties:
    """How many points attain the best value: ``at_least`` by their solutions, ``at_most`` by their bounds."""

    at_least: int
    at_most: int


def count_ties(result: CertifyResult) -> Ties:
    """How many points attain the incumbent's value, from the certificate's table.

    Raises:
        InputError: the table cannot be read.
    """
    claim = result.certificate.claim
    if not claim.is_feasible:
        return Ties(0, 0)
    known = read_values(result.certificate, result.directory)
    least = claim.value * (1.0 - TIED)
    return Ties(int(np.count_nonzero(known.values >= least)), int(np.count_nonzero(known.values_upper >= least)))


@dataclass(frozen=True, slots=True)
class SecondBest:
    """The best design of lower value.

    Attributes:
        design: it.
        is_certain: no other design can lie between it and the best; otherwise it is the best of those looked at.
    """

    design: RankedDesign
    is_certain: bool


def find_second(result: CertifyResult, problem: CertifyProblem) -> SecondBest | None:
    """The best design of lower value; None if there is none.

    It is among the best designs unless all of these tie. Then points are evaluated from the highest bound down until no
    bound is left that exceeds the best value below the optimum.

    Raises:
        InputError: the certificate's table cannot be read.
    """
    listed = next((design for design in result.best if design.rank > 1), None)
    if listed is not None or not result.best:
        return None if listed is None else SecondBest(listed, is_certain=True)
    second, is_certain = _evaluate_below(result, problem)
    return None if second is None else SecondBest(second, is_certain)


def _evaluate_below(result: CertifyResult, problem: CertifyProblem) -> tuple[RankedDesign | None, bool]:
    """The best point below the optimum, and whether no other can be between."""
    known = read_values(result.certificate, result.directory)
    problem = with_rows_of(result.certificate, result.directory, problem)
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
        evaluation = objective.evaluate(problem.rows.point(index))
        value = next(iter(goal_values(problem.goal, evaluation)), 0.0)
        if value >= least:
            num_tied += 1
        elif value > (0.0 if second is None else second.value):
            point = problem.rows.point(index)
            second = RankedDesign(1 + num_tied, index, point, value, float(upper[index]), evaluation)
    return second, True


def members_of(result: CertifyResult) -> tuple[FrontMember, ...]:
    """The designs on a proved front, numbered from 1."""
    found = []
    for place, design in enumerate(result.front, start=1):
        amounts = {FrontAxis.AREA: design.area_mm2, FrontAxis.TDP: design.tdp_w}
        if design.cost_usd is not None:
            amounts[FrontAxis.COST] = design.cost_usd
        found.append(FrontMember(place, design.point, design.throughput_samples_per_s, amounts))
    return tuple(found)
