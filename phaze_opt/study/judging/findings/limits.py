"""Sentences on what a study's figures stand on, and what cannot be claimed from them."""

from __future__ import annotations

from collections.abc import Sequence

from phaze_opt.study.judging.findings.wording import counted, figure, listed
from phaze_opt.study.judging.judged_condition import JudgedCondition
from phaze_opt.study.judging.significance import smallest_seed_p
from phaze_opt.study.result import ROUNDING, StudyResult, TruthKind
from phaze_opt.study.scores import StudySummary

MAX_LISTED = 4
"""Conditions named before only their number is given."""
SEEDS_FOR_INTERVALS = 20
"""From this many seeds on bootstrap intervals hold what they promise, nearly."""


def unfinished_findings(summary: StudySummary, result: StudyResult) -> tuple[str, ...]:
    """How much of a study that has not ended is there, and which searches failed."""
    sentences = [failure_finding(result, name) for name in result.unranked]
    if not result.has_ended:
        sentences.append(f"{len(summary.cells)} of {result.num_cells} searches are finished; what follows is of these.")
    return tuple(sentences)


def failure_finding(result: StudyResult, name: str) -> str:
    """What failed of a contender, and that it is not ranked."""
    failed = [failure for failure in result.failures if failure.cell.contender.name == name]
    planned = result.num_cells // len(result.config.contenders)
    first = failed[0]
    return (
        f"{name} is not ranked, as {len(failed)} of its {counted(planned, 'search', 'searches')} failed by a fault in "
        f"its own code: seed {first.cell.seed} in {first.cell.condition.key} by {first.error}"
        f"{'' if len(failed) == 1 else ', and others'}."
    )


def standing_findings(summary: StudySummary, judged: Sequence[JudgedCondition], result: StudyResult) -> tuple[str, ...]:
    """What the budget was in, and what regret is against."""
    sentences = []
    if result.config.budget.seconds is not None:
        sentences.append(
            f"The budget is in seconds ({figure(result.config.budget.seconds)} s a search): results depend on the "
            "machine and its load, so they are for use, not a claim."
        )
    by_kind: dict[TruthKind, list[str]] = {}
    for key, truth in summary.truths.items():
        by_kind.setdefault(truth.kind, []).append(key)
    for kind in (TruthKind.CERTIFIED, TruthKind.ENUMERATED):
        if kind in by_kind:
            gap = max(summary.truths[key].gap for key in by_kind[kind])
            within = f", which no design exceeds by more than {100.0 * gap:.2g} %" if gap > ROUNDING else ""
            sentences.append(f"Regret in {_named(by_kind[kind])} is against the {kind.value} optimum{within}.")
    if TruthKind.BEST_KNOWN in by_kind:
        sentences.append(
            f"Regret in {_named(by_kind[TruthKind.BEST_KNOWN])} is against the best design that any search of the "
            "study found; a better one may exist, and then every regret is larger."
        )
    fronts = [one.key for one in judged if one.yardstick.box is not None]
    if fronts:
        sentences.append(
            f"Regret in {_named(fronts)} is the hypervolume missing to the front of all searches together, in the box "
            "between the worst and best values found."
            + (" Means over all conditions mix it with regret in a single objective." if summary.truths else "")
        )
    return tuple(sentences)


def limit_findings(summary: StudySummary, judged: Sequence[JudgedCondition], result: StudyResult) -> tuple[str, ...]:
    """What is tied, identical, infeasible or too few for a claim."""
    sentences = [*_faults(judged), *_infeasible(judged), *_deterministic(judged)]
    if len(summary.contenders) > 1:
        sentences += _too_few_seeds(judged, level=1.0 - result.config.judgement.confidence)
        if len(judged) > 1 and summary.ranking.note:
            sentences.append(summary.ranking.note)
        sentences += _ties(judged)
    if all(len(sample.scores) == 1 for one in judged for sample in one.samples.values()):
        sentences.append("Every search was run with one seed: how results vary over seeds is unknown.")
    sentences += _narrow_intervals(judged)
    return tuple(sentences)


