"""Certificates of throughput per USD: what evaluating every die finds, whether each has a row or not."""

from dataclasses import replace
from pathlib import Path

import pytest
from forger import Forger, times
from small_problems import brute_force
from test_die_certificates import die_problem

from phaze_opt.certify import problem as problem_module
from phaze_opt.certify.certificate import POINTS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import InputError
from phaze_opt.objective.goals import Goal

DEARER = (("memory.hbm_usd_per_gb", 25.0),)


@pytest.fixture(name="made", scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    problem = die_problem(goal=Goal.THROUGHPUT_PER_USD)
    return problem, certify(problem, CertifyOptions(directory=tmp_path_factory.mktemp("usd"))).directory


def test_throughput_per_usd_equals_brute_force(made):
    problem, directory = made
    values, _ = brute_force(problem)
    claim = check_certificate(directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-3)


def test_other_prices_make_another_problem(made, tmp_path, monkeypatch):
    """Over more dies than have rows too: those without one are bounded over their own cost."""
    problem, _ = made
    monkeypatch.setattr(problem_module, "MOST_ROWS_OF_DIES", 10)
    dearer = replace(problem, scenario=replace(problem.scenario, prices=DEARER))
    assert dearer.digest != problem.digest
    values, _ = brute_force(dearer)
    result = certify(dearer, CertifyOptions(tolerance=0.0, directory=tmp_path))
    claim = check_certificate(result.directory).claim
    assert claim.num_left_out > 0
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    assert claim.value < max(brute_force(problem)[0])


def test_forged_costs_and_prices_are_refused(made, tmp_path):
    cheaper = Forger(made[1], tmp_path / "cheaper")
    row = cheaper.cells(0, cost_usd=times(0.99))
    cheaper.assert_refused(POINTS_FILE, "cost_usd is .* but the architecture gives", row=row)
    without = Forger(made[1], tmp_path / "without")
    without.table(lambda table: table.drop_columns(["cost_usd"]))
    without.assert_refused(POINTS_FILE, "column cost_usd is missing")
    priced = Forger(made[1], tmp_path / "priced")
    priced.put("scenario.prices", [list(each) for each in DEARER])
    priced.assert_refused(POINTS_FILE, "cost_usd is .* but the architecture gives", row=0)


def test_energy_and_capex_are_searched_only():
    problem = die_problem()
    with pytest.raises(InputError, match="'throughput_per_joule' is searched, not proved"):
        replace(problem, goal=Goal.THROUGHPUT_PER_JOULE)
    with pytest.raises(InputError, match="the budget of capex is searched, not proved"):
        replace(problem, scenario=replace(problem.scenario, prices=(), max_capex_usd=1e6))
