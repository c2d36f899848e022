"""Sentences on which contender wins, where and by how much."""

from __future__ import annotations

from collections.abc import Sequence

from phaze_opt.study.judging.findings.wording import counted, figure, listed, percent, percent_range
from phaze_opt.study.judging.judged_condition import JudgedCondition
from phaze_opt.study.judging.significance import NO_TEST
from phaze_opt.study.judging.statistics.bootstrap import difference_interval
from phaze_opt.study.judging.statistics.effects import effect_word
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, PairTest, StudySummary

MAX_LISTED_CONDITIONS = 6
"""Conditions told one by one; of more, the summary's tables tell."""


def winner_findings(summary: StudySummary, judged: Sequence[JudgedCondition], result: StudyResult) -> tuple[str, ...]:
    """Who leads over all conditions and by how much, which differences are claimed, and who leads where."""
    scores = summary.contenders
    if len(scores) == 1:
        return (_alone(scores[0], judged, result),)
    if all(score.low_regret == score.high_regret == scores[0].mean_regret for score in scores):
        return (f"All contenders tie: each ends with a regret of {percent(scores[0].mean_regret)} everywhere.",)
    sentences = [_lead(scores[0], scores[1], judged, result)]
    if len(judged) > 1:
        claims = _claims_over_conditions(summary)
        firsts, *others = _where(summary)
        sentences = [f"{sentences[0]} {firsts}", *([claims] if claims else []), *others]
    else:
        sentences += _claims_over_seeds(summary, summary.contenders[0].contender)
    return tuple(sentences)


def _alone(score: ContenderScore, judged: Sequence[JudgedCondition], result: StudyResult) -> str:
    """The regret of the only contender; against its own best search that is said to be what it is."""
    has_seeds = score.num_cells > len(judged)
    confidence = result.config.judgement.confidence
    spread = percent_range(score.low_regret, score.high_regret, confidence, has_seeds=has_seeds)
    regret = f"mean regret {percent(score.mean_regret)} ({spread}), median {percent(score.median_regret)}"
    searches = f"over {counted(score.num_cells, 'search', 'searches')}"
    if any(one.yardstick.truth is not None and one.yardstick.truth.kind.is_proved for one in judged):
        return f"{score.contender} is the only contender: {regret}, {searches}."
    if score.num_cells == len(judged):
        return (
            f"{score.contender} is the only contender, one search a condition, and no optimum is proved: nothing tells "
            "how good its designs are."
        )
    return (
        f"{score.contender} is the only contender and no optimum is proved, so its searches are held against the best "
        f"of them: {regret}, {searches}."
    )


def _lead(
    best: ContenderScore, next_best: ContenderScore, judged: Sequence[JudgedCondition], result: StudyResult
) -> str:
    """The leader against the runner-up: regrets and the interval of their difference."""
    judgement = result.config.judgement
    has_seeds = best.num_cells > len(judged) or next_best.num_cells > len(judged)
    spread = percent_range(best.low_regret, best.high_regret, judgement.confidence, has_seeds=has_seeds)
    where = f" over {len(judged)} conditions" if len(judged) > 1 else f" in {judged[0].key}"
    both = [one for one in judged if {best.contender, next_best.contender} <= set(one.samples)]
    leads = "leads" if best.mean_rank < next_best.mean_rank else f"shares the lead with {next_best.contender} by rank"
    text = (
        f"{best.contender} {leads}{where}: mean rank {figure(round(best.mean_rank, 2))}, mean regret "
        f"{percent(best.mean_regret)} ({spread}); next comes {next_best.contender} with rank "
        f"{figure(round(next_best.mean_rank, 2))} and {percent(next_best.mean_regret)}"
    )
    if not both:
        return f"{text}; they share no condition."
    low, high = difference_interval(
        [one.samples[best.contender].regrets for one in both],
        [one.samples[next_best.contender].regrets for one in both],
        [one.weight for one in both],
        confidence=judgement.confidence,
        num_resamples=judgement.num_bootstrap,
    )
    return f"{text}. {_more(next_best.contender, low, high, judgement.confidence)}"


def _more(name: str, low: float, high: float, confidence: float) -> str:
    """How much more of the best value a contender loses than the leader, an interval."""
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


def _claims_over_conditions(summary: StudySummary) -> str:
    """Whom the leader beats by the tests over conditions, and from whom it cannot be told apart."""
    leader = summary.contenders[0].contender
    tests = [test for test in summary.tests if not test.condition and leader in {test.first, test.second}]
    beaten = [test for test in tests if test.is_significant and test.first == leader]
    open_ones = [test.second if test.first == leader else test.first for test in tests if not test.is_significant]
    if not open_ones and not beaten:
        return ""
    if not beaten:
        least = min(test.p_value for test in tests)
        return (
            f"Over conditions as blocks no test tells {leader} from {listed(open_ones)} "
            f"(Wilcoxon, Holm: p >= {least:.2g})."
        )
    largest = max(test.p_value for test in beaten)
    names = listed([test.second for test in beaten])
    claim = f"Over conditions as blocks {leader} is better than {names} (Wilcoxon, Holm: p <= {largest:.2g})"
    return f"{claim}; it is not told from {listed(open_ones)}." if open_ones else f"{claim}."


def _where(summary: StudySummary) -> list[str]:
    """How often each contender comes first, and where another one than the overall leader does."""
    firsts: dict[str, list[ContenderScore]] = {}
    for score in summary.by_condition:
        group = firsts.setdefault(score.condition, [])
        if not group or score.mean_rank == group[0].mean_rank:
            group.append(score)
    leader = summary.contenders[0].contender
    alone = [key for key, group in firsts.items() if [score.contender for score in group] == [leader]]
    shared = [key for key, group in firsts.items() if len(group) > 1 and leader in {s.contender for s in group}]
    lost = {key: group for key, group in firsts.items() if leader not in {score.contender for score in group}}
    text = f"By median regret {leader} comes first alone in {len(alone)} of {len(firsts)} conditions"
    text += f" and shares the first place in {len(shared)}." if shared else "."
    sentences = [text]
    for key, group in list(lost.items())[:MAX_LISTED_CONDITIONS]:
        mine = next((s for s in summary.by_condition if s.condition == key and s.contender == leader), None)
        against = f" against {percent(mine.median_regret)} of {leader}" if mine is not None else f"; {leader} has none"
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


def _claims_over_seeds(summary: StudySummary, leader: str) -> list[str]:
    """Of a single condition: whom the leader beats over seeds, with the size of the effect."""
    tests = [test for test in summary.tests if test.condition and leader in {test.first, test.second}]
    beaten = [test for test in tests if test.is_significant and test.first == leader]
    open_ones = [
        test.second if test.first == leader else test.first
        for test in tests
        if not test.is_significant and test.test != NO_TEST
    ]
    sentences = [
        f"Over seeds {leader} is better than {test.second} ({test.test}, Holm: p = {test.p_value:.2g}; it wins "
        f"{percent(test.effect)} of pairs of searches, a {effect_word(test.effect)} effect)."
        for test in beaten
    ]
    if open_ones:
        sentences.append(f"Over seeds no test tells {leader} from {listed(open_ones)}.")
    return sentences
