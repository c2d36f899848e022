"""The sentences of findings."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_studies import build_study, make_point
from syrupy.assertion import SnapshotAssertion

from phaze_opt.objective.goals import Goal
from phaze_opt.report.study.findings import comparison_to_json, describe_findings
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.limits import describe_ranking_limits
from phaze_opt.report.study.wording import effect_word
from phaze_opt.study.compare import compare_studies
from phaze_opt.study.config import Budget, Contender, Generality, PublishedClaim
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
    "two of two": build_study(each("mn", a=ending(99.0, 98.0), b=ending(90.0, 97.0)), truths=proved("mn")),
    "unfinished": build_study(each("m", a=ending(99.0, 98.0), b=ending(90.0, 97.0)), truths=proved("m"), num_missing=3),
    "one seed": build_study(
        {"m": {"good": [[50.0, 99.5]], "bad": [[None, 80.0, 90.0]]}}, truths=proved("m"), probes={"good": 12}
    ),
    "maybe": build_study(
        each("m", a=ending(99.0, 97.0, 93.0, 95.0), b=ending(99.0, 96.5, 93.5, 94.5)), truths=proved("m")
    ),
    "claim": build_study(each("m", weak=near(90, 10), strong=near(98, 10)), truths=proved("m")),
    "fixed": build_study(
        each("m", fixed=ending(*[99.0] * 10), tpe=near(90, 10)), truths=proved("m"), deterministic=["fixed"]
    ),
    "blocks": build_study(each("abcdefgh", x=near(98, 3), y=near(90, 3), z=near(80, 3)), truths=proved("abcdefgh")),
    "few blocks": build_study(
        {"p": {"x": near(98, 3), "y": near(90, 3)}, "q": {"x": near(98, 3), "y": near(99, 3)}, "r": {"x": near(98, 3)}},
        truths=proved("pqr"),
    ),
    "worse in mean": build_study(
        each("mno", often=near(99, 5), steady=near(98, 5)) | {"p": {"often": near(10, 5), "steady": near(98, 5)}},
        truths=dict.fromkeys("mnop", 101.0),
    ),
    "tied": build_study(each("mn", a=ending(5.0, 5.0), b=ending(5.0, 5.0))),
    "infeasible": build_study({"m": {"a": [[None]], "b": [[None]]}, "n": {"a": [[1.0], [None]], "b": [[1.0], [2.0]]}}),
    "alone": build_study(each("m", a=ending(1.0, 2.0, 3.0))),
    "alone once": build_study(each("m", a=ending(3.0))),
    "alone proved": build_study(each("m", a=ending(3.0)), truths={"m": 4.0}),
    "beaten": build_study(each("m", a=ending(110.0), b=ending(100.0)), truths=proved("m")),
    "certified": certified(build_study(each("m", a=ending(90.0), b=ending(80.0)), truths=proved("m")), 0.02),
    "front": build_study({"m": {"a": [[(3.0, 30.0, 30.0)]], "b": [[(2.0, 20.0, 20.0)]]}}, goal=Goal.PARETO),
    "seconds": build_study(each("m", a=ending(9.0, 9.1), b=ending(7.0, 1.0)), budget=Budget(seconds=30.0)),
    "failed": failed(build_study(each("m", a=ending(1.0, 2.0, 3.0), b=near(1.0, 3)))),
    "nothing": replace(build_study(each("m", a=ending(1.0))), cells=()),
    "pruned": pruned(build_study(each("m", a=ending(96.0, 90.0, 90.0)), truths=proved("m"))),
    "prices": priced((10.0, 8.0), (5.0, 10.0), num_candidates=40),
    "short": priced((9.0, 8.97), (5.0, 10.0), truths={"a": 10.0, "b": 10.0}),
    "met": priced((10.0, 8.0), (9.0, 7.0), truths={"a": 10.0}),
    "one price": priced((10.0, 8.0), (0.0, 0.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_sentences(name: str, snapshot: SnapshotAssertion) -> None:
    assert describe_findings(CASES[name], summarise(CASES[name])) == snapshot


def test_without_friedman_no_pair_is_claimed(snapshot: SnapshotAssertion) -> None:
    ranking = summarise(CASES["blocks"]).ranking
    assert describe_ranking_limits(ranking, 0.95) == ""
    assert describe_ranking_limits(replace(ranking, friedman_p=0.135, num_settings=2), 0.95) == snapshot


def test_effects_have_the_usual_words() -> None:
    words = ["negligible", "small", "small", "medium", "large", "large"]
    assert [effect_word(effect) for effect in (0.5, 0.42, 0.6, 0.33, 0.8, 0.0)] == words


def test_a_comparison_in_sentences(snapshot: SnapshotAssertion) -> None:
    first = build_study({"bert": {"tpe": [[1.0], [3.0]], "old": [[1.0]]}}, directory="a")
    second = build_study({"bert": {"tpe": [[3.0]], "new": [[1.0]]}}, directory="b", num_missing=2)
    changed = Contender("tpe", "tpe", {"startup_trials": 4})
    second = replace(second, config=replace(second.config, contenders=(changed, second.config.contenders[1])))
    told = comparison_to_json(compare_studies(first, second))
    assert list(told) == ["first", "second", "rows", "unmatched", "findings"]
    assert told["first"] == "made-up-a"
    assert told["rows"][0]["note"] in told["findings"][1]
    other = comparison_to_json(compare_studies(first, build_study({"bert": {"x": [[1.0]]}}, devices=16)))
    again = comparison_to_json(compare_studies(first, first))
    assert [(one["findings"], one["unmatched"]) for one in (told, other, again)] == snapshot


def test_claims_end_the_findings_with_what_the_best_designs_say(make_inputs: Callable[..., ReportInputs]) -> None:
    """The geometric mean over workloads of the best of all searches."""
    one, other = (PublishedClaim("more is more", 4.81, *names, "of chance.") for names in (("a", "b"), ("a", "c")))
    result = make_inputs(goals=(Goal.THROUGHPUT, Goal.THROUGHPUT_PER_TDP)).result
    settings = tuple(setting.name for setting in result.config.settings)
    one = replace(one, setting=settings[0], over=settings[1])
    summary = summarise(replace(result, config=replace(result.config, claims=(one, other))))
    best: dict[tuple[str, str], float] = {}
    for cell in result.cells:
        key = cell.cell.condition.setting.name, cell.cell.condition.workload.name
        values = [trial.values[0] for trial in cell.trials if trial.values]
        best[key] = max(values + [best.get(key, 0.0)])
    ratios = [best[settings[0], model] / best[settings[1], model] for model in ("bert-large", "gpt2-xl")]
    here = float(np.sqrt(np.prod(ratios)))
    assert [found.here for found in summary.claims] == [pytest.approx(here, rel=1e-12), None]
    assert describe_findings(result, summary)[-2:] == (
        f"Claimed: more is more, 4.81 times. Here: {here:.3f} times (best known, mean of 2 workloads). Why: of chance.",
        "Claimed: more is more, 4.81 times. Here: no design of both settings. Why: of chance.",
    )
