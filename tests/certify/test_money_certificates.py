"""Certificates of throughput per USD: what evaluating every die finds, whether each has a row or not."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forger import Forger, times
from small_problems import brute_force, small_scenario
from test_die_certificates import WIDE, die_problem
from test_fronts import is_no_worse, losses, plain_front

from phaze_opt.certify import problem as problem_module
from phaze_opt.certify.certificate import POINTS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.check.problem_data import costs_of as check_costs
from phaze_opt.certify.point_table import costs_of as point_costs
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.robust.worlds import find_assumptions
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.hardware.designed_chip import chips_of
from phaze_opt.hardware.silicon.chip_silicon import chip_power_w
from phaze_opt.hardware.silicon.silicon import silicon_of
from phaze_opt.objective.bill import device_usd, own_chips
from phaze_opt.objective.chip_limits import unmet_budget, why_infeasible
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import FrontAxis, Goal, front_indices, goal_directions, goal_values
from phaze_opt.objective.least_within import LeastOf, amounts_of
from phaze_opt.space.axes import Axes
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.units import MEBI

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


def test_energy_is_searched_only():
    with pytest.raises(InputError, match="'throughput_per_joule' is searched, not proved"):
        replace(die_problem(), goal=Goal.THROUGHPUT_PER_JOULE)


def within_capex(goal: Goal, *, prices: tuple[tuple[str, float], ...] = ()) -> CertifyProblem:
    """A problem whose budget of capex about half the dies keep to."""
    problem = die_problem(goal=goal)
    middle = float(np.median(point_costs(replace(problem, goal=Goal.PARETO))))
    budget = problem.scenario.cluster.num_devices * middle
    return replace(problem, scenario=replace(problem.scenario, prices=prices, max_capex_usd=budget))


@pytest.mark.parametrize(
    ("goal", "most_rows"),
    [
        (Goal.THROUGHPUT, 10),
        pytest.param(Goal.THROUGHPUT_PER_TDP, 10, marks=pytest.mark.slow),
        (Goal.PARETO, 10),
        pytest.param(Goal.PARETO, 1000, marks=pytest.mark.slow),
    ],
)
def test_a_budget_of_capex_equals_brute_force(goal, most_rows, tmp_path, monkeypatch):
    problem = within_capex(goal)
    monkeypatch.setattr(problem_module, "MOST_ROWS_OF_DIES", most_rows)
    objective = Objective(problem.scenario, constants=problem.constants)
    found = [goal_values(goal, objective.evaluate(point)) for point in problem.space.points()]
    values = [each for each in found if each]
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    claim = check_certificate(result.directory).claim
    assert len(values) < 0.7 * len(found)
    assert claim.value == pytest.approx(max(each[0] for each in values), rel=1e-8)
    if goal is Goal.PARETO:
        kept = [values[row] for row in front_indices(values, goal_directions(goal))]
        assert len(result.front) == len(kept)
        rates = sorted(each.throughput_samples_per_s for each in result.front)
        assert rates == pytest.approx(sorted(each[0] for each in kept), rel=1e-8)


def test_a_budget_of_capex_decides_and_is_checked(tmp_path):
    problem = within_capex(Goal.THROUGHPUT)
    directory = certify(problem, CertifyOptions(directory=tmp_path)).directory
    free = certify(replace(problem, scenario=problem.scenario.without_budgets()), CertifyOptions(directory=tmp_path))
    assert check_certificate(directory).claim.value < 0.999 * free.certificate.claim.value
    wider = Forger(directory, tmp_path / "wider")
    wider.put("scenario.max_capex_usd", 2.0 * problem.scenario.max_capex_usd)
    wider.assert_refused(POINTS_FILE, "has no row that bounds the die")
    tighter = Forger(directory, tmp_path / "tighter")
    tighter.put("scenario.max_capex_usd", 0.5 * problem.scenario.max_capex_usd)
    tighter.assert_refused(POINTS_FILE, "reason is '' but the design takes", row=0)
    cheaper = Forger(directory, tmp_path / "cheaper")
    cheaper.cells(0, cost_usd=times(0.5))
    cheaper.assert_refused(POINTS_FILE, "cost_usd is .* but the architecture gives", row=0)


def test_dearer_prices_leave_fewer_dies_within_capex(tmp_path):
    found = [
        certify(within_capex(Goal.THROUGHPUT, prices=prices), CertifyOptions(directory=tmp_path))
        for prices in ((), DEARER)
    ]
    assert found[1].certificate.claim.value < found[0].certificate.claim.value
    assert [check_certificate(each.directory).claim.is_proved for each in found] == [True, True]


def split_problem(goal: Goal, *axes: FrontAxis) -> CertifyProblem:
    """Two dozen dies, whole and split, some of them whole over the reticle."""
    scenario = small_scenario(WIDE, network="two-level", devices=8)
    silicon = silicon_of(7, scenario.cluster.network)
    sizes = Axes(
        num_tc=(8, 24, 48), num_vc=(12,), tc_width=(128,), tc_depth=(128,), vc_width=(128,), glb_bytes=(32 * MEBI,),
        glb_bytes_per_cycle=(4096, 8192), hbm_bytes=(), hbm_stacks=(2, 4), micro_batch=(1,), chiplets=(1, 2, 4),
    )  # fmt: skip
    space = SearchSpace("split", sizes, area_budget_um2=2.4e9, min_area_fraction=0.0, silicon=silicon)
    return CertifyProblem(replace(scenario, silicon=silicon), space, scenario.constants_of(), goal, axes=axes)


@pytest.fixture(name="split", scope="module")
def _split(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    problem = split_problem(Goal.THROUGHPUT_PER_USD)
    options = CertifyOptions(tolerance=0.0, directory=tmp_path_factory.mktemp("split"))
    return problem, certify(problem, options).directory


def test_chiplets_are_proved_as_brute_force_finds_them(split):
    problem, directory = split
    values, _ = brute_force(problem)
    claim = check_certificate(directory).claim
    assert claim.is_proved
    assert claim.value == pytest.approx(max(values), rel=1e-9)
    value_of = dict(zip(problem.space.points(), values, strict=True))
    kinds = {(point.num_tc, point.chiplets) for point in value_of}
    assert (48, 1) not in kinds
    assert (48, 4) in kinds
    whole = {point: value for point, value in value_of.items() if point.chiplets == 1}
    assert any(value != value_of[replace(point, chiplets=2)] for point, value in whole.items())


def test_forged_chiplets_are_refused(split, tmp_path):
    forger = Forger(split[1], tmp_path / "more")
    forger.cells(0, chiplets=lambda count: 3 - count)
    forger.seal()
    with pytest.raises(CertificateError):
        check_certificate(forger.directory)
    dearer = Forger(split[1], tmp_path / "dearer")
    dearer.put("scenario.prices", [["chiplets.test_usd", 20.0]])
    row = dearer.columns()["chiplets"].index(2)
    dearer.assert_refused(POINTS_FILE, "cost_usd is .* but the architecture gives", row=row)


def test_a_front_over_cost_has_chiplets(tmp_path):
    problem = split_problem(Goal.PARETO, FrontAxis.THROUGHPUT, FrontAxis.COST)
    claim = check_certificate(certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path)).directory).claim
    found = losses(problem)
    assert claim.is_proved
    assert len(claim.front) == len(plain_front(found))
    for mine in found.values():
        assert any(is_no_worse(found[index], mine, 1e-8) for index in claim.front)


def test_worlds_vary_what_chiplets_read():
    """Rate, area, edge and energy between chiplets where dies may be split, and nowhere else."""
    varied = {}
    for name, problem in (("split", split_problem(Goal.THROUGHPUT)), ("whole", die_problem())):
        found = find_assumptions(problem)
        keys = {each.key for group in found.groups for each in group.constants} | {each.key for each in found.sampled}
        varied[name] = {key for key in keys if "die_to_die" in key}
    names = ("area.die_to_die_mm2_per_gb_per_s", "edge.die_to_die_gb_per_s", "edge.die_to_die_gb_per_s_per_mm")
    assert varied == {"split": {f"die.{name}" for name in (*names, "power.die_to_die_pj_per_bit")}, "whole": set()}


def test_a_budget_that_no_chip_keeps_to_is_named_with_the_least():
    """Asked in the order area, TDP, capex, each of the chips that keep to those before it."""
    problem = die_problem(goal=Goal.THROUGHPUT)
    space, scenario, known = problem.space, replace(problem.scenario, prices=()), problem.constants
    chips = chips_of(space.columns(np.arange(space.size)), known)
    power_w, devices = chip_power_w(chips, scenario.cluster.network, known), scenario.cluster.num_devices
    capex_usd = devices * device_usd(chips, scenario, known)

    def unmet(**budgets: float) -> str:
        return unmet_budget(space, replace(scenario, **budgets), known)

    assert unmet() == ""
    assert unmet(max_tdp_w=1.01 * float(power_w.min())) == ""
    assert unmet(max_capex_usd=1.01 * float(capex_usd.min())) == ""
    found = unmet(max_tdp_w=50.0)
    assert "the TDP budget of 50 W" in found
    assert f"is {math.ceil(10.0 * power_w.min()) / 10.0:,.1f} W;" in found
    found = unmet(max_capex_usd=1000.0)
    assert f"the capex budget of 1,000 USD for {devices} devices" in found
    assert f"is {math.ceil(10.0 * capex_usd.min()) / 10.0:,.1f} USD;" in found
    few = 1.01 * float(power_w.min())
    kept = float(capex_usd[power_w <= few].min())
    found = unmet(max_tdp_w=few, max_capex_usd=0.99 * kept)
    assert (
        f"of the chips within {few:,.10g} W the least that one takes is {math.ceil(10.0 * kept) / 10.0:,.1f} USD;"
        in found
    )
    # Chips beyond a budget may have the memory, and other plans may need less.
    assert why_infeasible(space, replace(scenario, max_tdp_w=50.0), known) == unmet(max_tdp_w=50.0)
    of_memory = "holds what it trains in its memory, under any plan that the options allow"
    assert why_infeasible(space, replace(scenario, max_tdp_w=few), known) == f"no chip within the budgets {of_memory}"
    assert why_infeasible(space, scenario, known) == f"no point of the space {of_memory}"


def test_a_price_is_the_same_wherever_it_is_asked():
    """Rows of proofs and of checks, the frontier's budget, bills, and the least near the best."""
    problem = within_capex(Goal.THROUGHPUT, prices=DEARER)
    scenario, space, known = problem.scenario, problem.space, problem.constants
    columns = space.columns(np.arange(space.size))
    chips = chips_of(columns, known)
    usd = device_usd(chips, scenario, known)
    posed = replace(problem, listed=space)
    assert np.array_equal(point_costs(posed), usd)
    assert np.array_equal(check_costs(chips, scenario, known), usd)
    owned = own_chips(chips, scenario, known)
    assert owned.capex_usd == pytest.approx(scenario.cluster.num_devices * usd, rel=1e-12)
    kept = space.allowed(None, capex=problem.capex)
    assert kept.sum() == problem.capex.keeps(usd).sum()
    evaluation = Objective(scenario, constants=known).evaluate(space.point(0))
    assert amounts_of(evaluation, scenario, known)[LeastOf.CHEAPEST] == usd[0]


def test_links_of_dies_are_those_of_the_network():
    problem = die_problem(goal=Goal.THROUGHPUT)
    silicon = replace(problem.scenario.silicon, link_bytes_per_s=1e9)
    scenario, space = replace(problem.scenario, silicon=silicon), replace(problem.space, silicon=silicon)
    with pytest.raises(InputError, match="links of 1e.09 bytes/s and the cluster's network has"):
        replace(problem, scenario=scenario, space=space)
