from dataclasses import replace

import numpy as np
import pytest
from made_up_studies import build_study

from phaze_opt.study.compare import Difference, compare_studies
from phaze_opt.study.config import Budget, Contender
from phaze_opt.study.result import StudyResult


def rename_condition(result: StudyResult, name: str) -> StudyResult:
    """The same study with its only workload under another name."""
    (condition,) = result.conditions
    renamed = replace(condition, workload=replace(condition.workload, name=name))
    cells = tuple(replace(cell, cell=replace(cell.cell, condition=renamed)) for cell in result.cells)
    truths = dict.fromkeys([renamed.key], *result.truths.values()) if result.truths else {}
    return replace(result, conditions=(renamed,), cells=cells, truths=truths)


def test_conditions_are_matched_by_problem_and_truth_is_the_better() -> None:
    before = build_study({"bert": {"tpe": [[80.0], [90.0]]}}, truths={"bert": 95.0}, directory="before")
    after = rename_condition(build_study({"bert": {"tpe": [[100.0], [90.0]]}}, directory="after"), "other-name")
    comparison = compare_studies(before, after)
    (row,) = comparison.rows
    assert row.truth is not None
    assert row.truth.value == 100.0
    assert (row.first.condition, row.second.condition) == ("default.bert", "default.other-name")
    assert row.first.mean_regret == pytest.approx(0.15)
    assert row.second.mean_regret == pytest.approx(0.05)
    assert row.difference == pytest.approx(-0.1)
    assert row.effect == pytest.approx((2 + 1 + 0.5) / 4)
    assert row.differences == ()
    assert (comparison.num_problems, comparison.namesakes) == (1, ())
    assert not any((*one.conditions, *one.contenders) for one in (comparison.first, comparison.second))
    (change,) = comparison.changes
    assert (change.num_problems, change.num_better, change.num_worse, change.num_claimed) == (1, 1, 0, 0)


@pytest.mark.parametrize("truths", [(100.0, 120.0), (120.0, 100.0)])
def test_the_better_of_two_proved_truths_counts(truths: tuple[float, float]) -> None:
    one, other = (build_study({"bert": {"tpe": [[90.0]]}}, truths={"bert": truth}, directory="d") for truth in truths)
    (row,) = compare_studies(one, other).rows
    assert row.truth is not None
    assert row.truth.value == 120.0
    assert row.first.mean_regret == row.second.mean_regret == pytest.approx(0.25)


def test_equal_names_of_other_problems_are_not_compared() -> None:
    first = build_study({"bert": {"tpe": [[1.0]]}}, directory="a")
    second = build_study({"bert": {"tpe": [[1.0]]}}, directory="b", devices=16)
    comparison = compare_studies(first, second)
    assert comparison.rows == ()
    assert comparison.num_problems == 0
    assert comparison.first.conditions == comparison.namesakes == ("default.bert",)


def test_what_differs_is_said() -> None:
    first = build_study({"bert": {"tpe": [[1.0]], "old": [[1.0]]}}, directory="a")
    second = build_study(
        {"bert": {"tpe": [[1.0]], "new": [[1.0]]}}, directory="b", num_missing=2, budget=Budget(evaluations=20)
    )
    changed = Contender("tpe", "tpe", {"startup_trials": 4})
    second = replace(second, config=replace(second.config, contenders=(changed, second.config.contenders[1])))
    comparison = compare_studies(first, second)
    assert [row.contender for row in comparison.rows] == ["tpe"]
    assert comparison.rows[0].differences == (
        Difference("strategy", "random", "tpe"),
        Difference("options", {}, {"startup_trials": 4}),
        Difference("budget of evaluations", 10, 20),
    )
    assert (comparison.first.contenders, comparison.second.contenders) == (("old",), ("new",))
    assert (comparison.first.result, comparison.second.result) == (first, second)


def test_studies_of_two_package_versions_say_so() -> None:
    """Problems are matched by what they are now; what a version changed in their evaluations cannot be seen in them."""
    first, second = (
        replace(build_study({"bert": {"tpe": [[1.0]]}}), provenance={"phaze-opt": version})
        for version in ("1.0", "2.0")
    )
    comparison = compare_studies(first, second)
    assert comparison.rows[0].differences == (Difference("package version", "1.0", "2.0"),)


def test_constants_that_are_not_tested_take_no_part_in_the_correction() -> None:
    rng = np.random.default_rng(0)
    first, second = (
        build_study(
            {"bert": {"fixed": [[90.0 - low]] * 8, "tpe": [[80.0 - low + x] for x in rng.random(8)]}},
            deterministic=["fixed"],
        )
        for low in (0.0, 10.0)
    )
    rows = {row.contender: row for row in compare_studies(first, second).rows}
    assert (rows["fixed"].test, rows["fixed"].p_value) == ("none", 1.0)
    assert rows["tpe"].p_value == pytest.approx(2 / 12870)


def test_a_claim_over_seeds_and_costs() -> None:
    rng = np.random.default_rng(1)
    slow = build_study({"bert": {"tpe": [[80.0, 80.0 + x] for x in rng.random(8)]}}, directory="a", probes={"tpe": 4})
    fast = build_study({"bert": {"tpe": [[90.0 + x] for x in rng.random(8)]}}, directory="b")
    (row,) = compare_studies(slow, fast).rows
    assert row.test == "Mann-Whitney"
    assert row.p_value == pytest.approx(2 / 12870)
    assert row.is_significant
    assert row.effect == 1.0
    assert (row.first.mean_evaluations, row.second.mean_evaluations) == (2.0, 1.0)
    assert (row.first.mean_probes, row.second.mean_probes) == (4.0, 0.0)
    (back,) = compare_studies(fast, slow).rows
    assert back.difference == pytest.approx(-row.difference)
    assert back.effect == 0.0


def test_a_study_against_itself_shows_no_difference() -> None:
    result = build_study({"bert": {"tpe": [[3.0], [4.0]]}, "gpt": {"tpe": [[None], [4.0]]}})
    comparison = compare_studies(result, result)
    assert comparison.rows
    assert all(row.difference == 0.0 and row.p_value == 1.0 for row in comparison.rows)
    assert [(change.num_better, change.num_worse) for change in comparison.changes] == [(0, 0)]
