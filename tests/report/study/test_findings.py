"""The sentences of findings: their wording is pinned here and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_studies import build_study, make_point

from phaze_opt.objective.goals import Goal
from phaze_opt.report.study.findings import comparison_to_json, describe_findings
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.report.study.wording import effect_word
from phaze_opt.study.compare import compare_studies
from phaze_opt.study.config import Budget, Contender, Generality
from phaze_opt.study.result import ChipTable, FailedSearch, StudyResult, Truth, TruthKind
from phaze_opt.study.summary import summarise


def ending(*values: float) -> list[list[float]]:
    """Searches of two evaluations that end at these values."""
    return [[1.0, value] for value in values]


def near(value: float, count: int) -> list[list[float]]:
    """Searches that end within one of a value."""
    return ending(*(value + np.random.default_rng(int(value)).random(count)))


def each(names: str, **outcomes: list[list[float]]) -> dict[str, dict[str, list[list[float]]]]:
    """The same outcomes in every workload."""
    return {name: dict(outcomes) for name in names}


def proved(names: str) -> dict[str, float]:
    return dict.fromkeys(names, 100.0)


def failed(result: StudyResult) -> StudyResult:
    """The first two searches have failed."""
    gone, left = result.cells[:2], result.cells[2:]
    failures = tuple(FailedSearch(cell.cell, "ValueError: boom", "", Path("x.json")) for cell in gone)
    return replace(result, cells=left, failures=failures)


def priced(*rows: tuple[float, ...], num_candidates: int = 0, truths: dict[str, float] | None = None) -> StudyResult:
    """A study of models a, b, ... whose chip table has these values."""
    models = tuple("abc"[: len(rows)])
    chips = tuple(make_point(7, place) for place in range(len(rows[0])))
    ones = tuple((1,) * len(chips) for _ in rows)
    table = ChipTable("default", models, (1.0,) * len(rows), chips, rows, ones, num_candidates)
    result = build_study({model: {"x": [[5.0]]} for model in models}, truths=truths, chip_tables=(table,))
    return replace(result, config=replace(result.config, generality=Generality()))


def certified(result: StudyResult, gap: float) -> StudyResult:
    truths = {key: Truth(TruthKind.CERTIFIED, known.value, known.point, gap) for key, known in result.truths.items()}
    return replace(result, truths=truths)


def pruned(result: StudyResult) -> StudyResult:
    return replace(result, cells=tuple(replace(cell, pruned=4) for cell in result.cells))


CASES = {
    "two of two": (
        build_study(each("mn", a=ending(99.0, 98.0), b=ending(90.0, 97.0)), truths=proved("mn")),
        "a leads over 2 conditions: mean rank 1, mean regret 1.5 % (95 % interval 1 % to 2 %); next comes b with rank 2"
        " and 6.5 %. b loses 1.5 % to 8.7 % of the best value more (95 % bootstrap interval over seeds). By median "
        "regret a comes first alone in 2 of 2 conditions.",
        "Regret in default.m and default.n is against the enumerated optimum.",
        "Over conditions as blocks no test tells a from b (Wilcoxon, Holm: p >= 0.5).",
        "a never comes within 1 %; a whole search costs 2 distinct evaluations, no probes and 2 s in the mean.",
        "To do as well as half of b ends in each condition a takes as many evaluations (95 % interval of the ratio over"
        " seeds 1 to 1; probes are not in this count).",
        "In default.m and default.n the searches are too few for a claim over seeds: the smallest p-value they can give"
        " is 0.33 after Holm's correction, not below 0.05.",
        "With 2 conditions Wilcoxon's test cannot go below p = 0.5: too few for a claim at 95 % confidence.",
        "Bootstrap intervals over 2 seeds are too narrow: in simulations those named 95 % held the mean in 66 to 72 % "
        "of cases at 3 seeds, 83 to 87 % at 5 and 85 to 92 % at 10.",
    ),
    "unfinished": (
        build_study(each("m", a=ending(99.0, 98.0), b=ending(90.0, 97.0)), truths=proved("m"), num_missing=3),
        "4 of 7 searches are finished; what follows is of these.",
        "a leads in default.m: mean rank 1, mean regret 1.5 % (95 % interval 1 % to 2 %); next comes b with rank 2 and "
        "6.5 %. b loses 1 % to 9 % of the best value more (95 % bootstrap interval over seeds).",
        "Over seeds no test tells a from b.",
        "To do as well as half of b ends (regret 3 %) a takes 2 evaluations against 2: as many evaluations (95 % "
        "interval of the ratio over seeds 1 to 1; probes are not in this count).",
    ),
    "one seed": (
        build_study(
            {"m": {"good": [[50.0, 99.5]], "bad": [[None, 80.0, 90.0]]}}, truths=proved("m"), probes={"good": 12}
        ),
        "good leads in default.m: mean rank 1, mean regret 0.5 % (one seed, no interval); next comes bad with rank 2 "
        "and 10 %. bad loses 9.5 % of the best value more; nothing varies over seeds.",
        "good comes within 1 % after 2 evaluations and 2 s in the median; a whole search costs 2 distinct evaluations, "
        "12 probes and 2 s in the mean.",
        "To do as well as half of bad ends (regret 10 %) good takes 2 evaluations against 3: 1.5 times fewer "
        "evaluations (95 % interval of the ratio over seeds 1.5 to 1.5; probes are not in this count).",
        "Every search was run with one seed: how results vary over seeds is unknown.",
    ),
    "maybe": (
        build_study(each("m", a=ending(99.0, 97.0, 93.0, 95.0), b=ending(99.0, 96.5, 93.5, 94.5)), truths=proved("m")),
        "a leads in default.m: mean rank 1, mean regret 4 % (95 % interval 2 % to 6 %); next comes b with rank 2 and "
        "4.1 %. What b loses of the best value may be 3 % less or 2.7 % more (95 % bootstrap interval over seeds), so "
        "there may be no difference.",
        "To do as well as half of b ends (regret 3.5 %) a takes 2 evaluations against 2: as many evaluations (95 % "
        "interval of the ratio over seeds 0 to 1; below 1 is more, not fewer; probes are not in this count).",
    ),
    "claim": (
        build_study(each("m", weak=near(90, 10), strong=near(98, 10)), truths=proved("m")),
        "Over seeds strong is better than weak (Mann-Whitney, Holm: p = 1.1e-05; it wins 100 % of pairs of searches, a "
        "large effect).",
    ),
    "fixed": (
        build_study(
            each("m", fixed=ending(*[99.0] * 10), tpe=near(90, 10)), truths=proved("m"), deterministic=["fixed"]
        ),
        "fixed leads in default.m: mean rank 1, mean regret 1 % (no spread over seeds); next comes tpe with rank 2 and "
        "9.5 %. tpe loses 8.4 % to 8.7 % of the best value more (95 % bootstrap interval over seeds).",
        "Over seeds fixed is better than tpe (sign test, Holm: p = 0.002; it wins 100 % of pairs of searches, a large "
        "effect).",
        "fixed makes the same search whatever the seed in default.m: its 10 seeds are one observation, a constant that "
        "others are tested against.",
    ),
    "blocks": (
        build_study(each("abcdefgh", x=near(98, 3), y=near(90, 3), z=near(80, 3)), truths=proved("abcdefgh")),
        "Regret in 8 conditions is against the enumerated optimum.",
        "Over conditions as blocks x is better than y and z (Wilcoxon, Holm: p <= 0.023).",
        "In 8 conditions the searches are too few for a claim over seeds: the smallest p-value they can give is 0.3 "
        "after Holm's correction, not below 0.05.",
    ),
    "few blocks": (
        build_study(
            {
                "p": {"x": near(98, 3), "y": near(90, 3)},
                "q": {"x": near(98, 3), "y": near(99, 3)},
                "r": {"x": near(98, 3)},
            },
            truths=proved("pqr"),
        ),
        "In default.q y comes first with a median regret of 0.49 % against 1.1 % of x (no claim over seeds).",
        "y comes within 1 % after 2 evaluations and 2 s in the median; a whole search costs 2 distinct evaluations, no "
        "probes and 2 s in the mean.",
        "Fewer than half of the searches of x do as well as half of those of y end in 1 condition of 2: no ratio at "
        "equal quality.",
        "1 of 3 conditions lack a contender and are left out. With 2 conditions Wilcoxon's test cannot go below p = "
        "0.5: too few for a claim at 95 % confidence.",
    ),
    "worse in mean": (
        build_study(
            each("mno", often=near(99, 5), steady=near(98, 5)) | {"p": {"often": near(10, 5), "steady": near(98, 5)}},
            truths=dict.fromkeys("mnop", 101.0),
        ),
        "often leads over 4 conditions: mean rank 1.25, mean regret 23 % (95 % interval 23 % to 23 %); next comes "
        "steady with rank 1.75 and 2.5 %. steady loses 21 % to 21 % of the best value less (95 % bootstrap interval "
        "over seeds): better in the mean, though worse by rank. By median regret often comes first alone in 3 of 4 "
        "conditions.",
        "In default.p steady comes first with a median regret of 2.7 % against 90 % of often (Mann-Whitney, Holm: p = "
        "0.0079).",
    ),
    "tied": (
        build_study(each("mn", a=ending(5.0, 5.0), b=ending(5.0, 5.0))),
        "All contenders tie: each ends with a regret of 0 % everywhere.",
        "Regret in default.m and default.n is against the best design that any search of the study found; a better one "
        "may exist, and then every regret is larger.",
        "All contenders tie in 2 of 2 conditions. With 2 conditions Wilcoxon's test cannot go below p = 0.5: too few "
        "for a claim at 95 % confidence.",
        "All searches end with the same value in default.m and default.n: it says nothing on final quality, only on "
        "cost.",
    ),
    "infeasible": (
        build_study({"m": {"a": [[None]], "b": [[None]]}, "n": {"a": [[1.0], [None]], "b": [[1.0], [2.0]]}}),
        "b leads over 2 conditions: mean rank 1.25, mean regret 62 % (95 % interval 50 % to 75 %); next comes a with "
        "rank 1.75 and 88 %. What a loses of the best value may be 0 % less or 50 % more (95 % bootstrap interval over "
        "seeds), so there may be no difference. By median regret b comes first alone in 1 of 2 conditions and shares "
        "the first place in 1.",
        "b comes within 1 % in 25 % of its searches only; a whole search costs 1 distinct evaluations, no probes and 1 "
        "s in the mean.",
        "No search found a feasible design in default.m: all regrets there are 100 %.",
        "In default.n 1 search of a found nothing feasible.",
    ),
    "alone": (
        build_study(each("m", a=ending(1.0, 2.0, 3.0))),
        "a is the only contender and no optimum is proved, so its searches are held against the best of them: mean "
        "regret 33 % (95 % interval 0 % to 67 %), median 33 %, over 3 searches.",
    ),
    "alone once": (
        build_study(each("m", a=ending(3.0))),
        "a is the only contender, one search a condition, and no optimum is proved: nothing tells how good its designs "
        "are.",
    ),
    "alone proved": (
        build_study(each("m", a=ending(3.0)), truths={"m": 4.0}),
        "a is the only contender: mean regret 25 % (one seed, no interval), median 25 %, over 1 search.",
    ),
    "beaten": (
        build_study(each("m", a=ending(110.0), b=ending(100.0)), truths=proved("m")),
        "In default.m a search found 110, more than the enumerated optimum of 100: that optimum is wrong, or within its"
        " tolerance; regret is against the better.",
    ),
    "certified": (
        certified(build_study(each("m", a=ending(90.0), b=ending(80.0)), truths=proved("m")), 0.02),
        "Regret in default.m is against the certified optimum, which no design exceeds by more than 2 %.",
    ),
    "front": (
        build_study({"m": {"a": [[(3.0, 30.0, 30.0)]], "b": [[(2.0, 20.0, 20.0)]]}}, goal=Goal.PARETO),
        "Regret in default.m is the hypervolume missing to the front of all searches together, in the box between the "
        "worst and best values found.",
    ),
    "seconds": (
        build_study(each("m", a=ending(9.0, 9.1), b=ending(7.0, 1.0)), budget=Budget(seconds=30.0)),
        "For use, not a claim: a leads in default.m: mean rank 1, mean regret 0.55 % (95 % interval 0 % to 1.1 %); next"
        " comes b with rank 2 and 56 %. b loses 22 % to 89 % of the best value more (95 % bootstrap interval over "
        "seeds).",
        "The budget is in seconds (30 s a search): results depend on the machine and its load, so they are for use, not"
        " a claim.",
        "For use, not a claim: Over seeds no test tells a from b.",
        "For use, not a claim: a comes within 1 % after 2 evaluations and 2 s in the median; a whole search costs 2 "
        "distinct evaluations, no probes and 2 s in the mean.",
        "For use, not a claim: b never comes within 1 %; a whole search costs 2 distinct evaluations, no probes and 2 s"
        " in the mean.",
        "For use, not a claim: To do as well as half of b ends (regret 23 %) a takes 2 evaluations against 2: as many "
        "evaluations (95 % interval of the ratio over seeds 1 to 1; probes are not in this count).",
    ),
    "failed": (
        failed(build_study(each("m", a=ending(1.0, 2.0, 3.0), b=near(1.0, 3)))),
        "a is not ranked, as 2 of its 3 searches failed by a fault in its own code: seed 0 in default.m by ValueError: "
        "boom, and others.",
    ),
    "nothing": (
        replace(build_study(each("m", a=ending(1.0))), cells=()),
        "None of the 1 searches is finished: nothing is found yet.",
    ),
    "pruned": (
        pruned(build_study(each("m", a=ending(96.0, 90.0, 90.0)), truths=proved("m"))),
        "a is the only contender: mean regret 8 % (95 % interval 4 % to 10 %), median 10 %, over 3 searches.",
        "a never comes within 1 %; a whole search costs 2 distinct evaluations, no probes, 4 points pruned and 2 s in "
        "the mean.",
    ),
    "prices": (
        priced((10.0, 8.0), (5.0, 10.0), num_candidates=40),
        "In setting default (throughput) the 2 models have 2 best chips, all different. Of one chip for all, chosen by "
        "arithmetic mean, geometric mean and worst case it costs 10 % on average and 20 % at worst (a). Chosen by "
        "arithmetic mean, 2 chips keep every model within 1 % of its own best. This is exact over the 40 chips that "
        "searches found feasible: bounds leave 2 that can matter, and these are evaluated on every model.",
    ),
    "short": (
        priced((9.0, 8.97), (5.0, 10.0), truths={"a": 10.0, "b": 10.0}),
        "x is the only contender: mean regret 50 % (one seed, no interval), median 50 %, over 2 searches.",
        "In setting default (throughput) the 2 models have 2 best chips, all different. Of one chip for all, chosen by "
        "arithmetic mean, geometric mean and worst case it costs 0.17 % on average and 0.33 % at worst (a). Chosen by "
        "arithmetic mean, one chip keeps every model within 1 %. This is exact over the 2 chips that searches found, "
        "each evaluated on every model. Schedules are proved to 1 % only, and prices below that may come from them.",
        "In setting default own bests fall short of proved optima by up to 10 % (all 2 models).",
    ),
    "met": (
        priced((10.0, 8.0), (9.0, 7.0), truths={"a": 10.0}),
        "In setting default (throughput) the 2 models have 1 best chip: generality costs nothing among these. This is "
        "exact over the 2 chips that searches found, each evaluated on every model.",
        "In setting default the own best of 1 of the models is the proved optimum.",
    ),
    "one price": (
        priced((10.0, 8.0), (0.0, 0.0)),
        "In setting default (throughput) there is one model, a: a common design is its own.",
        "In setting default no chip found can train b: left out.",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_sentences(case: tuple[StudyResult, *tuple[str, ...]]) -> None:
    result, *sentences = case
    found = describe_findings(result, summarise(result))
    assert [sentence for sentence in found if sentence in sentences] == sentences, found


def test_without_friedman_no_pair_is_claimed() -> None:
    ranking = summarise(CASES["blocks"][0]).ranking
    assert describe_ranking_limits(ranking, 0.95) == ""
    unsure = replace(ranking, friedman_p=0.135, num_settings=2)
    assert describe_ranking_limits(unsure, 0.95) == (
        "Friedman's test finds no difference (p = 0.14), so no pair is claimed. Conditions that share a workload are "
        "not independent: p-values over conditions are optimistic."
    )


def test_effects_have_the_usual_words() -> None:
    words = ["negligible", "small", "small", "medium", "large", "large"]
    assert [effect_word(effect) for effect in (0.5, 0.42, 0.6, 0.33, 0.8, 0.0)] == words


def test_a_comparison_in_sentences() -> None:
    first = build_study({"bert": {"tpe": [[1.0], [3.0]], "old": [[1.0]]}}, directory="a")
    second = build_study({"bert": {"tpe": [[3.0]], "new": [[1.0]]}}, directory="b", num_missing=2)
    changed = Contender("tpe", "tpe", {"startup_trials": 4})
    second = replace(second, config=replace(second.config, contenders=(changed, second.config.contenders[1])))
    told = comparison_to_json(compare_studies(first, second))
    note = "strategy random against tpe; options none against {'startup_trials': 4}"
    assert list(told) == ["first", "second", "rows", "unmatched", "findings"]
    assert (told["first"], told["rows"][0]["note"]) == ("made-up-a", note)
    assert told["findings"] == [
        "tpe: mean regret 33 % in the first study and 0 % in the second over 1 shared problem (better in 1, worse in "
        "0, none of them beyond chance), with 1 and 1 distinct evaluations a search.",
        f"tpe was not run alike: {note}.",
    ]
    assert told["unmatched"] == [
        "Only made-up-a has the contender old.",
        "Only made-up-b has the contender new.",
        "made-up-b is not finished: 2 of 4 searches are.",
    ]
    other = comparison_to_json(compare_studies(first, build_study({"bert": {"x": [[1.0]]}}, devices=16)))
    assert other["findings"] == [
        "The studies share no problem (scenario, constants, space and goal): nothing to compare."
    ]
    assert other["unmatched"][-1] == "default.bert: the name is in both studies, but the problems differ."
    again = comparison_to_json(compare_studies(first, first))
    assert "over 1 shared problem (no difference), with" in again["findings"][0]
