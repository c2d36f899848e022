"""Sentences on what a study's figures stand on, and what cannot be claimed from them."""

from collections.abc import Sequence

from phaze_opt.report.study.wording import figure, named, percent
from phaze_opt.report.text import counted
from phaze_opt.study.result import ROUNDING, StudyResult, TruthKind
from phaze_opt.study.scores import Ranking, Standing, StudySummary

SEEDS_FOR_INTERVALS = 20
"""From this many seeds on bootstrap intervals hold what they promise, nearly."""


def unfinished_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """How much of a study that has not ended is there, and which searches failed."""
    sentences = [describe_failure(result, name) for name in result.unranked]
    if not result.has_ended:
        sentences.append(f"{len(summary.cells)} of {result.num_cells} searches are finished; what follows is of these.")
    return sentences


def describe_failure(result: StudyResult, name: str) -> str:
    """What failed of a contender, and that it is not ranked."""
    failed = [failure for failure in result.failures if failure.cell.contender.name == name]
    planned = result.num_cells // len(result.config.contenders)
    first = failed[0]
    return (
        f"{name} is not ranked, as {len(failed)} of its {counted(planned, 'search', 'searches')} failed by a fault in "
        f"its own code: seed {first.cell.seed} in {first.cell.condition.key} by {first.error}"
        f"{'' if len(failed) == 1 else ', and others'}."
    )


def standing_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """What the budget was in, and what regret is against."""
    sentences = []
    if result.config.budget.seconds is not None:
        sentences.append(
            f"The budget is in seconds ({figure(result.config.budget.seconds)} s a search): results depend on the "
            "machine and its load, so they are for use, not a claim."
        )
    for kind in (TruthKind.CERTIFIED, TruthKind.ENUMERATED, TruthKind.BEST_KNOWN):
        known = {key: truth for key, truth in summary.truths.items() if truth.kind is kind and not truth.front}
        if not known:
            continue
        gap = max(truth.gap for truth in known.values())
        within = f", which no design exceeds by more than {100.0 * gap:.2g} %" if gap > ROUNDING else ""
        against = f"the {kind.value} optimum{within}."
        if not kind.is_proved:
            against = (
                "the best design that any search of the study found; a better one may exist, and then every regret is "
                "larger."
            )
        sentences.append(f"Regret in {named(list(known))} is against {against}")
    fronts = [one.condition for one in summary.standings if one.has_front]
    if fronts:
        proved = [key for key in fronts if key in summary.truths]
        certified = f" and, in {named(proved)}, of the certified one" if proved else ""
        sentences.append(
            f"Regret in {named(fronts)} is the hypervolume missing to the front of all searches together{certified}, "
            "in the box between the worst and best values found."
            + (" Means over all conditions mix it with regret in a single objective." if summary.truths else "")
        )
    return sentences


def limit_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """What is tied, identical, infeasible or too few for a claim."""
    standings, level = summary.standings, 1.0 - result.config.judgement.confidence
    sentences = [*_faults(standings), *_infeasible(standings), *_deterministic(standings)]
    if len(summary.contenders) > 1:
        sentences += _too_few_seeds(standings, level=level)
        ranking = describe_ranking_limits(summary.ranking, result.config.judgement.confidence)
        sentences += [ranking] if len(standings) > 1 and ranking else []
        tied = [one.condition for one in standings if one.is_tied]
        if tied:
            sentences.append(
                f"All searches end with the same value in {named(tied)}: it says nothing on final quality, only on "
                "cost."
            )
    if all(score.num_cells == 1 for score in summary.by_condition):
        sentences.append("Every search was run with one seed: how results vary over seeds is unknown.")
    return [*sentences, *_narrow_intervals(standings)]


def _faults(standings: Sequence[Standing]) -> list[str]:
    return [
        f"In {one.condition} a search found {one.truth.value:.6g}, more than the {one.beaten_truth.kind.value} optimum "
        f"of {one.beaten_truth.value:.6g}: that optimum is wrong, or within its tolerance; regret is against the "
        "better."
        for one in standings
        if one.beaten_truth is not None and one.truth is not None
    ]


