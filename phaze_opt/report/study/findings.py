"""What a study found, in sentences: who wins, where, by how much, at which cost; and what two studies have in common.

Statistics come as data (`study.scores`, `study.compare`); their sentences are here, in `limits` (what cannot be
claimed) and in `prices`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from phaze_opt.report.study.limits import describe_failure, limit_findings, standing_findings, unfinished_findings
from phaze_opt.report.study.prices import price_findings
from phaze_opt.report.study.wording import counted_mean, effect_word, figure, listed, percent, percent_range, times
from phaze_opt.report.text import counted
from phaze_opt.study.compare import Change, Difference, OneStudy, StudyComparison
from phaze_opt.study.config import Judgement
from phaze_opt.study.judging.significance import NO_TEST
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, EqualQuality, Lead, PairTest, StudySummary
from phaze_opt.study.summary import MAX_COMPARED

FOR_USE = "For use, not a claim: "
MAX_LISTED_CONDITIONS = 6
"""Conditions told one by one; of more, the summary's tables tell."""
EVEN = 0.05
"""A ratio this near to 1 rounds to it."""


def describe_findings(result: StudyResult, summary: StudySummary) -> tuple[str, ...]:
    """The findings of a judged study, the most important first."""
    if not summary.cells:
        nothing = (
            "No strategy is ranked: nothing is found."
            if result.cells
            else f"None of the {result.num_cells} searches is finished: nothing is found yet."
        )
        return (*(describe_failure(result, name) for name in result.unranked), nothing)
    outcome = [*_winner_findings(summary, result), *_cost_findings(summary, result.config.judgement)]
    if result.config.budget.seconds is not None:
        outcome = [FOR_USE + sentence for sentence in outcome]
    # Who wins comes first, what its regret is against right after it; only failed and unfinished searches go before.
    return (
        *unfinished_findings(summary, result),
        outcome[0],
        *standing_findings(summary, result),
        *outcome[1:],
        *price_findings(summary, result),
        *limit_findings(summary, result),
        *claim_findings(summary),
    )


def claim_findings(summary: StudySummary) -> tuple[str, ...]:
    """What others claim, what the best designs here say of it, and why the two differ."""
    sentences = []
    for found in summary.claims:
        here = "no design of both settings"
        if found.here is not None:
            how = "proved" if found.is_proved else "best known"
            here = f"{found.here:.3f} times ({how}, mean of {counted(found.num_workloads, 'workload')})"
        claim = found.claim
        sentences.append(f"Claimed: {claim.words}, {claim.claimed:.3g} times. Here: {here}. Why: {claim.why}")
    return tuple(sentences)


def _winner_findings(summary: StudySummary, result: StudyResult) -> list[str]:
    """Who leads over all conditions and by how much, which differences are claimed, and who leads where."""
    scores = summary.contenders
    if len(scores) == 1:
        return [_alone(scores[0], summary, result.config.judgement.confidence)]
    if all(score.low_regret == score.high_regret == scores[0].mean_regret for score in scores):
        return [f"All contenders tie: each ends with a regret of {percent(scores[0].mean_regret)} everywhere."]
    lead = _lead(summary, result.config.judgement.confidence)
    if len(summary.standings) == 1:
        return [lead, *_claims_over_seeds(summary, level=1.0 - result.config.judgement.confidence)]
    claims = _claims_over_conditions(summary)
    return [f"{lead} {_firsts(summary)}", *([claims] if claims else []), *_lost(summary)]


def _alone(score: ContenderScore, summary: StudySummary, confidence: float) -> str:
    """The regret of the only contender; against its own best search that is said to be what it is."""
    num_conditions = len(summary.standings)
    has_seeds = score.num_cells > num_conditions
    spread = percent_range(score.low_regret, score.high_regret, confidence, has_seeds=has_seeds)
    regret = f"mean regret {percent(score.mean_regret)} ({spread}), median {percent(score.median_regret)}"
    searches = f"over {counted(score.num_cells, 'search', 'searches')}"
    if any(truth.kind.is_proved for truth in summary.truths.values()):
        return f"{score.contender} is the only contender: {regret}, {searches}."
    if not has_seeds:
        return (
            f"{score.contender} is the only contender, one search a condition, and no optimum is proved: nothing tells "
            "how good its designs are."
        )
    return (
        f"{score.contender} is the only contender and no optimum is proved, so its searches are held against the best "
        f"of them: {regret}, {searches}."
    )