def _faults(judged: Sequence[JudgedCondition]) -> list[str]:
    sentences = []
    for one in judged:
        beaten, truth = one.yardstick.beaten_truth, one.yardstick.truth
        if beaten is not None and truth is not None:
            sentences.append(
                f"In {one.key} a search found {truth.value:.6g}, more than the {beaten.kind.value} optimum of "
                f"{beaten.value:.6g}: that optimum is wrong, or within its tolerance; regret is against the better."
            )
    return sentences


def _infeasible(judged: Sequence[JudgedCondition]) -> list[str]:
    nothing = [one.key for one in judged if one.yardstick.truth is None and one.yardstick.box is None]
    sentences = (
        [f"No search found a feasible design in {_named(nothing)}: all regrets there are 100 %."] if nothing else []
    )
    for one in judged:
        if one.key in nothing:
            continue
        failed = {
            name: sum(bool((score.curve == 1.0).all()) for score in sample.scores)
            for name, sample in one.samples.items()
            if one.yardstick.truth is not None
        }
        for name, count in failed.items():
            if count:
                sentences.append(
                    f"In {one.key} {counted(count, 'search', 'searches')} of {name} found nothing feasible."
                )
    return sentences


def _deterministic(judged: Sequence[JudgedCondition]) -> list[str]:
    """Contenders whose seeds gave the same search."""
    where: dict[str, list[JudgedCondition]] = {}
    for one in judged:
        for name, sample in one.samples.items():
            if sample.is_deterministic:
                where.setdefault(name, []).append(one)
    return [
        f"{name} makes the same search whatever the seed in {_named([one.key for one in ones])}: its "
        f"{counted(len(ones[0].samples[name].scores), 'seed')} are one observation, a constant that others are tested "
        "against."
        for name, ones in where.items()
    ]


def _too_few_seeds(judged: Sequence[JudgedCondition], *, level: float) -> list[str]:
    """Conditions whose sample sizes admit no claim over seeds."""
    groups: dict[float, list[str]] = {}
    for one in judged:
        least = smallest_seed_p(one)
        if len(one.samples) > 1 and least >= level:
            groups.setdefault(least, []).append(one.key)
    return [
        f"In {_named(keys)} the searches are too few for a claim over seeds: the smallest p-value they can give is "
        f"{least:.2g} after Holm's correction, not below {level:.2g}."
        for least, keys in groups.items()
    ]


def _narrow_intervals(judged: Sequence[JudgedCondition]) -> list[str]:
    """A warning that intervals over few seeds promise too much.

    Shares are of 400 normal and 400 exponential samples with a known mean, intervals as `bootstrap.mean_interval` makes
    them: 72 and 66 % at 3 seeds, 87 and 83 % at 5, 92 and 85 % at 10, 92 and 93 % at 20.
    """
    sizes = [len(sample.regrets) for one in judged for sample in one.samples.values() if len(set(sample.regrets)) > 1]
    if not sizes or min(sizes) >= SEEDS_FOR_INTERVALS:
        return []
    return [
        f"Bootstrap intervals over {counted(min(sizes), 'seed')} are too narrow: in simulations those named 95 % held "
        "the mean in 66 to 72 % of cases at 3 seeds, 83 to 87 % at 5 and 85 to 92 % at 10."
    ]


def _ties(judged: Sequence[JudgedCondition]) -> list[str]:
    """Conditions in which every search of every contender ends alike."""
    tied = [
        one.key
        for one in judged
        if len({score.regret for sample in one.samples.values() for score in sample.scores}) == 1
        and len(one.samples) > 1
    ]
    if not tied:
        return []
    return [f"All searches end with the same value in {_named(tied)}: it says nothing on final quality, only on cost."]


def _named(keys: Sequence[str]) -> str:
    """Conditions by name, or how many."""
    return listed(list(keys)) if len(keys) <= MAX_LISTED else f"{len(keys)} conditions"
