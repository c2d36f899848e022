"""Two studies side by side: what both have of the same problem and contender, and what they do not share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.study.config import Contender
from phaze_opt.study.judging.findings.wording import counted, figure, listed, percent
from phaze_opt.study.judging.judged_condition import Sample, budget_of, judge_sample
from phaze_opt.study.judging.scoring import Yardstick, by_condition_and_contender, yardstick_of
from phaze_opt.study.judging.significance import NO_TEST, seed_test
from phaze_opt.study.judging.statistics.effects import vargha_delaney
from phaze_opt.study.judging.statistics.rank_tests import holm_adjust
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import CellResult, StudyResult, Truth, TruthKind

Grouped = Mapping[str, Mapping[str, tuple[CellResult, ...]]]
"""Searches by key of the condition and name of the contender."""
_PACKAGE = "phaze-opt"
"""Key of its version in the provenance of a study."""


@dataclass(frozen=True, slots=True)
class Side:
    """The searches of one study in a row of a comparison.

    Attributes:
        condition: key of the condition in that study.
        num_searches: finished ones.
        median_regret, mean_regret: against the truth of the row.
        mean_evaluations: distinct ones of a search.
        mean_probes: of a search.
        mean_charged_s: of a search, s.
    """

    condition: str
    num_searches: int
    median_regret: float
    mean_regret: float
    mean_evaluations: float
    mean_probes: float
    mean_charged_s: float


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One contender on one problem, in both studies.

    Attributes:
        contender: its name in both.
        first, second: its searches in either study.
        truth: what regret is against: the better of what both studies know; None for several objectives, or if nothing
            feasible is known.
        difference: mean regret in the second study less that in the first; negative if the second is better.
        test: Mann-Whitney over seeds, or the sign test if one study has a deterministic search.
        p_value: after Holm's correction over all rows.
        effect: Vargha-Delaney A of the second over the first, 1 if always better.
        is_significant: at the confidence of the first study.
        note: how the contender, the budget or the starts differ between the studies; empty if they do not.
    """

    contender: str
    first: Side
    second: Side
    truth: Truth | None
    difference: float
    test: str
    p_value: float
    effect: float
    is_significant: bool
    note: str


@dataclass(frozen=True, slots=True)
class StudyComparison:
    """Two studies compared.

    Attributes:
        first, second: their ids.
        rows: by problem and contender, in the order of the first study.
        unmatched: what only one of them has, in sentences.
        findings: what the rows say, in sentences.
    """

    first: str
    second: str
    rows: tuple[ComparisonRow, ...]
    unmatched: tuple[str, ...]
    findings: tuple[str, ...]


def compare_studies(first: StudyResult, second: StudyResult) -> StudyComparison:
    """Compare what two studies have in common.

    Conditions are matched by `Condition.problem_digest`, never by name: equal names may stand for other problems, and
    equal problems may have other names. Contenders are matched by name, and a row says how they differ.

    Args:
        first: such as the study before a change.
        second: such as the study after it.
    """
    pairs = _matched_conditions(first, second)
    studies = (first, second)
    grouped = (by_condition_and_contender(first.ranked_cells), by_condition_and_contender(second.ranked_cells))
    drafts = [draft for pair in pairs for draft in _draft_rows(pair, grouped, studies)]
    level = 1.0 - first.config.judgement.confidence
    corrected = iter(holm_adjust([draft.p_value for draft in drafts if draft.test != NO_TEST]))
    p_values = [1.0 if draft.test == NO_TEST else next(corrected) for draft in drafts]
    rows = tuple(replace(one, p_value=p, is_significant=p < level) for one, p in zip(drafts, p_values, strict=True))
    return StudyComparison(
        first=first.study_id,
        second=second.study_id,
        rows=rows,
        unmatched=_unmatched(first, second, pairs),
        findings=_findings(rows, pairs),
    )


def _matched_conditions(first: StudyResult, second: StudyResult) -> tuple[tuple[Condition, Condition], ...]:
    """Conditions of the same problem; of several in one study the first."""
    others: dict[str, Condition] = {}
    for condition in second.conditions:
        others.setdefault(condition.problem_digest, condition)
    matched: dict[str, tuple[Condition, Condition]] = {}
    for condition in first.conditions:
        digest = condition.problem_digest
        if digest in others:
            matched.setdefault(digest, (condition, others[digest]))
    return tuple(matched.values())


def _draft_rows(
    pair: tuple[Condition, Condition],
    grouped: tuple[Grouped, Grouped],
    studies: tuple[StudyResult, StudyResult],
) -> list[ComparisonRow]:
    """Rows of one problem before the correction of their p-values.

    Args:
        pair: the problem in either study.
        grouped: searches of either study, by condition and contender.
        studies: both.
    """
    mine, yours = (groups.get(condition.key, {}) for groups, condition in zip(grouped, pair, strict=True))
    cells = [cell for group in (*mine.values(), *yours.values()) for cell in group]
    truths = [study.truths.get(condition.key) for study, condition in zip(studies, pair, strict=True)]
    yardstick = yardstick_of(pair[0].goal, cells, _better_truth(truths))
    names = [contender.name for contender in studies[0].config.contenders]
    return [
        _draft_row(name, pair, studies, (mine[name], yours[name]), yardstick)
        for name in names
        if name in mine and name in yours
    ]


def _draft_row(
    name: str,
    pair: tuple[Condition, Condition],
    studies: tuple[StudyResult, StudyResult],
    searches: tuple[Sequence[CellResult], Sequence[CellResult]],
    yardstick: Yardstick,
) -> ComparisonRow:
    first, second = (_judge(study, cells, yardstick) for study, cells in zip(studies, searches, strict=True))
    test, p_value = seed_test(first, second)
    sides = (_side(pair[0].key, first), _side(pair[1].key, second))
    return ComparisonRow(
        contender=name,
        first=sides[0],
        second=sides[1],
        truth=yardstick.truth,
        difference=sides[1].mean_regret - sides[0].mean_regret,
        test=test,
        p_value=p_value,
        effect=vargha_delaney(second.regrets, first.regrets),
        is_significant=False,
        note=_differences(studies[0], studies[1], name),
    )