def _lead(summary: StudySummary, confidence: float) -> str:
    """The leader against the runner-up: regrets and the interval of their difference."""
    best, rival = summary.contenders[:2]
    num_conditions = len(summary.standings)
    has_seeds = best.num_cells > num_conditions or rival.num_cells > num_conditions
    spread = percent_range(best.low_regret, best.high_regret, confidence, has_seeds=has_seeds)
    where = f" over {num_conditions} conditions" if num_conditions > 1 else f" in {summary.standings[0].condition}"
    leads = "leads" if best.mean_rank < rival.mean_rank else f"shares the lead with {rival.contender} by rank"
    text = (
        f"{best.contender} {leads}{where}: mean rank {figure(round(best.mean_rank, 2))}, mean regret "
        f"{percent(best.mean_regret)} ({spread}); next comes {rival.contender} with rank "
        f"{figure(round(rival.mean_rank, 2))} and {percent(rival.mean_regret)}"
    )
    if summary.lead is None:
        return f"{text}; they share no condition."
    return f"{text}. {_loss(rival.contender, summary.lead, confidence)}"


def _loss(name: str, lead: Lead, confidence: float) -> str:
    """How much more of the best value a contender loses than the leader, an interval."""
    low, high = lead.low, lead.high
    if low == high:
        return f"{name} loses {percent(low)} of the best value more; nothing varies over seeds."
    interval = f"{percent(confidence)} bootstrap interval over seeds"
    if high < 0.0:
        return (
            f"{name} loses {percent(-high)} to {percent(-low)} of the best value less ({interval}): "
            "better in the mean, though worse by rank."
        )
    if low <= 0.0:
        return (
            f"What {name} loses of the best value may be {percent(-low)} less or {percent(high)} more ({interval}), so "
            "there may be no difference."
        )
    return f"{name} loses {percent(low)} to {percent(high)} of the best value more ({interval})."


def _leader_tests(summary: StudySummary, tests: Sequence[PairTest]) -> tuple[list[PairTest], list[PairTest], list[str]]:
    """Tests of the leader, those of them that it wins, and whom it is not told from by the rest."""
    leader = summary.contenders[0].contender
    own = [test for test in tests if leader in {test.first, test.second}]
    won = [test for test in own if test.is_significant and test.first == leader]
    is_open = [test for test in own if not test.is_significant and test.test != NO_TEST]
    return own, won, [test.second if test.first == leader else test.first for test in is_open]


def _claims_over_conditions(summary: StudySummary) -> str:
    """Whom the leader beats by the tests over conditions, and from whom it cannot be told apart."""
    leader = summary.contenders[0].contender
    tests, won, open_ones = _leader_tests(summary, [test for test in summary.tests if not test.condition])
    if not open_ones and not won:
        return ""
    if not won:
        least = min(test.p_value for test in tests)
        return (
            f"Over conditions as blocks no test tells {leader} from {listed(open_ones)} "
            f"(Wilcoxon, Holm: p >= {least:.2g})."
        )
    largest, names = max(test.p_value for test in won), listed([test.second for test in won])
    claim = f"Over conditions as blocks {leader} is better than {names} (Wilcoxon, Holm: p <= {largest:.2g})"
    return f"{claim}; it is not told from {listed(open_ones)}." if open_ones else f"{claim}."


def _claims_over_seeds(summary: StudySummary, *, level: float) -> list[str]:
    """Of a single condition: whom the leader beats over seeds by tests of a level, with the size of the effect."""
    leader = summary.contenders[0].contender
    _, won, open_ones = _leader_tests(summary, [test for test in summary.tests if test.condition])
    sentences = [
        f"Over seeds {leader} is better than {test.second} ({test.test}, Holm: p = {test.p_value:.2g}; it wins "
        f"{percent(test.effect)} of pairs of searches, a {effect_word(test.effect)} effect)."
        for test in won
    ]
    if open_ones:
        is_hopeless = summary.standings[0].smallest_p >= level
        verb, why = ("can tell", ", as so few searches admit none") if is_hopeless else ("tells", "")
        sentences.append(f"Over seeds no test {verb} {leader} from {listed(open_ones)}{why}.")
    return sentences


