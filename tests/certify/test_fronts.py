"""Fronts: what is proved is what evaluating every point finds, and a forged front is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import ATTAINED, RECOMPUTED, REPLAYED, SOLVED, UPPER, Forger, times
from forger_originals import TYPED, original
from hypothesis import given, settings
from hypothesis import strategies as st
from small_problems import problems, small_problem, small_scenario, small_space
from test_die_certificates import die_problem

from phaze_opt.certify.certificate import CERTIFICATE_FILE, POINTS_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.proof import prove_problem
from phaze_opt.certify.prove import certify
from phaze_opt.errors import CertificateError, InputError
from phaze_opt.hardware.accelerator import table_of
from phaze_opt.objective.bill import device_usd
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import PARETO_AXES, Aim, FrontAxis, Goal, parse_goal

NEAR = 1e-9
TWO_TO_FOUR = (
    (FrontAxis.THROUGHPUT, FrontAxis.TDP),
    (FrontAxis.THROUGHPUT, FrontAxis.AREA),
    (FrontAxis.TDP, FrontAxis.AREA),
    PARETO_AXES,
)
FOUR = tuple(FrontAxis)


def of_front(problem: CertifyProblem, axes: tuple[FrontAxis, ...]) -> CertifyProblem:
    return replace(problem, goal=Goal.PARETO, axes=axes)


def losses(problem: CertifyProblem) -> dict[int, list[float]]:
    """What every feasible point loses in each goal, by its evaluation alone."""
    objective, found = Objective(problem.scenario, constants=problem.constants), {}
    for index, point in enumerate(problem.space.points()):
        evaluation = objective.evaluate(point)
        if evaluation.is_feasible:
            of_axis = {
                FrontAxis.THROUGHPUT: -evaluation.throughput_samples_per_s,
                FrontAxis.TDP: evaluation.tdp_w,
                FrontAxis.AREA: evaluation.area_mm2,
            }
            if FrontAxis.COST in problem.axes:
                chips = table_of(evaluation.accelerator)
                of_axis[FrontAxis.COST] = float(device_usd(chips, problem.scenario, problem.constants)[0])
            found[index] = [of_axis[axis] for axis in problem.axes]
    return found


def is_no_worse(one: list[float], other: list[float], tolerance: float = 0.0) -> bool:
    """Whether one loses no more than another in any goal; of the first by a tolerance more."""
    slack = [tolerance, *[0.0] * (len(one) - 1)]
    return all(a <= b + abs(b) * (NEAR + more) for a, b, more in zip(one, other, slack, strict=True))


def plain_front(found: dict[int, list[float]]) -> list[int]:
    """Points that no other beats, the first of equal ones: every pair compared."""
    return [
        index
        for index, mine in found.items()
        if not any(
            is_no_worse(other, mine) and (not is_no_worse(mine, other) or rival < index)
            for rival, other in found.items()
            if rival != index
        )
    ]


@settings(max_examples=14, deadline=None, derandomize=True)
@given(problems(), st.sampled_from(TWO_TO_FOUR), st.sampled_from((0.0, 1e-2)))
def test_a_front_equals_brute_force(problem, axes, tolerance):
    problem = of_front(problem, axes)
    proof = prove_problem(problem, tolerance=tolerance)
    found, front = losses(problem), proof.claim.front
    assert proof.claim.is_proved
    assert proof.claim.is_feasible == bool(found)
    if tolerance == 0.0:
        # Schedules that are solved further may tell apart what evaluations see as equal, and no more.
        assert len(front) == len(plain_front(found))
        for index in set(front) ^ set(plain_front(found)):
            assert any(is_no_worse(found[other], found[index], 1e-8) for other in found if other != index)
    allowed = tolerance if FrontAxis.THROUGHPUT in axes else 0.0
    for mine in found.values():
        assert any(is_no_worse(found[index], mine, allowed + 1e-8) for index in front)


@pytest.fixture(name="dies", scope="module")
def _dies(tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, Path]:
    problem = of_front(die_problem(max_tdp_w=210.0), FOUR)
    result = certify(problem, CertifyOptions(tolerance=1e-3, directory=tmp_path_factory.mktemp("front")))
    return problem, result.directory


def test_a_front_of_four_goals_over_dies_equals_brute_force(dies):
    problem, directory = dies
    claim, found = check_certificate(directory).claim, losses(problem)
    assert claim.is_proved
    assert 1 < len(claim.front) < len(found)
    assert set(claim.front) <= set(found)
    for mine in found.values():
        assert any(is_no_worse(found[index], mine, 1e-3) for index in claim.front)


def test_a_finished_front_is_read_again(dies):
    problem, directory = dies
    again = certify(problem, CertifyOptions(directory=directory.parent, is_resumed=True))
    rates = [design.throughput_samples_per_s for design in again.front]
    assert rates == sorted(rates, reverse=True)
    assert sorted(design.index for design in again.front) == list(again.certificate.claim.front)
    assert all(design.cost_usd and design.cost_usd > 0.0 for design in again.front)


def test_one_goal_among_several_models_is_their_mean(tmp_path):
    """A front of throughput and TDP for two models holds the best design for both per watt."""
    common = original("common")
    front = certify(of_front(common, PARETO_AXES[:2]), CertifyOptions(tolerance=1e-2, directory=tmp_path))
    best = prove_problem(common, tolerance=1e-2).claim
    worth = [design.throughput_samples_per_s / design.tdp_w for design in front.front]
    assert max(worth) / common.scenario.cluster.num_devices == pytest.approx(best.value, rel=1e-2)
    check_certificate(front.directory)


def test_goals_are_named_in_any_order_once():
    assert Aim.parse("area,throughput", source="x").axes == (FrontAxis.THROUGHPUT, FrontAxis.AREA)
    assert Aim.parse("pareto", source="x") == Aim.parse("area,tdp,throughput", source="x")
    assert str(Aim.parse("throughput_per_tdp", source="x")) == "throughput_per_tdp"
    for text in ("tdp,tdp", "throughput,throughput_per_tdp", "speed,tdp"):
        with pytest.raises(InputError):
            Aim.parse(text, source="x")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("throughput,watts", "did you mean tdp"), ("throughput,Power", "did you mean tdp"),
        ("throughput,dollars", "did you mean cost"), ("throughput,price", "did you mean cost"),
        ("watts", "give throughput,tdp"), ("speed", "did you mean throughput"),
        ("throughput,tpd", "did you mean tdp"),
    ],
)  # fmt: skip
def test_other_words_for_a_goal_are_understood(given, meant):
    with pytest.raises(InputError, match=meant):
        Aim.parse(given, source="x")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("watts", "throughput_per_tdp"), ("cost", "throughput_per_usd"), ("throughput,tdp", "or pareto"),
     ("energy", "throughput_per_joule"), ("area", "pareto")],
)  # fmt: skip
def test_a_search_is_told_the_goal_that_it_has(given, meant):
    with pytest.raises(InputError, match=meant):
        parse_goal(given, source="x")


def test_costs_are_of_dies():
    with pytest.raises(InputError, match="'cost' is of dies"):
        of_front(small_problem(small_scenario(), small_space()), FOUR)


@pytest.fixture(name="original", scope="module")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    problem = of_front(original(TYPED), PARETO_AXES)
    return certify(problem, CertifyOptions(directory=tmp_path_factory.mktemp("forged"))).directory


@pytest.fixture(name="forged")
def _forged(original: Path, tmp_path: Path) -> Forger:
    return Forger(original, tmp_path / "copy")


def test_the_original_holds(original):
    claim = check_certificate(original).claim
    assert claim.is_proved
    assert len(claim.front) > 2


def a_row(forger: Forger, *, is_on_front: bool) -> int:
    columns, front = forger.columns(), forger.read(CERTIFICATE_FILE)["claim"]["front"]
    return next(row for row, reason in enumerate(columns["reason"]) if not reason and (row in front) == is_on_front)


CLAIM_FORGERIES: dict[str, tuple[str, Any, str]] = {
    "dropped from the front": ("claim.front", lambda front: front[1:], "claim: front is not that of the solved rows"),
    "last dropped": ("claim.front", lambda front: front[:-1], "claim: front is not"),
    "added to the front": ("claim.front", lambda front: sorted({*front, 3}), "claim: front is not"),
    "on the front twice": ("claim.front", lambda front: [front[0], *front], "claim: front is not"),
    "front out of order": ("claim.front", lambda front: front[::-1], "claim: front is not"),
    "no front": ("claim.front", [], "holds more than its form"),
    "row that is none": ("claim.front", lambda front: [*front, 10_000], "claim: front is not"),
    "gap too small": ("claim.gap", -1e-4, "claim: |its upper bound"),
    "gap too large": ("claim.gap", 0.5, "claim: gap is 0.5 but the rows give"),
    "other bound": ("claim.value_upper", times(1.01), "claim: value_upper is"),
    "other value": ("claim.value", times(1.01), "claim: value is"),
    "other incumbent": ("claim.incumbent", 0, "claim: incumbent is"),
    "not called proved": ("claim.is_proved", False, "claim: is not is_proved though"),
    "tolerance of nothing": ("claim.tolerance", -0.1, "claim: tolerance is"),
    "fewer points": ("claim.num_points", lambda number: number - 1, "claim: num_points is"),
    "goal dropped": ("axes", ["tdp", "area"], "claim: front is not"),
    "goal added that has no column": ("axes", ["throughput", "tdp", "area", "cost"], "its front is over cost"),
    "goals out of order": ("axes", ["tdp", "throughput", "area"], "axes names a goal twice or out of order"),
    "a single goal": ("axes", ["throughput"], "goal 'pareto' goes with no front of 1 goals"),
    "no goals": ("axes", [], "holds more than its form|goal 'pareto' goes with no front"),
    "one goal in place of a front": ("goal", "throughput", "goal 'throughput' goes with no front of 3 goals"),
}


def assert_refused(forged: Forger, rule: str) -> None:
    """With every digest right again."""
    forged.seal()
    with pytest.raises(CertificateError, match=rule):
        check_certificate(forged.directory)


@pytest.mark.parametrize("name", CLAIM_FORGERIES)
def test_a_forged_claim_of_a_front_is_refused(name: str, forged: Forger) -> None:
    place, value, rule = CLAIM_FORGERIES[name]
    forged.put(place, value)
    assert_refused(forged, rule)


ROW_FORGERIES: dict[str, tuple[bool, dict[str, Any], str]] = {
    "cooler": (True, {"tdp_w": times(0.99)}, "tdp_w is .* but the architecture gives"),
    "smaller": (True, {"area_mm2": times(0.99)}, "area_mm2 is .* but the architecture gives"),
    "faster": (True, {ATTAINED: times(1.001), UPPER: times(1.001)}, f"({RECOMPUTED}|{REPLAYED})"),
    "slower": (True, {ATTAINED: times(0.999)}, REPLAYED),
    "not solved": (True, {"status": "pruned-by-bound", ATTAINED: 0.0}, "status is not solved but"),
    "lowered bound": (False, {UPPER: times(0.99)}, f"({RECOMPUTED}|{UPPER})"),
    "raised bound": (False, {UPPER: times(1.5)}, f"({RECOMPUTED}|{UPPER})"),
    "called solved": (False, {**SOLVED, ATTAINED: 1.0}, "(status is solved but|.* attains)"),
}


@pytest.mark.parametrize("name", ROW_FORGERIES)
def test_a_forged_row_of_a_front_is_refused(name: str, forged: Forger) -> None:
    is_on_front, values, rule = ROW_FORGERIES[name]
    row = forged.cells(a_row(forged, is_on_front=is_on_front), **values)
    assert_refused(forged, f"row {row}: {rule}")


def rows_without(row: int) -> Callable[[dict[str, list]], None]:
    def change(columns: dict[str, list]) -> None:
        for name, column in columns.items():
            column.pop(row)
            if name == "index":
                column[:] = list(range(len(column)))

    return change


def test_a_dropped_or_added_row_of_a_front_is_refused(forged: Forger) -> None:
    row = a_row(forged, is_on_front=True)
    forged.points(rows_without(row))
    assert_refused(forged, r"row \d+: (\w+ is \d+ but the space has|holds \d+ rows)")
    forged.points(lambda columns: [column.insert(row, column[row]) for column in columns.values()])
    assert_refused(forged, r"row \d+: (\w+ is \d+ but the space has|index is)")


def test_a_solution_left_out_takes_its_row_off_the_front(forged: Forger) -> None:
    """All of it left out consistently, the bounds of others no longer match what is solved."""
    front = forged.read(CERTIFICATE_FILE)["claim"]["front"]
    row = next(each for each in front if each != forged.read(CERTIFICATE_FILE)["claim"]["incumbent"])
    forged.cells(row, **{"status": "pruned-by-bound", ATTAINED: 0.0, "arch": ""})
    forged.put("solutions", lambda all_: [each for each in all_ if each["index"] != row], name="solutions.json")
    forged.put("claim.front", [each for each in front if each != row])
    forged.put("claim.num_solved", lambda number: number - 1)
    assert_refused(forged, "(its upper bound .* more than the claim's gap|claim: )")


def test_costs_of_dies_are_worked_out_again(dies, tmp_path):
    forged = Forger(dies[1], tmp_path / "copy")
    row = forged.cells(a_row(forged, is_on_front=True), cost_usd=times(0.99))
    forged.assert_refused(POINTS_FILE, "cost_usd is .* but the architecture gives", row=row)


def test_costs_cannot_be_left_out(dies, tmp_path):
    forged = Forger(dies[1], tmp_path / "copy")
    forged.table(lambda table: table.drop_columns(["cost_usd"]))
    forged.assert_refused(POINTS_FILE, "column cost_usd is missing")
    without = Forger(dies[1], tmp_path / "other")
    without.put("axes", [axis.value for axis in PARETO_AXES])
    without.assert_refused(POINTS_FILE, "column cost_usd is of no goal")
    assert np.isfinite(without.columns()["cost_usd"]).all()


def test_words_of_a_front_prove_nothing(forged: Forger) -> None:
    """Certificates of before have no column of words: without it one holds, with a word less it does not."""
    forged.table(lambda table: table.drop_columns(["arch"]))
    forged.seal()
    assert check_certificate(forged.directory).claim.is_proved


def test_a_word_left_out_is_refused(forged: Forger) -> None:
    row = forged.cells(a_row(forged, is_on_front=True), arch="")
    assert_refused(forged, f"row {row}: arch is ''")