def _judge(result: StudyResult, cells: Sequence[CellResult], yardstick: Yardstick) -> Sample:
    return judge_sample(cells, yardstick, budget=budget_of(result, cells), targets=result.config.judgement.targets)


def _better_truth(truths: Sequence[Truth | None]) -> Truth | None:
    """The highest truth that is proved; best known ones count by the searches that found them."""
    proved = [truth for truth in truths if truth is not None and truth.kind is not TruthKind.BEST_KNOWN]
    return max(proved, key=lambda truth: truth.value, default=None)


def _side(condition: str, sample: Sample) -> Side:
    scores = sample.scores
    return Side(
        condition=condition,
        num_searches=len(scores),
        median_regret=sample.median_regret,
        mean_regret=float(np.mean([score.regret for score in scores])),
        mean_evaluations=float(np.mean([score.distinct_evaluations for score in scores])),
        mean_probes=float(np.mean([score.probes for score in scores])),
        mean_charged_s=float(np.mean([score.charged_s for score in scores])),
    )


def _differences(first: StudyResult, second: StudyResult, name: str) -> str:
    """How a contender's circumstances differ between studies."""
    mine, yours = (_contender(result, name) for result in (first, second))
    parts = [
        f"{label} {_shown(a)} against {_shown(b)}"
        for label, a, b in (
            ("strategy", mine.strategy, yours.strategy),
            ("options", dict(mine.options), dict(yours.options)),
            ("pruner", mine.pruner, yours.pruner),
            ("pruner options", dict(mine.pruner_options), dict(yours.pruner_options)),
            ("budget of evaluations", first.config.budget.evaluations, second.config.budget.evaluations),
            ("budget of seconds", first.config.budget.seconds, second.config.budget.seconds),
            ("batch", first.config.batch, second.config.batch),
            ("starts", first.config.num_starts, second.config.num_starts),
            ("package version", first.provenance.get(_PACKAGE), second.provenance.get(_PACKAGE)),
        )
        if a != b
    ]
    return "; ".join(parts)


def _shown(value: object) -> str:
    return "none" if value in ("", None, {}) else str(value)


def _contender(result: StudyResult, name: str) -> Contender:
    return next(contender for contender in result.config.contenders if contender.name == name)


def _unmatched(
    first: StudyResult, second: StudyResult, pairs: Sequence[tuple[Condition, Condition]]
) -> tuple[str, ...]:
    """What only one study has, what is unfinished, and what only shares a name."""
    digests = {one.problem_digest for one, _ in pairs}
    sentences = [*_only_in(first, second, digests), *_only_in(second, first, digests)]
    others = {condition.key: condition.problem_digest for condition in second.conditions}
    namesakes = [
        condition.key
        for condition in first.conditions
        if others.get(condition.key, condition.problem_digest) != condition.problem_digest
    ]
    if namesakes:
        sentences.append(f"{listed(namesakes)}: the name is in both studies, but the problems differ.")
    return tuple(sentences)


def _only_in(result: StudyResult, other: StudyResult, digests: Set[str]) -> list[str]:
    """What one study has and the other lacks."""
    sentences = []
    conditions = [one.key for one in result.conditions if one.problem_digest not in digests]
    theirs = {contender.name for contender in other.config.contenders}
    contenders = [one.name for one in result.config.contenders if one.name not in theirs]
    for noun, names in (("problem", conditions), ("contender", contenders)):
        if names:
            sentences.append(f"Only {result.study_id} has the {noun}{'s' * (len(names) > 1)} {listed(names)}.")
    if result.unranked:
        sentences.append(f"{result.study_id} ranks no {listed(list(result.unranked))}: searches of it failed.")
    if not result.has_ended:
        sentences.append(f"{result.study_id} is not finished: {len(result.cells)} of {result.num_cells} searches are.")
    return sentences


def _findings(rows: Sequence[ComparisonRow], pairs: Sequence[tuple[Condition, Condition]]) -> tuple[str, ...]:
    """What the rows say, contender by contender."""
    if not pairs:
        return ("The studies share no problem (scenario, constants, space and goal): nothing to compare.",)
    if not rows:
        return ("No contender has finished searches of a shared problem in both studies: nothing to compare.",)
    sentences = []
    for name in dict.fromkeys(row.contender for row in rows):
        mine = [row for row in rows if row.contender == name]
        better = sum(row.difference < 0.0 for row in mine)
        worse = sum(row.difference > 0.0 for row in mine)
        claimed = sum(row.is_significant for row in mine)
        mean = [float(np.mean([getattr(row, side).mean_regret for row in mine])) for side in ("first", "second")]
        cost = [float(np.mean([getattr(row, side).mean_evaluations for row in mine])) for side in ("first", "second")]
        claims = f"{claimed} of them beyond chance (Holm)" if claimed else "none of them beyond chance"
        change = "no difference" if not better + worse else f"better in {better}, worse in {worse}, {claims}"
        sentences.append(
            f"{name}: mean regret {percent(mean[0])} in the first study and {percent(mean[1])} in the second over "
            f"{counted(len(mine), 'shared problem')} ({change}), with {figure(cost[0])} and {figure(cost[1])} distinct "
            "evaluations a search."
        )
        sentences += [f"{name} was not run alike: {note}." for note in dict.fromkeys(row.note for row in mine) if note]
    return tuple(sentences)
