from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_up_studies import build_study

from phaze_opt.objective.goals import Goal
from phaze_opt.study.config import Budget, Generality, Judgement
from phaze_opt.study.judging.contender_scores import cell_metrics, contender_metrics
from phaze_opt.study.judging.statistics import hypervolume
from phaze_opt.study.result import ChipTable, TruthKind
from phaze_opt.study.scores import StudySummary
from phaze_opt.study.summary import summarise

SAFE_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ "


def ending(values: Sequence[float]) -> list[list[float]]:
    """Searches of two evaluations that end at these values."""
    return [[1.0, value] for value in values]


def test_one_condition_by_hand() -> None:
    """Truth 100; one contender is at 99.5 after two evaluations, the other at 90 after three."""
    result = build_study(
        {"bert": {"good": [[50.0, 99.5]], "bad": [[None, 80.0, 90.0]]}},
        truths={"bert": 100.0},
        budget=Budget(evaluations=4),
        probes={"good": 12},
    )
    summary = summarise(result)
    good, bad = summary.cells
    np.testing.assert_allclose(good.curve, [0.5, 0.005])
    np.testing.assert_allclose(bad.curve, [1.0, 0.2, 0.1])
    assert good.regret == pytest.approx(0.005)
    assert good.area_under_curve == pytest.approx((0.5 + 3 * 0.005) / 4)
    assert good.evaluations_to == {0.05: 2, 0.01: 2}
    assert good.seconds_to == {0.05: 2.0, 0.01: 2.0}
    assert bad.evaluations_to == {}
    assert summary.truths["default.bert"].kind is TruthKind.ENUMERATED
    first, second = summary.contenders
    assert (first.contender, second.contender) == ("good", "bad")
    assert (first.mean_rank, second.mean_rank) == (1.0, 2.0)
    assert first.median_evaluations_to == {0.05: 2.0, 0.01: 2.0}
    assert first.share_reached == {0.05: 1.0, 0.01: 1.0, 0.001: 0.0}
    assert first.low_regret == first.high_regret == pytest.approx(0.005), "one seed tells no spread"
    assert first.mean_probes == 12.0
    assert not any(test.is_significant for test in summary.tests)


def test_overhead_is_charged_evenly_and_repeats_cost_nothing() -> None:
    result = build_study({"bert": {"x": [[1.0, 2.0, 4.0, 4.0]]}}, truths={"bert": 4.0})
    cell = replace(result.cells[0], overhead_s=2.0)
    score = summarise(replace(result, cells=(cell,))).cells[0]
    assert score.charged_s == pytest.approx(6.0)
    assert score.seconds_to[0.05] == pytest.approx(3.0 + 3 * 0.5)


def test_best_known_is_taken_from_all_cells_of_the_condition() -> None:
    summary = summarise(build_study({"bert": {"a": [[80.0], [90.0]], "b": [[100.0], [None]]}, "gpt": {"a": [[5.0]]}}))
    assert summary.truths["default.bert"].kind is TruthKind.BEST_KNOWN
    assert summary.truths["default.bert"].value == 100.0
    assert [cell.regret for cell in summary.cells] == pytest.approx([0.2, 0.1, 0.0, 1.0, 0.0])
    assert summary.standings[0].infeasible == {"b": 1}


def test_a_truth_that_a_search_beats_is_replaced() -> None:
    summary = summarise(build_study({"bert": {"a": [[110.0]], "b": [[100.0]]}}, truths={"bert": 100.0}))
    assert summary.truths["default.bert"].value == 110.0
    assert summary.truths["default.bert"].kind is TruthKind.BEST_KNOWN
    assert [cell.regret for cell in summary.cells] == pytest.approx([0.0, 1 - 100 / 110])
    beaten = summary.standings[0].beaten_truth
    assert beaten is not None
    assert (beaten.kind, beaten.value) == (TruthKind.ENUMERATED, 100.0)