def _first_places(summary: StudySummary) -> dict[str, list[ContenderScore]]:
    """Who comes first in each condition; several that share the place."""
    firsts: dict[str, list[ContenderScore]] = {}
    for score in summary.by_condition:
        group = firsts.setdefault(score.condition, [])
        if not group or score.mean_rank == group[0].mean_rank:
            group.append(score)
    return firsts


def _firsts(summary: StudySummary) -> str:
    """How often the leader comes first."""
    leader = summary.contenders[0].contender
    groups = [[score.contender for score in group] for group in _first_places(summary).values()]
    num_shared = sum(len(names) > 1 and leader in names for names in groups)
    alone = f"By median regret {leader} comes first alone in {groups.count([leader])} of {len(groups)} conditions"
    return f"{alone} and shares the first place in {num_shared}." if num_shared else f"{alone}."


def _lost(summary: StudySummary) -> list[str]:
    """Where another one than the overall leader comes first."""
    leader = summary.contenders[0].contender
    lost = {
        key: group
        for key, group in _first_places(summary).items()
        if leader not in {score.contender for score in group}
    }
    own = {score.condition: score for score in summary.by_condition if score.contender == leader}
    sentences = []
    for key, group in list(lost.items())[:MAX_LISTED_CONDITIONS]:
        against = f" against {percent(own[key].median_regret)} of {leader}" if key in own else f"; {leader} has none"
        sentences.append(
            f"In {key} {listed([score.contender for score in group])} comes first with a median regret of "
            f"{percent(group[0].median_regret)}{against}{_claimed(summary.tests, key, group[0].contender, leader)}."
        )
    if len(lost) > MAX_LISTED_CONDITIONS:
        sentences.append(f"Others come first in {len(lost) - MAX_LISTED_CONDITIONS} further conditions.")
    return sentences


def _claimed(tests: Sequence[PairTest], condition: str, first: str, second: str) -> str:
    """Whether the difference of two contenders in a condition is claimed."""
    test = next((t for t in tests if t.condition == condition and {t.first, t.second} == {first, second}), None)
    if test is None or test.test == NO_TEST:
        return ""
    return f" ({test.test}, Holm: p = {test.p_value:.2g})" if test.is_significant else " (no claim over seeds)"


