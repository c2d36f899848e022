"""The smallest, coolest and cheapest design near a certified optimum, against every point evaluated."""

from pathlib import Path

import pytest
from small_problems import small_problem, small_scenario, small_space
from test_die_certificates import die_problem

from phaze_opt.certify.least_within import find_least
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import Goal, goal_values
from phaze_opt.objective.least_within import WITHIN, LeastOf, ValuedDesign, amounts_of, least_among
from phaze_opt.units import mib_to_bytes

SPACE = small_space(num_tc=(4, 8, 16), num_vc=(16, 32, 64), glb_bytes=tuple(mib_to_bytes(size) for size in (1, 4)))


def every_design(problem: CertifyProblem) -> list[ValuedDesign]:
    objective = Objective(problem.scenario, constants=problem.constants)
    evaluated = [(point, objective.evaluate(point)) for point in problem.space.points()]
    return [
        ValuedDesign(point, goal_values(problem.goal, evaluation)[0], evaluation)
        for point, evaluation in evaluated
        if evaluation.is_feasible
    ]


def found_by(problem: CertifyProblem, directory: Path):
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=directory))
    return result, find_least(result, problem)


@pytest.mark.parametrize("goal", [Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP])
def test_what_is_proved_least_is_the_least_of_all(goal, tmp_path):
    problem = small_problem(small_scenario(), SPACE, goal=goal)
    result, found = found_by(problem, tmp_path)
    designs, best = every_design(problem), result.certificate.claim.value
    assert {(least.within, least.saving) for least in found} == {
        (within, saving) for within in WITHIN for saving in (LeastOf.SMALLEST, LeastOf.COOLEST)
    }
    assert any(least.is_proved for least in found)
    for least in found:
        assert least.value >= best * (1.0 - least.within)
        amounts = [
            amounts_of(design.evaluation, problem.scenario, problem.constants)[least.saving]
            for design in designs
            if design.value >= best * (1.0 - least.within) * (1.0 + 1e-9)
        ]
        assert least.amount >= min(amounts) * (1.0 - 1e-9)
        if least.is_proved:
            assert least.amount == pytest.approx(min(amounts), rel=1e-9)


def test_dies_that_others_stand_for_are_made_lean(tmp_path):
    """Nothing is proved of them; no design of the frontier that is as near the best takes less."""
    problem = die_problem()
    result, found = found_by(problem, tmp_path)
    assert result.certificate.claim.num_left_out > 0
    assert {least.saving for least in found} == set(LeastOf)
    kept = [ValuedDesign(each.point, each.value, each.evaluation) for each in result.best]
    of_best_designs = least_among(kept, result.certificate.claim.value, problem.scenario, problem.constants)
    for least, of_best in zip(found, of_best_designs, strict=True):
        assert not least.is_proved
        assert least.amount <= of_best.amount
        assert least.value >= result.certificate.claim.value * (1.0 - least.within)
        evaluation = Objective(problem.scenario, constants=problem.constants).evaluate(least.point)
        assert amounts_of(evaluation, problem.scenario, problem.constants)[least.saving] == pytest.approx(least.amount)
    by = {(least.within, least.saving): least.amount for least in found}
    for saving in LeastOf:
        assert by[WITHIN[1], saving] <= by[WITHIN[0], saving]