def test_ten_seeds_apart_are_a_claim() -> None:
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"weak": ending(90 + rng.random(10)), "strong": ending(98 + rng.random(10))}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert (test.first, test.second, test.test, test.condition) == ("strong", "weak", "Mann-Whitney", "default.bert")
    assert test.p_value == pytest.approx(2 / 184756)
    assert test.effect == 1.0
    assert test.is_significant
    strong = summary.contenders[0]
    assert strong.low_regret < strong.mean_regret < strong.high_regret < 0.02


def test_three_seeds_are_too_few() -> None:
    outcomes = {"bert": {"weak": ending([90.0, 91.0, 92.0]), "strong": ending([98.0, 98.5, 99.0])}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert test.p_value == pytest.approx(0.1)
    assert not test.is_significant
    assert summary.standings[0].smallest_p == pytest.approx(0.1)


def test_a_rank_test_against_the_medians_is_no_claim() -> None:
    """The median of a is better, yet b wins two pairs of three: Mann-Whitney then says that b is better, not a."""
    first = [95.0 + 0.0001 * i for i in range(31)] + [10.0 + 0.0001 * i for i in range(30)]
    second = [94.0 + 0.0001 * i for i in range(31)] + [99.0 + 0.0001 * i for i in range(30)]
    summary = summarise(build_study({"bert": {"a": ending(first), "b": ending(second)}}, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert (test.first, test.second) == ("a", "b")
    assert test.p_value < 0.05
    assert test.effect < 0.5
    assert not test.is_significant


def test_identical_searches_are_one_observation() -> None:
    """Ten equal searches against ten others: Mann-Whitney on copies would claim p = 1e-5; a sign test is what holds."""
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"fixed": ending([99.0] * 10), "tpe": ending(90 + rng.random(10))}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}, deterministic=["fixed"]))
    (test,) = summary.tests
    assert test.test == "sign test"
    assert test.p_value == pytest.approx(2 / 2**10)
    assert summary.standings[0].deterministic == {"fixed": 10}
    fixed = summary.contenders[0]
    assert fixed.low_regret == fixed.high_regret == pytest.approx(0.01)


def test_two_deterministic_contenders_are_not_tested() -> None:
    outcomes = {"bert": {"a": ending([99.0] * 10), "b": ending([98.0] * 10)}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}, deterministic=["a", "b"]))
    (test,) = summary.tests
    assert (test.test, test.p_value, test.is_significant) == ("none", 1.0, False)
    assert summary.contenders[0].contender == "a"


