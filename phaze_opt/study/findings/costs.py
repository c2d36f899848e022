"""Sentences on what contenders paid: evaluations, probes and time."""

from __future__ import annotations

from phaze_opt.study.findings.wording import counted, figure, percent
from phaze_opt.study.result import StudyResult
from phaze_opt.study.scores import ContenderScore, StudySummary

MAX_CONTENDERS = 8
"""Contenders whose cost is told; of more, the tables tell."""


def cost_findings(summary: StudySummary, result: StudyResult) -> tuple[str, ...]:
    """What each contender needed to the middle target, best first, and how the two fastest compare."""
    targets = sorted(result.config.judgement.targets, reverse=True)
    if not targets:
        return tuple(_paid(score) for score in summary.contenders[:MAX_CONTENDERS])
    target = targets[len(targets) // 2]
    sentences = [_cost(score, target) for score in summary.contenders[:MAX_CONTENDERS]]
    comparison = _fewest(summary, target)
    return (*sentences, comparison) if comparison else tuple(sentences)


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


def _paid(score: ContenderScore) -> str:
    return f"{score.contender}: {_bill(score)}."


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


def _fewest(summary: StudySummary, target: float) -> str:
    """How many times fewer evaluations, and seconds, the fastest contender needs than the next that arrives."""
    arrived = sorted(
        (score for score in summary.contenders if target in score.median_evaluations_to),
        key=lambda score: score.median_evaluations_to[target],
    )
    if len(arrived) < 2 or arrived[0].median_evaluations_to[target] == arrived[1].median_evaluations_to[target]:
        return ""
    first, second = arrived[0], arrived[1]
    times = second.median_evaluations_to[target] / first.median_evaluations_to[target]
    seconds = (first.median_seconds_to[target], second.median_seconds_to[target])
    in_time = f", and {figure(round(seconds[1] / seconds[0], 2))} times its time" if min(seconds) > 0.0 else ""
    return (
        f"To {percent(target)} {first.contender} needs the fewest evaluations; {second.contender}, the next, needs "
        f"{figure(round(times, 2))} times as many{in_time} (medians; probes are not in this count)."
    )
