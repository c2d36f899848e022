"""Fronts over more dies than have rows: what is proved is what evaluating every die finds; forgeries are refused."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forger import ATTAINED, SOLVED, UPPER, Forger, times
from small_problems import contents
from test_die_certificates import die_problem
from test_fronts import FOUR, a_row, is_no_worse, losses, of_front

from phaze_opt.certify import problem as problem_module
from phaze_opt.certify.certificate import CERTIFICATE_FILE
from phaze_opt.certify.check.check import check_certificate
from phaze_opt.certify.finished_tasks import JOURNAL_FILE
from phaze_opt.certify.front import attained_for, compile_ahead, front_of, is_attained
from phaze_opt.certify.point_proof import PointRefiner
from phaze_opt.certify.problem import CertifyOptions, CertifyProblem
from phaze_opt.certify.prove import certify
from phaze_opt.certify.result import CertifyProgress, CertifyResult
from phaze_opt.errors import CertificateError
from phaze_opt.objective.evaluate import Objective
from phaze_opt.objective.goals import PARETO_AXES, FrontAxis, Goal
from phaze_opt.record.journal import mend_journal

TOLERANCE = 1e-2


@pytest.fixture(name="many_dies", scope="module", autouse=True)
def _many_dies() -> Iterator[None]:
    """The small space counts as one of too many dies for a row each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem_module, "MOST_ROWS_OF_DIES", 10)
        yield