def blocks(regrets: dict[str, Sequence[float]], num_seeds: int = 3) -> StudySummary:
    """One workload per column, medians given; seeds vary a little around them."""
    num_conditions = len(next(iter(regrets.values())))
    outcomes = {
        f"model{column}": {
            name: ending([100.0 * (1 - row[column]) + 0.001 * (seed - num_seeds // 2) for seed in range(num_seeds)])
            for name, row in regrets.items()
        }
        for column in range(num_conditions)
    }
    return summarise(build_study(outcomes, truths={f"model{column}": 101.0 for column in range(num_conditions)}))


def test_eight_conditions_rank_three_contenders() -> None:
    low = [0.01 + 0.001 * column for column in range(8)]
    regrets = {"c": [0.3 + x for x in low], "a": low, "b": [x + 0.0001 * (-1) ** i for i, x in enumerate(low)]}
    summary = blocks(regrets)
    ranking = summary.ranking
    assert ranking.contenders[2] == "c"
    assert ranking.mean_ranks == (1.5, 1.5, 3.0)
    assert ranking.friedman_p < 0.01
    assert ranking.cliques == ((0, 1),)
    tests = {frozenset((t.first, t.second)): t for t in summary.tests if not t.condition}
    assert tests[frozenset("ac")].is_significant
    assert tests[frozenset("ac")].p_value == pytest.approx(3 * 2 / 2**8)
    assert tests[frozenset("ac")].effect == 1.0
    assert not tests[frozenset("ab")].is_significant


def test_three_conditions_are_too_few_for_wilcoxon() -> None:
    summary = blocks({"a": [0.01, 0.02, 0.03], "b": [0.1, 0.2, 0.3]})
    assert summary.ranking.mean_ranks == (1.0, 2.0)
    assert summary.ranking.friedman_p == 1.0
    assert summary.ranking.cliques == ((0, 1),)
    assert summary.ranking.smallest_p == 0.25
    assert not summary.ranking.is_tested


def test_without_friedman_no_pair_is_claimed() -> None:
    """a beats b in all eight conditions, yet c, first in half and last in half, leaves Friedman a chi-square of 4."""
    low = [0.1 + 0.01 * column for column in range(8)]
    regrets = {"a": low, "b": [x + 0.005 for x in low], "c": [x + 0.2 * (-1) ** i for i, x in enumerate(low)]}
    regrets["c"] = [max(0.001, x) for x in regrets["c"]]
    summary = blocks(regrets)
    assert summary.ranking.mean_ranks == (1.5, 2.0, 2.5)
    assert summary.ranking.friedman_p == pytest.approx(np.exp(-2.0))
    tests = {(test.first, test.second): test for test in summary.tests if not test.condition}
    assert tests["a", "b"].p_value == pytest.approx(3 * 2 / 2**8), "Wilcoxon alone would claim it"
    assert not tests["a", "b"].is_significant
    assert summary.ranking.cliques == ((0, 2),)


def test_conditions_that_lack_a_contender_are_left_out_of_blocks() -> None:
    outcomes = {"a": {"x": ending([9.0]), "y": ending([8.0])}, "b": {"x": ending([9.0])}}
    summary = summarise(build_study(outcomes, num_missing=1))
    assert (summary.ranking.num_conditions, summary.ranking.num_blocks) == (2, 1)
    assert summary.ranking.contenders == ("x", "y")


def test_weights_of_workloads_count_in_overall_means() -> None:
    outcomes = {"a": {"x": ending([90.0, 90.0])}, "b": {"x": ending([50.0])}}
    summary = summarise(build_study(outcomes, truths={"a": 100.0, "b": 100.0}, weights={"a": 1.0, "b": 3.0}))
    assert summary.contenders[0].mean_regret == pytest.approx(0.25 * 0.1 + 0.75 * 0.5)
    assert summary.contenders[0].median_regret == pytest.approx(0.5)


def test_everything_tied() -> None:
    outcomes = {name: {"a": ending([5.0] * 4), "b": ending([5.0] * 4), "c": ending([5.0] * 4)} for name in ("m", "n")}
    summary = summarise(build_study(outcomes))
    assert summary.ranking.mean_ranks == (2.0, 2.0, 2.0)
    assert summary.ranking.friedman_p == 1.0
    assert all(test.p_value == 1.0 for test in summary.tests)
    assert summary.ranking.num_tied == 2
    assert all(one.is_tied for one in summary.standings)


def test_nothing_feasible_nothing_finished_and_one_contender() -> None:
    summary = summarise(build_study({"bert": {"a": [[None, None]], "b": [[None]]}}))
    assert summary.truths == {}
    assert [cell.regret for cell in summary.cells] == [1.0, 1.0]
    (standing,) = summary.standings
    assert (standing.truth, standing.has_front, standing.infeasible) == (None, False, {})

    empty = summarise(replace(build_study({"bert": {"a": [[1.0]]}}), cells=()))
    assert empty.contenders == ()
    assert (empty.standings, empty.ranking.num_conditions, empty.lead) == ((), 0, None)
    assert contender_metrics(empty) == {}

    alone = summarise(build_study({"bert": {"a": ending([1.0, 2.0, 3.0])}}))
    assert (alone.tests, alone.lead, alone.equal_quality) == ((), None, ())


def test_a_search_without_any_trial_is_all_regret() -> None:
    summary = summarise(build_study({"bert": {"a": [[]], "b": [[3.0]]}}))
    assert summary.cells[0].regret == 1.0
    assert summary.cells[0].area_under_curve == 1.0


def test_with_a_budget_in_seconds_curves_are_averaged_over_the_longest_search() -> None:
    outcomes = {"bert": {"a": ending([9.0, 9.1]), "b": [[1.0, 2.0, 7.0], [1.0]]}}
    summary = summarise(build_study(outcomes, budget=Budget(seconds=30.0)))
    assert summary.cells[0].area_under_curve == pytest.approx((1 - 1 / 9.1 + 2 * (1 - 9 / 9.1)) / 3), (
        "longest search: 3"
    )


def test_several_objectives_are_judged_by_hypervolume() -> None:
    """Throughput up, TDP and area down; box from (1, 40, 40) to (3, 20, 20)."""
    good: list[tuple[float, ...] | None] = [(1.0, 40.0, 40.0), (2.0, 30.0, 30.0), (3.0, 30.0, 30.0)]
    other: list[tuple[float, ...] | None] = [None, (2.0, 20.0, 20.0)]
    summary = summarise(build_study({"bert": {"good": [good], "other": [other]}}, goal=Goal.PARETO))
    best = hypervolume(np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 1.0]]))
    assert best == pytest.approx(0.5 + 0.25 - 0.125)
    first, second = summary.cells
    np.testing.assert_allclose(first.curve, [1.0, 1 - 0.125 / best, 1 - 0.25 / best])
    assert first.hypervolume == pytest.approx(0.25)
    assert second.hypervolume == pytest.approx(0.5)
    assert second.regret == pytest.approx(1 - 0.5 / best)
    assert summary.truths == {}
    assert summary.contenders[0].contender == "other"
    assert summary.standings[0].has_front
    from phaze_opt.cli.study_output import contenders_table

    result = build_study({"bert": {"good": [good], "other": [other]}}, goal=Goal.PARETO)
    note = contenders_table(summarise(result), result).note
    assert note.startswith("Regret of the hypervolume, against the best known, where there are several objectives;")


