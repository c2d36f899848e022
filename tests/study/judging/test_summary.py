from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from phaze_opt.objective.goals import Goal
from phaze_opt.study.config import Budget, Generality, Judgement
from phaze_opt.study.judging.metrics import cell_metrics, contender_metrics
from phaze_opt.study.judging.statistics.hypervolume import hypervolume
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import ChipTable, StudyResult, TruthKind
from phaze_opt.study.scores import StudySummary
from phaze_opt.study.summary import summarise

Study = Callable[..., StudyResult]
SAFE_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./ "


def ending(values: Sequence[float]) -> list[list[float]]:
    """Searches of two evaluations that end at these values."""
    return [[1.0, value] for value in values]


def text(summary: StudySummary) -> str:
    return "\n".join(summary.findings)


def test_one_condition_by_hand(study: Study) -> None:
    """Truth 100; one contender is at 99.5 after two evaluations, the other at 90 after three."""
    result = study(
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
    assert "Every search was run with one seed" in text(summary)
    assert "mean regret 0.5 % (one seed, no interval)" in text(summary)
    assert "12 probes" in text(summary)
    assert not any(test.is_significant for test in summary.tests)


def test_overhead_is_charged_evenly_and_repeats_cost_nothing(
    study: Study,
) -> None:
    result = study({"bert": {"x": [[1.0, 2.0, 4.0, 4.0]]}}, truths={"bert": 4.0})
    cell = replace(result.cells[0], overhead_s=2.0)
    score = summarise(replace(result, cells=(cell,))).cells[0]
    assert score.charged_s == pytest.approx(6.0)
    assert score.seconds_to[0.05] == pytest.approx(3.0 + 3 * 0.5)


def test_best_known_is_taken_from_all_cells_of_the_condition(study: Study) -> None:
    summary = summarise(study({"bert": {"a": [[80.0], [90.0]], "b": [[100.0], [None]]}, "gpt": {"a": [[5.0]]}}))
    assert summary.truths["default.bert"].kind is TruthKind.BEST_KNOWN
    assert summary.truths["default.bert"].value == 100.0
    assert [cell.regret for cell in summary.cells] == pytest.approx([0.2, 0.1, 0.0, 1.0, 0.0])
    assert "a better one may exist" in text(summary)
    assert "found nothing feasible" in text(summary)


def test_a_truth_that_a_search_beats_is_replaced_and_reported(study: Study) -> None:
    summary = summarise(study({"bert": {"a": [[110.0]], "b": [[100.0]]}}, truths={"bert": 100.0}))
    assert summary.truths["default.bert"].value == 110.0
    assert summary.truths["default.bert"].kind is TruthKind.BEST_KNOWN
    assert [cell.regret for cell in summary.cells] == pytest.approx([0.0, 1 - 100 / 110])
    assert "more than the enumerated optimum" in text(summary)


def test_ten_seeds_apart_are_a_claim(study: Study) -> None:
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"weak": ending(90 + rng.random(10)), "strong": ending(98 + rng.random(10))}}
    summary = summarise(study(outcomes, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert (test.first, test.second, test.test, test.condition) == ("strong", "weak", "Mann-Whitney", "default.bert")
    assert test.p_value == pytest.approx(2 / 184756)
    assert test.effect == 1.0
    assert test.is_significant
    assert "strong is better than weak (Mann-Whitney" in text(summary)
    strong = summary.contenders[0]
    assert strong.low_regret < strong.mean_regret < strong.high_regret < 0.02


def test_three_seeds_are_too_few_and_it_says_so(study: Study) -> None:
    outcomes = {"bert": {"weak": ending([90.0, 91.0, 92.0]), "strong": ending([98.0, 98.5, 99.0])}}
    summary = summarise(study(outcomes, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert test.p_value == pytest.approx(0.1)
    assert not test.is_significant
    assert "the smallest p-value they can give is 0.1" in text(summary)
    assert "no test tells strong from weak" in text(summary)


def test_the_first_finding_says_who_wins_where_and_by_how_much_and_the_next_what_regret_is_against(
    study: Study,
) -> None:
    outcomes = {m: {"a": ending([99.0, 98.0]), "b": ending([90.0, 97.0])} for m in ("m", "n")}
    summary = summarise(study(outcomes, truths={"m": 100.0, "n": 100.0}))
    first, second = summary.findings[:2]
    assert first.startswith("a leads over 2 conditions: mean rank 1, mean regret 1.5 %")
    assert "b loses" in first
    assert first.endswith("By median regret a comes first alone in 2 of 2 conditions.")
    assert second == "Regret in default.m and default.n is against the enumerated optimum."
    unfinished = summarise(study(outcomes, truths={"m": 100.0}, num_missing=3)).findings
    assert unfinished[0].startswith("8 of 11 searches are finished")
    assert unfinished[1].startswith("a leads")


def test_a_rank_test_against_the_medians_is_no_claim(study: Study) -> None:
    """The median of a is better, yet b wins two pairs of three: Mann-Whitney then says that b is better, not a."""
    first = [95.0 + 0.0001 * i for i in range(31)] + [10.0 + 0.0001 * i for i in range(30)]
    second = [94.0 + 0.0001 * i for i in range(31)] + [99.0 + 0.0001 * i for i in range(30)]
    summary = summarise(study({"bert": {"a": ending(first), "b": ending(second)}}, truths={"bert": 100.0}))
    (test,) = summary.tests
    assert (test.first, test.second) == ("a", "b")
    assert test.p_value < 0.05
    assert test.effect < 0.5
    assert not test.is_significant
    assert "a is better than b" not in text(summary)


def test_no_sentence_speaks_of_negative_losses_or_of_one_time_fewer(study: Study) -> None:
    outcomes = {"bert": {"a": ending([99.0, 97.0, 93.0, 95.0]), "b": ending([99.0, 96.5, 93.5, 94.5])}}
    told = text(summarise(study(outcomes, truths={"bert": 100.0})))
    assert "-" not in told.replace("Mann-Whitney", "").replace("p-value", "").replace("best-known", "")
    assert "What b loses of the best value may be " in told
    assert " more (95 % bootstrap interval over seeds), so there may be no difference." in told
    assert "a takes 2 evaluations against 2: as many evaluations" in told


def test_intervals_over_few_seeds_are_said_to_be_narrow(study: Study) -> None:
    rng = np.random.default_rng(0)
    for num_seeds, is_said in ((5, True), (19, True), (20, False)):
        outcomes = {"bert": {"a": ending(90 + rng.random(num_seeds)), "b": ending(80 + rng.random(num_seeds))}}
        told = text(summarise(study(outcomes, truths={"bert": 100.0})))
        assert (f"Bootstrap intervals over {num_seeds} seeds are too narrow" in told) is is_said


def test_identical_searches_are_one_observation(study: Study) -> None:
    """Ten equal searches against ten others: Mann-Whitney on copies would claim p = 1e-5; a sign test is what holds."""
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"fixed": ending([99.0] * 10), "tpe": ending(90 + rng.random(10))}}
    summary = summarise(study(outcomes, truths={"bert": 100.0}, deterministic=["fixed"]))
    (test,) = summary.tests
    assert test.test == "sign test"
    assert test.p_value == pytest.approx(2 / 2**10)
    assert "fixed makes the same search whatever the seed" in text(summary)
    assert "10 seeds are one observation" in text(summary)
    fixed = summary.contenders[0]
    assert fixed.low_regret == fixed.high_regret == pytest.approx(0.01)


def test_two_deterministic_contenders_are_not_tested(study: Study) -> None:
    outcomes = {"bert": {"a": ending([99.0] * 10), "b": ending([98.0] * 10)}}
    summary = summarise(study(outcomes, truths={"bert": 100.0}, deterministic=["a", "b"]))
    (test,) = summary.tests
    assert (test.test, test.p_value, test.is_significant) == ("none", 1.0, False)
    assert summary.contenders[0].contender == "a"


def blocks(study: Study, regrets: dict[str, Sequence[float]], num_seeds: int = 3) -> StudySummary:
    """One workload per column, medians given; seeds vary a little around them."""
    num_conditions = len(next(iter(regrets.values())))
    outcomes = {
        f"model{column}": {
            name: ending([100.0 * (1 - row[column]) + 0.001 * (seed - num_seeds // 2) for seed in range(num_seeds)])
            for name, row in regrets.items()
        }
        for column in range(num_conditions)
    }
    return summarise(study(outcomes, truths={f"model{column}": 101.0 for column in range(num_conditions)}))


def test_eight_conditions_rank_three_contenders(study: Study) -> None:
    low = [0.01 + 0.001 * column for column in range(8)]
    regrets = {"c": [0.3 + x for x in low], "a": low, "b": [x + 0.0001 * (-1) ** i for i, x in enumerate(low)]}
    summary = blocks(study, regrets)
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
    assert "is better than c (Wilcoxon, Holm: p <= 0.023)" in text(summary)


def test_three_conditions_are_too_few_for_wilcoxon(study: Study) -> None:
    summary = blocks(study, {"a": [0.01, 0.02, 0.03], "b": [0.1, 0.2, 0.3]})
    assert summary.ranking.mean_ranks == (1.0, 2.0)
    assert summary.ranking.friedman_p == 1.0
    assert summary.ranking.cliques == ((0, 1),)
    assert "With 3 conditions Wilcoxon's test cannot go below p = 0.25" in summary.ranking.note
    assert summary.ranking.note in summary.findings
    assert "no test tells a from b (Wilcoxon, Holm: p >= 0.25)" in text(summary)


def test_without_friedman_no_pair_is_claimed(study: Study) -> None:
    """a beats b in all eight conditions, yet c, first in half and last in half, leaves Friedman a chi-square of 4."""
    low = [0.1 + 0.01 * column for column in range(8)]
    regrets = {"a": low, "b": [x + 0.005 for x in low], "c": [x + 0.2 * (-1) ** i for i, x in enumerate(low)]}
    regrets["c"] = [max(0.001, x) for x in regrets["c"]]
    summary = blocks(study, regrets)
    assert summary.ranking.mean_ranks == (1.5, 2.0, 2.5)
    assert summary.ranking.friedman_p == pytest.approx(np.exp(-2.0))
    tests = {(test.first, test.second): test for test in summary.tests if not test.condition}
    assert tests["a", "b"].p_value == pytest.approx(3 * 2 / 2**8), "Wilcoxon alone would claim it"
    assert not tests["a", "b"].is_significant
    assert summary.ranking.cliques == ((0, 2),)
    assert "Friedman's test finds no difference (p = 0.14), so no pair is claimed" in text(summary)


def test_conditions_that_lack_a_contender_are_left_out_of_blocks(study: Study) -> None:
    outcomes = {"a": {"x": ending([9.0]), "y": ending([8.0])}, "b": {"x": ending([9.0])}}
    summary = summarise(study(outcomes, num_missing=1))
    assert "1 of 2 conditions lack a contender" in summary.ranking.note
    assert summary.ranking.contenders == ("x", "y")
    assert "3 of 4 searches are finished" in text(summary)


def test_weights_of_workloads_count_in_overall_means(study: Study) -> None:
    outcomes = {"a": {"x": ending([90.0, 90.0])}, "b": {"x": ending([50.0])}}
    summary = summarise(study(outcomes, truths={"a": 100.0, "b": 100.0}, weights={"a": 1.0, "b": 3.0}))
    assert summary.contenders[0].mean_regret == pytest.approx(0.25 * 0.1 + 0.75 * 0.5)
    assert summary.contenders[0].median_regret == pytest.approx(0.5)


def test_everything_tied(study: Study) -> None:
    outcomes = {name: {"a": ending([5.0] * 4), "b": ending([5.0] * 4), "c": ending([5.0] * 4)} for name in ("m", "n")}
    summary = summarise(study(outcomes))
    assert summary.ranking.mean_ranks == (2.0, 2.0, 2.0)
    assert summary.ranking.friedman_p == 1.0
    assert all(test.p_value == 1.0 for test in summary.tests)
    assert "All contenders tie" in text(summary)
    assert "All searches end with the same value" in text(summary)


def test_nothing_feasible_nothing_finished_and_one_contender(study: Study) -> None:
    summary = summarise(study({"bert": {"a": [[None, None]], "b": [[None]]}}))
    assert summary.truths == {}
    assert [cell.regret for cell in summary.cells] == [1.0, 1.0]
    assert "No search found a feasible design in default.bert" in text(summary)

    empty = summarise(replace(study({"bert": {"a": [[1.0]]}}), cells=()))
    assert empty.contenders == ()
    assert empty.findings == ("None of the 1 searches is finished: nothing is found yet.",)
    assert contender_metrics(empty) == {}

    alone = summarise(study({"bert": {"a": ending([1.0, 2.0, 3.0])}}))
    assert alone.ranking.note == "one contender: nothing to rank"
    assert alone.tests == ()
    assert "a is the only contender and no optimum is proved, so its searches are held against the best" in text(alone)
    single = summarise(study({"bert": {"a": ending([3.0])}}))
    assert "nothing tells how good its designs are" in text(single)
    proved = summarise(study({"bert": {"a": ending([3.0])}}, truths={"bert": 4.0}))
    assert "a is the only contender: mean regret 25 %" in text(proved)


def test_a_search_without_any_trial_is_all_regret(study: Study) -> None:
    summary = summarise(study({"bert": {"a": [[]], "b": [[3.0]]}}))
    assert summary.cells[0].regret == 1.0
    assert summary.cells[0].area_under_curve == 1.0


def test_a_budget_in_seconds_is_for_use(study: Study) -> None:
    outcomes = {"bert": {"a": ending([9.0, 9.1]), "b": [[1.0, 2.0, 7.0], [1.0]]}}
    summary = summarise(study(outcomes, budget=Budget(seconds=30.0)))
    assert summary.findings[0].startswith("For use, not a claim: a leads")
    assert "for use, not a claim" in summary.findings[1]
    assert summary.cells[0].area_under_curve == pytest.approx((1 - 1 / 9.1 + 2 * (1 - 9 / 9.1)) / 3), (
        "longest search: 3"
    )


def test_several_objectives_are_judged_by_hypervolume(study: Study) -> None:
    """Throughput up, TDP and area down; box from (1, 40, 40) to (3, 20, 20)."""
    good: list[tuple[float, ...] | None] = [(1.0, 40.0, 40.0), (2.0, 30.0, 30.0), (3.0, 30.0, 30.0)]
    other: list[tuple[float, ...] | None] = [None, (2.0, 20.0, 20.0)]
    summary = summarise(study({"bert": {"good": [good], "other": [other]}}, goal=Goal.PARETO))
    best = hypervolume(np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 1.0]]))
    assert best == pytest.approx(0.5 + 0.25 - 0.125)
    first, second = summary.cells
    np.testing.assert_allclose(first.curve, [1.0, 1 - 0.125 / best, 1 - 0.25 / best])
    assert first.hypervolume == pytest.approx(0.25)
    assert second.hypervolume == pytest.approx(0.5)
    assert second.regret == pytest.approx(1 - 0.5 / best)
    assert summary.truths == {}
    assert summary.contenders[0].contender == "other"
    assert "front of all searches" in text(summary)
    from phaze_opt.cli.study_output import contenders_table

    result = study({"bert": {"good": [good], "other": [other]}}, goal=Goal.PARETO)
    note = contenders_table(summarise(result), result).note
    assert note.startswith("Regret of the hypervolume, against the best known, where there are several objectives;")


def test_the_mean_hypervolume_is_of_conditions_that_have_one(study: Study) -> None:
    front = study({"bert": {"a": [[(1.0, 40.0, 40.0), (3.0, 20.0, 20.0)]]}}, goal=Goal.PARETO)
    single = study({"gpt": {"a": ending([3.0])}})
    mixed = replace(front, conditions=front.conditions + single.conditions, cells=front.cells + single.cells)
    assert summarise(mixed).contenders[0].mean_hypervolume == summarise(front).contenders[0].mean_hypervolume == 1.0
    assert summarise(single).contenders[0].mean_hypervolume == 0.0


def test_a_single_point_dominates_its_box(study: Study) -> None:
    summary = summarise(study({"bert": {"a": [[(1.0, 2.0, 3.0)]], "b": [[None]]}}, goal=Goal.PARETO))
    assert [cell.regret for cell in summary.cells] == [0.0, 1.0]


def test_two_extremes_without_volume_are_no_regret(study: Study) -> None:
    """Both points lie on the worst value of some objective, so no volume is left to miss."""
    outcomes = {"bert": {"a": [[(2.0, 2.0, 1.0)]], "b": [[(1.0, 1.0, 1.0)]], "c": [[None]]}}
    summary = summarise(study(outcomes, goal=Goal.PARETO))
    assert [cell.regret for cell in summary.cells] == [0.0, 0.0, 1.0]


def test_the_price_of_generality_is_told(study: Study, condition: Callable[..., Condition]) -> None:
    result = study({"a": {"x": [[1.0]]}, "b": {"x": [[1.0]]}})
    points = tuple(trial.point for cell in result.cells for trial in cell.trials)
    table = ChipTable("default", ("a", "b"), (1.0, 1.0), points, ((10.0, 8.0), (5.0, 10.0)), ((1, 1), (1, 1)), 40)
    config = replace(result.config, generality=Generality())
    summary = summarise(replace(result, config=config, chip_tables=(table,)))
    (price,) = summary.prices
    assert price.matrix == ((1.0, 0.8), (0.5, 1.0))
    assert price.common[0].price == pytest.approx(0.1)
    told = "chosen by arithmetic mean, geometric mean and worst case it costs 10 % on average and 20 % at worst (a)"
    assert told in text(summary)
    assert "2 chips keep every model within 1 %" in text(summary)
    assert "exact over the 40 chips that searches found feasible: bounds leave 2 that can" in text(summary)


def test_metrics_have_names_that_mlflow_takes(study: Study) -> None:
    outcomes = {
        "m": {"a": ending([99.0, 98.0]), "b": ending([90.0, 97.0])},
        "n": {"a": ending([9.0, 9.0]), "b": ending([9.0, 9.0])},
    }
    summary = summarise(study(outcomes, truths={"m": 100.0}, probes={"a": 3}))
    metrics = contender_metrics(summary)
    assert metrics["a"]["win_share"] == pytest.approx(0.75)
    assert metrics["b"]["win_share"] == pytest.approx(0.25)
    assert metrics["a"]["probes"] == 3.0
    assert metrics["a"]["mean_rank"] == pytest.approx(1.25)
    assert metrics["a"]["evaluations_to_1pct"] == 2.0
    assert metrics["a"]["mean_regret_pct"] == pytest.approx(0.75)
    cells = cell_metrics(summary)
    assert cells["default.m.a.0"]["regret_pct"] == pytest.approx(1.0)
    assert set(cells) == {cell.cell.key for cell in study(outcomes).cells}
    for named in (*metrics.values(), *cells.values()):
        for name, value in named.items():
            assert set(name) <= set(SAFE_NAME)
            assert np.isfinite(value)


def test_the_same_study_gives_the_same_summary(study: Study) -> None:
    rng = np.random.default_rng(8)
    outcomes = {m: {n: ending(rng.random(6)) for n in "abc"} for m in ("m", "n")}
    one, two = (summarise(study(outcomes, judgement=Judgement(num_bootstrap=500))) for _ in range(2))
    assert one.contenders == two.contenders
    assert one.findings == two.findings
    assert one.tests == two.tests


def test_untested_pairs_take_no_part_in_the_correction(study: Study) -> None:
    """Two constants and one sample: two tests, so Holm doubles the smallest p-value and no more."""
    rng = np.random.default_rng(0)
    outcomes = {"bert": {"a": ending([99.0] * 10), "b": ending([98.0] * 10), "tpe": ending(90 + rng.random(10))}}
    summary = summarise(study(outcomes, truths={"bert": 100.0}, deterministic=["a", "b"]))
    tests = {(test.first, test.second): test for test in summary.tests}
    assert tests["a", "b"].test == "none"
    assert tests["a", "tpe"].p_value == pytest.approx(2 * 2 / 2**10)


def test_a_few_equal_searches_stay_observations(study: Study) -> None:
    """Only if all seeds give one search is it a constant; else equal ones are draws like others."""
    result = study({"bert": {"a": ending([99.0, 99.0, 98.0]), "b": ending([90.0, 91.0, 92.0])}})
    first, second = result.cells[:2]
    same = replace(second, trials=first.trials)
    summary = summarise(replace(result, cells=(first, same, *result.cells[2:])))
    assert summary.tests[0].test == "Mann-Whitney"
    assert "same search whatever the seed" not in text(summary)


def test_own_bests_are_held_against_proved_optima(study: Study) -> None:
    result = study({"a": {"x": [[9.0]]}, "b": {"x": [[10.0]]}}, truths={"a": 10.0, "b": 10.0})
    points = tuple(trial.point for cell in result.cells for trial in cell.trials)
    table = ChipTable("default", ("a", "b"), (1.0, 1.0), points, ((9.0, 8.97), (5.0, 10.0)), ((1, 1), (1, 1)), 2)
    config = replace(result.config, generality=Generality())
    short = summarise(replace(result, config=config, chip_tables=(table,)))
    assert "own bests fall short of proved optima by up to 10 % (all 2 models)" in text(short)
    assert "In setting default (throughput) the 2 models have 2 best chips, all different" in text(short)
    assert "Schedules are proved to 1 % only" in text(short), "chip 2 costs model a 0.33 %"
    full = replace(table, values=((10.0, 8.0), (5.0, 10.0)))
    met = summarise(replace(result, config=config, chip_tables=(full,)))
    assert "the own best of all 2 models is the proved optimum" in text(met)
    assert "Schedules are proved" not in text(met)


def test_a_leader_by_rank_that_loses_more_in_the_mean_is_told_so(study: Study) -> None:
    rng = np.random.default_rng(0)
    outcomes = {
        name: {"often": ending(99.0 + 0.1 * rng.random(5)), "steady": ending(98.9 + 0.05 * rng.random(5))}
        for name in ("m", "n", "o")
    }
    outcomes["p"] = {"often": ending(10.0 + rng.random(5)), "steady": ending(98.9 + 0.05 * rng.random(5))}
    summary = summarise(study(outcomes, truths=dict.fromkeys("mnop", 100.0)))
    assert summary.contenders[0].contender == "often"
    assert "better in the mean, though worse by rank" in text(summary)
    assert "In default.p steady comes first" in text(summary)
    assert (
        "Fewer than half of the searches of often do as well as half of those of steady end in 1 condition of 4"
        in text(summary)
    )