def _cost_findings(summary: StudySummary, judgement: Judgement) -> list[str]:
    """What each contender needed to the middle target, best first, and how the leader compares at equal quality."""
    targets = sorted(judgement.targets, reverse=True)
    scores = summary.contenders[:MAX_COMPARED]
    if not targets:
        return [f"{score.contender}: {_bill(score)}." for score in scores]
    target = targets[len(targets) // 2]
    return [
        *(f"{score.contender} {_reached(score, target)}; {_bill(score)}." for score in scores),
        *(_at_equal_quality(compared, judgement.confidence) for compared in summary.equal_quality),
    ]


def _reached(score: ContenderScore, target: float) -> str:
    needed, share = score.median_evaluations_to.get(target), score.share_reached[target]
    if needed is not None:
        return (
            f"comes within {percent(target)} after {figure(needed)} evaluations and "
            f"{figure(score.median_seconds_to[target])} s in the median"
        )
    if share > 0.0:
        return f"comes within {percent(target)} in {percent(share)} of its searches only"
    return f"never comes within {percent(target)}"


def _bill(score: ContenderScore) -> str:
    """Mean cost of a whole search."""
    pruned = f", {figure(score.mean_pruned)} points pruned" if score.mean_pruned else ""
    return (
        f"a whole search costs {figure(score.mean_distinct_evaluations)} distinct evaluations, "
        f"{counted_mean(score.mean_probes, 'probe')}{pruned} and {figure(score.mean_charged_s)} s in the mean"
    )


def _at_equal_quality(compared: EqualQuality, confidence: float) -> str:
    """How many times fewer evaluations the leader needs to do as well as another contender ends."""
    first, second = compared.first, compared.second
    if compared.num_reached < compared.num_conditions:
        missed = counted(compared.num_conditions - compared.num_reached, "condition")
        where = f" in {missed} of {compared.num_conditions}" if compared.num_conditions > 1 else ""
        return (
            f"Fewer than half of the searches of {first} do as well as half of those of {second} end{where}: "
            "no ratio at equal quality."
        )
    if compared.num_conditions == 1:
        counts = f"{figure(compared.first_evaluations)} evaluations against {figure(compared.second_evaluations)}"
        what = f"To do as well as half of {second} ends (regret {percent(compared.regret)}) {first} takes {counts}: "
    else:
        what = f"To do as well as half of {second} ends in each condition {first} takes "
    interval = f"{percent(confidence)} interval of the ratio over seeds {times(compared.low)} to {times(compared.high)}"
    more = "; below 1 is more, not fewer" if compared.low < 1.0 else ""
    return f"{what}{_fewer(compared.ratio)} ({interval}{more}; probes are not in this count)."


def _fewer(ratio: float) -> str:
    """A ratio of evaluations in words: of 1 there is neither more nor less."""
    if abs(ratio - 1.0) < EVEN:
        return "as many evaluations"
    return f"{times(ratio)} times fewer evaluations" if ratio > 1.0 else f"{times(1.0 / ratio)} times as many"


def comparison_to_json(comparison: StudyComparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    rows = [asdict(row) for row in comparison.rows]
    for row, shown in zip(comparison.rows, rows, strict=True):
        del shown["differences"]
        shown["note"] = describe_differences(row.differences)
    return {
        "first": comparison.first.result.study_id,
        "second": comparison.second.result.study_id,
        "rows": rows,
        "unmatched": describe_unmatched(comparison),
        "findings": describe_changes(comparison),
    }


def describe_differences(differences: Iterable[Difference]) -> str:
    """How a contender was not run alike; empty if it was."""
    return "; ".join(f"{one.what} {_shown(one.first)} against {_shown(one.second)}" for one in differences)


def _shown(value: object) -> str:
    return "none" if value in ("", None, {}) else str(value)


def describe_changes(comparison: StudyComparison) -> list[str]:
    """What the rows say, contender by contender."""
    if not comparison.num_problems:
        return ["The studies share no problem (scenario, constants, space and goal): nothing to compare."]
    if not comparison.rows:
        return ["No contender has finished searches of a shared problem in both studies: nothing to compare."]
    sentences = []
    for change in comparison.changes:
        name = change.contender
        notes = (describe_differences(row.differences) for row in comparison.rows if row.contender == name)
        sentences.append(_change(change))
        sentences += [f"{name} was not run alike: {note}." for note in dict.fromkeys(notes) if note]
    return sentences


def _change(change: Change) -> str:
    better, worse, claimed = change.num_better, change.num_worse, change.num_claimed
    claims = f"{claimed} of them beyond chance (Holm)" if claimed else "none of them beyond chance"
    moved = f"better in {better}, worse in {worse}, {claims}" if better + worse else "no difference"
    return (
        f"{change.contender}: mean regret {percent(change.first_regret)} in the first study and "
        f"{percent(change.second_regret)} in the second over {counted(change.num_problems, 'shared problem')} "
        f"({moved}), with {figure(change.first_evaluations)} and {figure(change.second_evaluations)} distinct "
        "evaluations a search."
    )


def describe_unmatched(comparison: StudyComparison) -> list[str]:
    """What only one study has, what is unfinished, and what only shares a name."""
    sentences = [*_only_in(comparison.first), *_only_in(comparison.second)]
    if comparison.namesakes:
        sentences.append(f"{listed(comparison.namesakes)}: the name is in both studies, but the problems differ.")
    return sentences


def _only_in(study: OneStudy) -> list[str]:
    result = study.result
    sentences = [
        f"Only {result.study_id} has the {noun}{'s' * (len(names) > 1)} {listed(names)}."
        for noun, names in (("problem", study.conditions), ("contender", study.contenders))
        if names
    ]
    if result.unranked:
        sentences.append(f"{result.study_id} ranks no {listed(result.unranked)}: searches of it failed.")
    if not result.has_ended:
        sentences.append(f"{result.study_id} is not finished: {len(result.cells)} of {result.num_cells} searches are.")
    return sentences