def _infeasible(standings: Sequence[Standing]) -> list[str]:
    nothing = [one.condition for one in standings if one.truth is None and not one.has_front]
    sentences = (
        [f"No search found a feasible design in {named(nothing)}: all regrets there are 100 %."] if nothing else []
    )
    return sentences + [
        f"In {one.condition} {counted(count, 'search', 'searches')} of {name} found nothing feasible."
        for one in standings
        for name, count in one.infeasible.items()
    ]


def _deterministic(standings: Sequence[Standing]) -> list[str]:
    """Contenders whose seeds gave the same search."""
    where: dict[str, list[Standing]] = {}
    for one in standings:
        for name in one.deterministic:
            where.setdefault(name, []).append(one)
    return [
        f"{name} makes the same search whatever the seed in {named([one.condition for one in ones])}: its "
        f"{counted(ones[0].deterministic[name], 'seed')} are one observation, a constant that others are tested "
        "against."
        for name, ones in where.items()
    ]


def _too_few_seeds(standings: Sequence[Standing], *, level: float) -> list[str]:
    """Conditions whose sample sizes admit no claim over seeds."""
    groups: dict[float, list[str]] = {}
    for one in standings:
        if one.num_contenders > 1 and one.smallest_p >= level:
            groups.setdefault(one.smallest_p, []).append(one.condition)
    return [
        f"In {named(keys)} the searches are too few for a claim over seeds: the smallest p-value they can give is "
        f"{least:.2g} after Holm's correction, not below {level:.2g}."
        for least, keys in groups.items()
    ]


def _narrow_intervals(standings: Sequence[Standing]) -> list[str]:
    """A warning that intervals over few seeds promise too much.

    Shares are of 400 normal and 400 exponential samples with a known mean, intervals as `mean_interval` makes
    them: 72 and 66 % at 3 seeds, 87 and 83 % at 5, 92 and 85 % at 10, 92 and 93 % at 20.
    """
    least = min((one.num_observations for one in standings if one.num_observations), default=SEEDS_FOR_INTERVALS)
    if least >= SEEDS_FOR_INTERVALS:
        return []
    return [
        f"Bootstrap intervals over {counted(least, 'seed')} are too narrow: in simulations those named 95 % held "
        "the mean in 66 to 72 % of cases at 3 seeds, 83 to 87 % at 5 and 85 to 92 % at 10."
    ]


def describe_ranking_limits(ranking: Ranking, confidence: float) -> str:
    """What hinders claims over conditions; empty if nothing does."""
    if not ranking.contenders:
        return "no search is finished"
    if len(ranking.contenders) == 1:
        return "one contender: nothing to rank"
    if not ranking.num_blocks:
        return "no condition has every contender finished"
    if ranking.num_conditions == 1:
        return "There is one condition: ranks are of its medians, and tests over its seeds tell what can be claimed."
    level, num_blocks, num_left_out = 1.0 - confidence, ranking.num_blocks, ranking.num_conditions - ranking.num_blocks
    notes = []
    if num_left_out:
        notes.append(f"{num_left_out} of {ranking.num_conditions} conditions lack a contender and are left out.")
    if ranking.num_tied:
        notes.append(f"All contenders tie in {ranking.num_tied} of {num_blocks} conditions.")
    corrected = ranking.smallest_p * ranking.num_pairs
    if corrected >= level:
        correction = f", {min(1.0, corrected):.2g} after Holm's correction over {ranking.num_pairs} pairs"
        notes.append(
            f"With {counted(num_blocks, 'condition')} Wilcoxon's test cannot go below p = {ranking.smallest_p:.2g}"
            f"{correction if ranking.num_pairs > 1 else ''}: too few for a claim at {percent(1.0 - level)} confidence."
        )
    elif ranking.is_tested and ranking.friedman_p >= level:
        notes.append(f"Friedman's test finds no difference (p = {ranking.friedman_p:.2g}), so no pair is claimed.")
    if 1 < ranking.num_settings < num_blocks:
        notes.append("Conditions that share a workload are not independent: p-values over conditions are optimistic.")
    return " ".join(notes)
