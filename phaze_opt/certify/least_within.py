"""Which design takes least within a share of a certified optimum: proved by bounds where every point has a row."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from phaze_opt.certify.bounding import SpaceBounder
from phaze_opt.certify.leanest import LEAN_ORDER, first_that
from phaze_opt.certify.point_table import costs_of
from phaze_opt.certify.problem import CertifyProblem
from phaze_opt.certify.prove import point_columns, read_values, with_rows_of
from phaze_opt.certify.result import CertifyResult
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_denominators, goal_values
from phaze_opt.objective.least_within import WITHIN, LeastDesign, LeastOf, ValuedDesign, least_among, savings_of
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.space.search_space import Positions

MAX_EVALUATIONS = 20
"""Points evaluated for one answer, the least first; beyond that the least of those known to attain enough is named."""
NUM_STARTS = 2
"""Designs of a frontier that are made lean for each share."""


def find_least(
    result: CertifyResult, problem: CertifyProblem, prices: Constants | None = None
) -> tuple[LeastDesign, ...]:
    """The smallest, coolest and cheapest design within 1 and 5 % of a proved optimum; nothing of a front.

    Where every point has a row, bounds say which points could be within the share: the least of these is proved to be
    it if it attains enough. Of dies that others stand for, the best designs are made lean, which proves nothing.
    Costs are at the scenario's prices unless others are given.

    Raises:
        InputError: the certificate's table cannot be read.
    """
    claim = result.certificate.claim
    if not result.best or problem.axes:
        return ()
    value_of = _valuer(problem)
    if claim.num_left_out:
        lean = _lean_designs(result, problem, value_of)
        return least_among(lean, claim.value, problem.scenario, problem.constants, prices)
    return _least_rows(result, problem, value_of, prices)


def _valuer(problem: CertifyProblem) -> Callable[[DesignPoint], ValuedDesign]:
    """Evaluates points, each once."""
    objective = Objective(problem.scenario, constants=problem.constants)
    known: dict[DesignPoint, ValuedDesign] = {}

    def value_of(point: DesignPoint) -> ValuedDesign:
        if point not in known:
            evaluation = objective.evaluate(point)
            value = next(iter(goal_values(problem.goal, evaluation)), 0.0)
            known[point] = ValuedDesign(point, value, evaluation)
        return known[point]

    return value_of


def _least_rows(
    result: CertifyResult,
    problem: CertifyProblem,
    value_of: Callable[[DesignPoint], ValuedDesign],
    prices: Constants | None,
) -> tuple[LeastDesign, ...]:
    """Of rows by rising amount, the first that attains enough; proved where bounds leave no room before it."""
    known, claim = read_values(result.certificate, result.directory), result.certificate.claim
    problem = with_rows_of(result.certificate, result.directory, problem)
    area_mm2, tdp_w = point_columns(result.directory, ("area_mm2", "tdp_w"))
    bounds, found = _Bounds(problem), []
    for within in WITHIN:
        enough = claim.value * (1.0 - within)
        rows = np.flatnonzero(known.values_upper >= enough)
        amounts: dict[LeastOf, Floats] = {LeastOf.SMALLEST: area_mm2[rows], LeastOf.COOLEST: tdp_w[rows]}
        if LeastOf.CHEAPEST in savings_of(problem.constants):
            chips = chips_of(problem.rows.columns(rows), problem.constants)
            amounts[LeastOf.CHEAPEST] = device_usd(chips, problem.scenario, problem.constants, prices)
        for saving, amount in amounts.items():
            order = rows[np.argsort(amount, kind="stable")]
            for count, row in enumerate(order.tolist()):
                value = float(known.values[row])
                if value < enough and count < MAX_EVALUATIONS:
                    value = value_of(problem.rows.point(row)).value
                if value >= enough:
                    is_proved = count <= MAX_EVALUATIONS and bounds.rule_out(order[:count], enough)
                    place = int(np.flatnonzero(rows == row)[0])
                    takes = {each: float(taken[place]) for each, taken in amounts.items()}
                    found.append(LeastDesign(within, saving, problem.rows.point(row), value, takes, is_proved))
                    break
    return tuple(found)


class _Bounds:
    """Bounds points by their optimal placement or plan, beyond what a certificate needed of them."""

    def __init__(self, problem: CertifyProblem) -> None:
        self._problem = problem
        self._bounder: SpaceBounder | None = None

    def rule_out(self, rows: Ints, enough: float) -> bool:
        """Whether none of some rows attains a value."""
        if len(rows) == 0:
            return True
        problem = self._problem
        if self._bounder is None:
            self._bounder = SpaceBounder(Objective(problem.scenario, constants=problem.constants), problem.rows)
        points, watts = problem.rows.columns(rows), self._bounder.bound(rows).tdp_w
        device_usd = costs_of(problem)[rows] if problem.goal is Goal.THROUGHPUT_PER_USD else np.zeros(0)
        denominators = goal_denominators(problem.goal, problem.scenario, tdp_w=watts, device_usd=device_usd)
        rates = self._bounder.rates_exactly(points, enough_rate=0.0)
        return bool((rates / denominators < enough).all())


def _lean_designs(
    result: CertifyResult, problem: CertifyProblem, value_of: Callable[[DesignPoint], ValuedDesign]
) -> list[ValuedDesign]:
    """The best designs, and for each share some of them with as little of what never slows as keeps them within it."""
    best = [ValuedDesign(design.point, design.value, design.evaluation) for design in result.best]
    whole = replace(problem.space, frontier=None)
    found = list(best)
    for within in WITHIN:
        enough = result.certificate.claim.value * (1.0 - within)
        near = [design for design in best if design.value >= enough]
        by_area = sorted(near, key=lambda design: design.evaluation.area_mm2)[:1]
        for start in (*by_area, *(design for design in near if design not in by_area))[:NUM_STARTS]:
            positions = whole.positions(start.point)
            for name in (name for name in LEAN_ORDER if getattr(whole.axes, name)):
                lower = [replace(positions, **{name: place}) for place in range(getattr(positions, name))]

                def attains(other: Positions, enough: float = enough) -> bool:
                    return value_of(whole.point_at(other)).value >= enough

                positions = first_that([*(other for other in lower if whole.keeps(other)), positions], attains)
            found.append(value_of(whole.point_at(positions)))
    return [design for design in found if design.evaluation.is_feasible]