def test_the_mean_hypervolume_is_of_conditions_that_have_one() -> None:
    front = build_study({"bert": {"a": [[(1.0, 40.0, 40.0), (3.0, 20.0, 20.0)]]}}, goal=Goal.PARETO)
    single = build_study({"gpt": {"a": ending([3.0])}})
    mixed = replace(front, conditions=front.conditions + single.conditions, cells=front.cells + single.cells)
    assert summarise(mixed).contenders[0].mean_hypervolume == summarise(front).contenders[0].mean_hypervolume == 1.0
    assert summarise(single).contenders[0].mean_hypervolume == 0.0


def test_a_single_point_dominates_its_box() -> None:
    summary = summarise(build_study({"bert": {"a": [[(1.0, 2.0, 3.0)]], "b": [[None]]}}, goal=Goal.PARETO))
    assert [cell.regret for cell in summary.cells] == [0.0, 1.0]


def test_two_extremes_without_volume_are_no_regret() -> None:
    """Both points lie on the worst value of some objective, so no volume is left to miss."""
    outcomes = {"bert": {"a": [[(2.0, 2.0, 1.0)]], "b": [[(1.0, 1.0, 1.0)]], "c": [[None]]}}
    summary = summarise(build_study(outcomes, goal=Goal.PARETO))
    assert [cell.regret for cell in summary.cells] == [0.0, 0.0, 1.0]


def test_the_price_of_generality() -> None:
    result = build_study({"a": {"x": [[1.0]]}, "b": {"x": [[1.0]]}})
    points = tuple(trial.point for cell in result.cells for trial in cell.trials)
    table = ChipTable("default", ("a", "b"), (1.0, 1.0), points, ((10.0, 8.0), (5.0, 10.0)), ((1, 1), (1, 1)), 40)
    config = replace(result.config, generality=Generality())
    summary = summarise(replace(result, config=config, chip_tables=(table,)))
    (price,) = summary.prices
    assert price.matrix == ((1.0, 0.8), (0.5, 1.0))
    assert price.common[0].price == pytest.approx(0.1)


