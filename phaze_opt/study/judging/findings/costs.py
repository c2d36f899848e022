"""Sentences on what contenders paid: evaluations, probes and time."""

from __future__ import annotations

from phaze_opt.study.judging.equal_quality import EqualQuality, equal_quality
from phaze_opt.study.judging.findings.wording import counted, figure, percent
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, StudySummary

MAX_CONTENDERS = 8
"""Contenders whose cost is told; of more, the tables tell."""
EVEN = 0.05
"""A ratio this near to 1 rounds to it."""


def cost_findings(summary: StudySummary, result: StudyResult) -> tuple[str, ...]:
    """What each contender needed to the middle target, best first, and how the leader compares at equal quality."""
    targets = sorted(result.config.judgement.targets, reverse=True)
    if not targets:
        return tuple(f"{score.contender}: {_bill(score)}." for score in summary.contenders[:MAX_CONTENDERS])
    target = targets[len(targets) // 2]
    sentences = [_cost(score, target) for score in summary.contenders[:MAX_CONTENDERS]]
    leader = summary.contenders[0].contender
    for score in summary.contenders[1:MAX_CONTENDERS]:
        compared = equal_quality(summary, result.config, leader, score.contender)
        if compared is not None:
            sentences.append(_at_equal_quality(compared, result.config.judgement.confidence))
    return tuple(sentences)


def _cost(score: ContenderScore, target: float) -> str:
    needed = score.median_evaluations_to.get(target)
    if needed is None:
        share = score.share_reached[target]
        reached = (
            f"comes within {percent(target)} in {percent(share)} of its searches only"
            if share > 0.0
            else f"never comes within {percent(target)}"
        )
    else:
        reached = (
            f"comes within {percent(target)} after {figure(needed)} evaluations and "
            f"{figure(score.median_seconds_to[target])} s in the median"
        )
    return f"{score.contender} {reached}; {_bill(score)}."


def _bill(score: ContenderScore) -> str:
    """Mean cost of a whole search."""
    pruned = f", {figure(score.mean_pruned)} points pruned" if score.mean_pruned else ""
    return (
        f"a whole search costs {figure(score.mean_distinct_evaluations)} distinct evaluations, "
        f"{counted_mean(score.mean_probes, 'probe')}{pruned} and {figure(score.mean_charged_s)} s in the mean"
    )


def counted_mean(value: float, noun: str) -> str:
    """A mean count with its noun; ``no probes`` for none."""
    if value == 0.0:
        return f"no {noun}s"
    return counted(int(value), noun) if value == int(value) else f"{figure(value)} {noun}s"


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
    interval = (
        f"{percent(confidence)} interval of the ratio over seeds {_times(compared.low)} to {_times(compared.high)}"
    )
    return (
        f"{what}{_fewer(compared.ratio)} ({interval}"
        f"{'; below 1 is more, not fewer' if compared.low < 1.0 else ''}; probes are not in this count)."
    )


def _fewer(ratio: float) -> str:
    """A ratio of evaluations in words: of 1 there is neither more nor less."""
    if abs(ratio - 1.0) < EVEN:
        return "as many evaluations"
    return f"{_times(ratio)} times fewer evaluations" if ratio > 1.0 else f"{_times(1.0 / ratio)} times as many"


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"
