"""Two studies side by side: what both have of the same problem and contender, and what they do not share."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from phaze_opt.study.config import Condition
from phaze_opt.study.judging.scoring import (
    Sample,
    Yardstick,
    budget_of,
    by_condition_and_contender,
    judge_sample,
    yardstick_of,
)
from phaze_opt.study.judging.significance import NO_TEST, seed_test
from phaze_opt.study.judging.statistics import holm_adjust, vargha_delaney
from phaze_opt.study.result import CellResult, StudyResult, Truth, TruthKind

Grouped = Mapping[str, Mapping[str, Sequence[CellResult]]]
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
class Difference:
    """A circumstance that was not the same in two studies, and what it was in either."""

    what: str
    first: object
    second: object


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
        differences: of the contender, the budget or the starts between the studies.
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
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One contender over all shared problems; means are over problems.

    Attributes:
        contender: its name.
        num_problems: shared ones in which both studies have searches of it.
        num_better, num_worse: of them, by mean regret in the second study.
        num_claimed: of them, significant.
        first_regret, second_regret: mean regrets in either study.
        first_evaluations, second_evaluations: distinct ones of a search.
    """

    contender: str
    num_problems: int
    num_better: int
    num_worse: int
    num_claimed: int
    first_regret: float
    second_regret: float
    first_evaluations: float
    second_evaluations: float


@dataclass(frozen=True, slots=True)
class OneStudy:
    """One of two studies, and what it has that the other lacks.

    Attributes:
        result: of the study.
        conditions: keys of those whose problem is in no condition of the other.
        contenders: names that the other has not.
    """

    result: StudyResult
    conditions: tuple[str, ...]
    contenders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StudyComparison:
    """Two studies compared.

    Attributes:
        first, second: either of them.
        num_problems: that both have.
        rows: by problem and contender, in the order of the first study.
        changes: by contender, in the same order.
        namesakes: keys of conditions that are in both, of different problems.
    """

    first: OneStudy
    second: OneStudy
    num_problems: int
    rows: tuple[ComparisonRow, ...]
    changes: tuple[Change, ...]
    namesakes: tuple[str, ...]


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
    digests = {one.problem_digest for one, _ in pairs}
    others = {condition.key: condition.problem_digest for condition in second.conditions}
    return StudyComparison(
        first=_one_study(first, second, digests),
        second=_one_study(second, first, digests),
        num_problems=len(pairs),
        rows=rows,
        changes=tuple(_change(name, rows) for name in dict.fromkeys(row.contender for row in rows)),
        namesakes=tuple(
            condition.key
            for condition in first.conditions
            if others.get(condition.key, condition.problem_digest) != condition.problem_digest
        ),
    )


def _matched_conditions(first: StudyResult, second: StudyResult) -> tuple[tuple[Condition, Condition], ...]:
    """Conditions of the same problem; of several in one study the first."""
    others = {condition.problem_digest: condition for condition in reversed(second.conditions)}
    matched: dict[str, tuple[Condition, Condition]] = {}
    for condition in first.conditions:
        if (digest := condition.problem_digest) in others:
            matched.setdefault(digest, (condition, others[digest]))
    return tuple(matched.values())


def _draft_rows(
    pair: tuple[Condition, Condition], grouped: tuple[Grouped, Grouped], studies: tuple[StudyResult, StudyResult]
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
        differences=_differences(studies[0], studies[1], name),
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


def _differences(first: StudyResult, second: StudyResult, name: str) -> tuple[Difference, ...]:
    """How a contender's circumstances differ between studies."""
    mine, yours = (_circumstances(result, name) for result in (first, second))
    return tuple(Difference(what, mine[what], yours[what]) for what in mine if mine[what] != yours[what])


def _circumstances(result: StudyResult, name: str) -> dict[str, object]:
    contender = next(contender for contender in result.config.contenders if contender.name == name)
    return {
        "strategy": contender.strategy,
        "options": dict(contender.options),
        "pruner": contender.pruner,
        "pruner options": dict(contender.pruner_options),
        "budget of evaluations": result.config.budget.evaluations,
        "budget of seconds": result.config.budget.seconds,
        "batch": result.config.batch,
        "starts": result.config.num_starts,
        "package version": result.provenance.get(_PACKAGE),
    }


def _one_study(result: StudyResult, other: StudyResult, shared: Set[str]) -> OneStudy:
    """What one study has and the other lacks; ``shared`` are digests of the problems of both."""
    theirs = {contender.name for contender in other.config.contenders}
    return OneStudy(
        result,
        conditions=tuple(one.key for one in result.conditions if one.problem_digest not in shared),
        contenders=tuple(one.name for one in result.config.contenders if one.name not in theirs),
    )


def _change(name: str, rows: Sequence[ComparisonRow]) -> Change:
    mine = [row for row in rows if row.contender == name]
    sides = ([row.first for row in mine], [row.second for row in mine])
    regrets = [float(np.mean([side.mean_regret for side in one])) for one in sides]
    evaluations = [float(np.mean([side.mean_evaluations for side in one])) for one in sides]
    return Change(
        name,
        len(mine),
        sum(row.difference < 0.0 for row in mine),
        sum(row.difference > 0.0 for row in mine),
        sum(row.is_significant for row in mine),
        *regrets,
        *evaluations,
    )