def test_metrics_have_names_that_mlflow_takes() -> None:
    outcomes = {
        "m": {"a": ending([99.0, 98.0]), "b": ending([90.0, 97.0])},
        "n": {"a": ending([9.0, 9.0]), "b": ending([9.0, 9.0])},
    }
    summary = summarise(build_study(outcomes, truths={"m": 100.0}, probes={"a": 3}))
    metrics = contender_metrics(summary)
    assert metrics["a"]["win_share"] == pytest.approx(0.75)
    assert metrics["b"]["win_share"] == pytest.approx(0.25)
    assert metrics["a"]["probes"] == 3.0
    assert metrics["a"]["mean_rank"] == pytest.approx(1.25)
    assert metrics["a"]["evaluations_to_1pct"] == 2.0
    assert metrics["a"]["mean_regret_pct"] == pytest.approx(0.75)
    cells = cell_metrics(summary)
    assert cells["default.m.a.0"]["regret_pct"] == pytest.approx(1.0)
    assert set(cells) == {cell.cell.key for cell in build_study(outcomes).cells}
    for named in (*metrics.values(), *cells.values()):
        for name, value in named.items():
            assert set(name) <= set(SAFE_NAME)
            assert np.isfinite(value)


def test_the_same_study_gives_the_same_summary() -> None:
    rng = np.random.default_rng(8)
    outcomes = {m: {n: ending(rng.random(6)) for n in "abc"} for m in ("m", "n")}
    one, two = (summarise(build_study(outcomes, judgement=Judgement(num_bootstrap=500))) for _ in range(2))
    assert one.contenders == two.contenders
    assert (one.tests, one.standings, one.lead, one.equal_quality) == (
        two.tests,
        two.standings,
        two.lead,
        two.equal_quality,
    )


def test_untested_pairs_take_no_part_in_the_correction() -> None:
    """Two constants and one sample: two tests, so Holm doubles the smallest p-value and no more."""
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"a": ending([99.0] * 10), "b": ending([98.0] * 10), "tpe": ending(90 + rng.random(10))}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}, deterministic=["a", "b"]))
    tests = {(test.first, test.second): test for test in summary.tests}
    assert tests["a", "b"].test == "none"
    assert tests["a", "tpe"].p_value == pytest.approx(2 * 2 / 2**10)


def test_a_few_equal_searches_stay_observations() -> None:
    """Only if all seeds give one search is it a constant; else equal ones are draws like others."""
    result = build_study({"bert": {"a": ending([99.0, 99.0, 98.0]), "b": ending([90.0, 91.0, 92.0])}})
    first, second = result.cells[:2]
    same = replace(second, trials=first.trials)
    summary = summarise(replace(result, cells=(first, same, *result.cells[2:])))
    assert summary.tests[0].test == "Mann-Whitney"
    assert summary.standings[0].deterministic == {}


def test_a_leader_by_rank_may_lose_more_in_the_mean() -> None:
    rng = np.random.default_rng(0)
    outcomes = {
        name: {"often": ending(99.0 + 0.1 * rng.random(5)), "steady": ending(98.9 + 0.05 * rng.random(5))}
        for name in ("m", "n", "o")
    }
    outcomes["p"] = {"often": ending(10.0 + rng.random(5)), "steady": ending(98.9 + 0.05 * rng.random(5))}
    summary = summarise(build_study(outcomes, truths=dict.fromkeys("mnop", 100.0)))
    assert summary.contenders[0].contender == "often"
    assert summary.lead is not None
    assert summary.lead.high < 0.0
    (compared,) = summary.equal_quality
    assert (compared.num_conditions, compared.num_reached) == (4, 3)


def test_the_lead_and_what_intervals_stand_on() -> None:
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"a": ending(90 + rng.random(19)), "b": ending(80 + rng.random(20))}}
    summary = summarise(build_study(outcomes, truths={"bert": 100.0}))
    assert summary.lead is not None
    assert 0.09 < summary.lead.low < summary.contenders[1].mean_regret - summary.contenders[0].mean_regret
    assert summary.lead.high < 0.11
    assert summary.standings[0].num_observations == 19
    assert [(one.first, one.second) for one in summary.equal_quality] == [("a", "b")]