@pytest.fixture(name="covered", scope="module")
def _covered(many_dies: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[CertifyProblem, CertifyResult]:
    problem = of_front(die_problem(max_tdp_w=210.0), FOUR)
    options = CertifyOptions(tolerance=TOLERANCE, directory=tmp_path_factory.mktemp("covered"))
    return problem, certify(problem, options)


def test_a_covered_front_equals_brute_force(covered):
    problem, result = covered
    claim, found = check_certificate(result.directory).claim, losses(problem)
    assert claim.is_proved
    assert claim.num_left_out > 0
    assert claim.num_rows + claim.num_left_out == problem.space.size
    front = {problem.space.index(design.point) for design in result.front}
    assert front <= set(found)
    for mine in found.values():
        assert any(is_no_worse(found[index], mine, TOLERANCE) for index in front)
    for index in front:
        assert not any(
            is_no_worse(found[other], found[index]) and not is_no_worse(found[index], found[other]) for other in front
        )


@pytest.mark.parametrize("goal", [Goal.PARETO, Goal.THROUGHPUT_PER_TDP])
def test_a_budget_that_no_die_keeps_to_is_infeasible(goal, tmp_path):
    problem = die_problem(max_tdp_w=1.0)
    problem = of_front(problem, FOUR) if goal is Goal.PARETO else replace(problem, goal=goal)
    assert problem.is_covered
    result = certify(problem, CertifyOptions(tolerance=TOLERANCE, directory=tmp_path))
    assert result.best == ()
    claim = check_certificate(result.directory).claim
    assert (claim.is_feasible, claim.is_proved) == (False, True)


def test_kernels_of_fronts_are_compiled_once_and_ahead(covered):
    """What `make` compiles is what fronts over many dies call: other types would be compiled again."""
    assert covered[1].front
    compile_ahead()
    assert len(front_of.signatures) == len(attained_for.signatures) == len(is_attained.signatures) == 1


@pytest.mark.parametrize("num_known", [1, 2, 3])
def test_kernels_of_fronts_equal_all_pairs(num_known):
    rng = np.random.default_rng(num_known)
    known, worth = rng.integers(1, 9, (60, num_known)).astype(float), rng.integers(1, 9, 60).astype(float)
    order = np.lexsort((*known.T[::-1], -worth))
    front = order[front_of(known[order], 0.0, len(order))]
    is_no_worse = (known[front] <= known[:, None]).all(axis=2)
    most = np.where(is_no_worse, worth[front], 0.0).max(axis=1)
    assert (most >= worth).all()
    assert (attained_for(known, known[front], worth[front], 0.0) == most).all()
    needed = rng.uniform(1.0, 9.0, len(known))
    needed[:30] = worth[:30]
    assert (is_attained(known, needed, known[front], worth[front], 0.0) == (most >= needed)).all()


@pytest.mark.parametrize(
    "axes",
    [
        PARETO_AXES,
        *(pytest.param(each, marks=pytest.mark.slow) for each in ((FrontAxis.THROUGHPUT, FrontAxis.COST), FOUR[1:])),
    ],
)
def test_other_goals_are_covered_too(axes, tmp_path):
    """At tolerance 0 the front has a design for every die, up to what schedules that are solved further tell apart."""
    problem = of_front(die_problem(), axes)
    result = certify(problem, CertifyOptions(tolerance=0.0, directory=tmp_path))
    found = losses(problem)
    claim = check_certificate(result.directory).claim
    assert claim.is_proved
    assert claim.num_left_out > 0
    front = [found[problem.space.index(design.point)] for design in result.front]
    for mine in found.values():
        assert any(is_no_worse(each, mine, 1e-8) for each in front)


def test_a_front_of_a_common_design_is_covered(tmp_path):
    problem = die_problem()
    model = problem.scenario.models[0]
    both = replace(problem.scenario, models=(model, replace(model, name="other", num_layers=3)))
    problem = of_front(replace(problem, scenario=both), PARETO_AXES)
    result = certify(problem, CertifyOptions(tolerance=TOLERANCE, directory=tmp_path))
    found = losses(problem)
    assert check_certificate(result.directory).claim.num_left_out > 0
    front = [found[problem.space.index(design.point)] for design in result.front]
    for mine in found.values():
        assert any(is_no_worse(each, mine, TOLERANCE) for each in front)


def test_what_is_printed_of_a_covered_front_is_evaluated_in_full(covered):
    """Designs are evaluated in brief while they are proved: those that are shown lack nothing."""
    problem, result = covered
    objective = Objective(problem.scenario, constants=problem.constants)
    assert result.best
    for design in result.best:
        assert design.evaluation == objective.evaluate(design.point)
        assert design.evaluation.placement is not None
        assert design.evaluation.energy_per_iteration_j > 0.0


def test_a_covered_front_is_read_again(covered):
    problem, result = covered
    again = certify(problem, CertifyOptions(TOLERANCE, directory=result.directory.parent, is_resumed=True))
    assert [design.point for design in again.front] == [design.point for design in result.front]


def test_an_interrupted_covered_front_goes_on_from_its_rounds(covered, tmp_path, monkeypatch):
    problem, result = covered

    def stop(progress: CertifyProgress) -> None:
        if progress.num_solved > 0:
            raise KeyboardInterrupt

    options = CertifyOptions(TOLERANCE, directory=tmp_path, is_resumed=True)
    with pytest.raises(KeyboardInterrupt):
        certify(problem, options, on_progress=stop)
    (journal,) = tmp_path.rglob(JOURNAL_FILE)
    kept = [value for value in mend_journal(journal).values if "round" in value]
    done: list[int] = []
    refine = PointRefiner.refine
    monkeypatch.setattr(PointRefiner, "refine", lambda self, i, goal: (done.append(i), refine(self, i, goal))[1])
    again = certify(problem, options)
    assert len(kept) == 1
    assert not set(done) & {outcome["index"] for outcome in kept[0]["outcomes"]}
    assert contents(again.directory) == contents(result.directory)


def _less_rows(change: Callable[[Forger], list[int]]) -> Callable[[Forger], None]:
    """Rows left out, with everything counted and numbered again."""

    def forge(forger: Forger) -> None:
        gone = set(change(forger))
        kept = [row for row in range(len(forger.columns()["index"])) if row not in gone]
        new = {row: place for place, row in enumerate(kept)}
        forger.points(lambda columns: columns.update({name: [c[row] for row in kept] for name, c in columns.items()}))
        forger.points(lambda columns: columns.update(index=list(range(len(kept)))))
        forger.put("solutions", lambda all_: [s | {"index": new[s["index"]]} for s in all_ if s["index"] in new],
                   name="solutions.json")  # fmt: skip
        claim = forger.read(CERTIFICATE_FILE)["claim"]
        forger.claim(
            front=[new[row] for row in claim["front"] if row in new],
            incumbent=new.get(claim["incumbent"], 0),
            num_left_out=claim["num_left_out"] + len(gone),
            num_solved=sum(status == "solved" for status in forger.columns()["status"]),
        )

    return forge


def _slowest_of_front(forger: Forger) -> list[int]:
    columns = forger.columns()
    return [min(forger.read(CERTIFICATE_FILE)["claim"]["front"], key=lambda row: columns[ATTAINED][row])]


def _bounds_alone(forger: Forger) -> list[int]:
    """The rows that were not solved: one alone may be covered by others, and then is not missed."""
    columns = forger.columns()
    return [row for row in columns["index"] if columns["status"][row] != "solved"]


def _added(forger: Forger) -> None:
    row = a_row(forger, is_on_front=False)
    forger.put("claim.front", lambda rows: sorted({*rows, row}))


def _put(place: str, value: Any) -> Callable[[Forger], None]:
    return lambda forger: forger.put(place, value)


def _cells(*, is_on_front: bool, **values: Any) -> Callable[[Forger], object]:
    return lambda forger: forger.cells(a_row(forger, is_on_front=is_on_front), **values)


FORGERIES: dict[str, tuple[Callable[[Forger], object], str]] = {
    "dropped from the front": (_put("claim.front", lambda rows: rows[1:]), "front is not that of the solved rows"),
    "added to the front": (_added, "front is not"),
    "front out of order": (_put("claim.front", lambda rows: rows[::-1]), "front is not"),
    "gap of nothing": (_put("claim.gap", 0.0), "has no row that bounds the die|exceeds what the rows"),
    "gap too large": (_put("claim.gap", 0.009), "gap is 0.009 but the rows give"),
    "not called proved": (_put("claim.is_proved", False), "is not is_proved though"),
    "tolerance below the gap": (_put("claim.tolerance", 0.0), "is_proved though"),
    "fewer points": (_put("claim.num_points", lambda number: number - 1), "num_points is"),
    "fewer left out": (_put("claim.num_left_out", lambda number: number - 1), "num_left_out is"),
    "none left out": (_put("claim.num_left_out", 0), "holds more than its form asks for"),
    "other value": (_put("claim.value", times(1.01)), "value is"),
    "other bound": (_put("claim.value_upper", times(1.01)), "value_upper is"),
    "another incumbent": (_put("claim.incumbent", 1), "incumbent is|attains|value is"),
    "goal dropped": (_put("axes", ["throughput", "tdp", "area"]), "column cost_usd is of no goal"),
    "throughput dropped": (_put("axes", ["tdp", "area", "cost"]), "front is not|gap is"),
    "one goal": (_put("goal", "throughput"), "goal 'throughput' goes with no front"),
    "cooler": (_cells(is_on_front=True, tdp_w=times(0.99)), "tdp_w is .* but the architecture gives"),
    "smaller": (_cells(is_on_front=True, area_mm2=times(0.99)), "area_mm2 is .* but the architecture gives"),
    "cheaper": (_cells(is_on_front=True, cost_usd=times(0.99)), "cost_usd is .* but the architecture gives"),
    "faster": (_cells(is_on_front=True, **{ATTAINED: times(1.001), UPPER: times(1.001)}), f"{UPPER}|{ATTAINED}"),
    "slower": (_cells(is_on_front=True, **{ATTAINED: times(0.999)}), f"{ATTAINED}|front is not|gap is"),
    "not solved": (_cells(is_on_front=True, status="pruned-by-bound", **{ATTAINED: 0.0}), "solved|front is not"),
    "called solved": (_cells(is_on_front=False, **SOLVED, **{ATTAINED: 1.0}), "solved|attains"),
    "lowered bound": (_cells(is_on_front=False, **{UPPER: times(0.9)}), f"{UPPER}|gap is"),
    "no die of the space": (_cells(is_on_front=False, hbm_stacks=7), "hbm_stacks is 7, which is not on its axis"),
    "another chip in words": (_cells(is_on_front=True, arch="num_tc=1"), "arch is 'num_tc=1', not 'num_tc="),
    "a chip off the front in words": (_cells(is_on_front=False, arch="num_tc=1"), "arch is 'num_tc=1', not ''"),
    "a solved row less": (_less_rows(_slowest_of_front), "has no row that bounds the die of|claim: "),
    "no bounds but of solved rows": (_less_rows(_bounds_alone), "has no row that bounds the die of|claim: "),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_front_over_many_dies_is_refused(
    name: str, covered: tuple[CertifyProblem, CertifyResult], tmp_path: Path
):
    forge, rule = FORGERIES[name]
    forged = Forger(covered[1].directory, tmp_path / "copy")
    forge(forged)
    forged.seal()
    with pytest.raises(CertificateError, match=rule):
        check_certificate(forged.directory)
