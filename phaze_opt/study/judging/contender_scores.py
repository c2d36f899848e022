"""Contenders judged over the seeds of one condition, and over all conditions; their figures by name for trackers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from phaze_opt.study.config import Judgement
from phaze_opt.study.judging.scoring import JudgedCondition
from phaze_opt.study.judging.statistics import half_reached_by, mean_interval, mean_ranks, weighted_median
from phaze_opt.study.scores import COSTS, CellScore, ContenderScore, StudySummary


def condition_scores(judged: JudgedCondition, judgement: Judgement) -> tuple[ContenderScore, ...]:
    """Every contender over the seeds of one condition, least median regret first."""
    ranks = condition_ranks(judged)
    scores = [
        _score(name, judged.key, [judged], [1.0], rank=ranks[name], judgement=judgement) for name in judged.samples
    ]
    return tuple(sorted(scores, key=lambda score: (score.mean_rank, score.mean_regret)))


def overall_scores(
    judged: Sequence[JudgedCondition], names: Sequence[str], judgement: Judgement
) -> tuple[ContenderScore, ...]:
    """Every contender over all conditions that it has searches in, best mean rank first.

    Conditions count by the weight of their workload, however many searches they have.
    """
    ranks = [condition_ranks(one) for one in judged]
    scores = []
    for name in names:
        mine = [(one, rank[name]) for one, rank in zip(judged, ranks, strict=True) if name in one.samples]
        conditions, weights = [one for one, _ in mine], [one.weight for one, _ in mine]
        rank = float(np.mean([rank for _, rank in mine]))
        scores.append(_score(name, "", conditions, weights, rank=rank, judgement=judgement))
    return tuple(sorted(scores, key=lambda score: (score.mean_rank, score.mean_regret)))


def condition_ranks(judged: JudgedCondition) -> Mapping[str, float]:
    """Rank of each contender by median regret, 1 for the least, ties sharing their mean rank."""
    names = list(judged.samples)
    ranks = mean_ranks(np.array([[judged.samples[name].median_regret for name in names]]))
    return dict(zip(names, ranks.tolist(), strict=True))


def _score(
    name: str,
    condition: str,
    conditions: Sequence[JudgedCondition],
    weights: Sequence[float],
    *,
    rank: float,
    judgement: Judgement,
) -> ContenderScore:
    samples = [one.samples[name] for one in conditions]
    cells = [score for sample in samples for score in sample.scores]
    shares = [
        weight / len(sample.scores) for sample, weight in zip(samples, weights, strict=True) for _ in sample.scores
    ]
    low, high = mean_interval(
        [sample.regrets for sample in samples],
        weights,
        confidence=judgement.confidence,
        num_resamples=judgement.num_bootstrap,
    )

    def mean(quantity: Callable[[CellScore], float]) -> float:
        return float(np.average([quantity(cell) for cell in cells], weights=shares))

    # Searches of a single objective have no hypervolume; they must not count as ones that covered nothing.
    has_volume = [
        one.yardstick.box is not None for one, sample in zip(conditions, samples, strict=True) for _ in sample.scores
    ]
    volumes = [cell.hypervolume for cell, counts in zip(cells, has_volume, strict=True) if counts]
    volume_shares = [share for share, counts in zip(shares, has_volume, strict=True) if counts]
    targets = judgement.targets
    return ContenderScore(
        contender=name,
        condition=condition,
        num_cells=len(cells),
        median_regret=weighted_median([cell.regret for cell in cells], shares),
        mean_regret=mean(lambda cell: cell.regret),
        low_regret=low,
        high_regret=high,
        share_reached={
            target: float(np.average([target in cell.evaluations_to for cell in cells], weights=shares))
            for target in targets
        },
        median_evaluations_to=_medians([cell.evaluations_to for cell in cells], shares, targets),
        median_seconds_to=_medians([cell.seconds_to for cell in cells], shares, targets),
        mean_area_under_curve=mean(lambda cell: cell.area_under_curve),
        mean_hypervolume=float(np.average(volumes, weights=volume_shares)) if volumes else 0.0,
        mean_distinct_evaluations=mean(lambda cell: cell.distinct_evaluations),
        mean_probes=mean(lambda cell: cell.probes),
        mean_pruned=mean(lambda cell: cell.pruned),
        mean_charged_s=mean(lambda cell: cell.charged_s),
        mean_rank=rank,
    )


def _medians(
    reached: Sequence[Mapping[float, float]], shares: Sequence[float], targets: Sequence[float]
) -> Mapping[float, float]:
    """Per target the cost by which half of the searches had reached it; absent if less than half ever did."""
    medians: dict[float, float] = {}
    for target in targets:
        arrived = [(costs[target], share) for costs, share in zip(reached, shares, strict=True) if target in costs]
        median = half_reached_by([cost for cost, _ in arrived], [share for _, share in arrived], total=sum(shares))
        if median is not None:
            medians[target] = median
    return medians


PERCENT = 100.0


def contender_metrics(summary: StudySummary) -> Mapping[str, Mapping[str, float]]:
    """Metrics of each contender over all its searches, by contender and name.

    ``win_share`` is its share of the conditions' first places (by median regret, shared first places divided).
    """
    wins = _win_shares(summary)
    return {score.contender: {**_contender(score), "win_share": wins[score.contender]} for score in summary.contenders}


def cell_metrics(summary: StudySummary) -> Mapping[str, Mapping[str, float]]:
    """Metrics of each finished search, by its key and name."""
    return {score.key: _cell(score) for score in summary.cells}


def _contender(score: ContenderScore) -> dict[str, float]:
    return {
        "mean_rank": score.mean_rank,
        "median_regret_pct": PERCENT * score.median_regret,
        "mean_regret_pct": PERCENT * score.mean_regret,
        "mean_regret_low_pct": PERCENT * score.low_regret,
        "mean_regret_high_pct": PERCENT * score.high_regret,
        "area_under_regret_pct": PERCENT * score.mean_area_under_curve,
        "hypervolume": score.mean_hypervolume,
        "num_searches": float(score.num_cells),
        **{name: getattr(score, f"mean_{name}") for name in ("distinct_evaluations", "probes", "pruned", "charged_s")},
        **{f"share_to_{target_name(target)}": share for target, share in score.share_reached.items()},
        **{f"evaluations_to_{target_name(target)}": count for target, count in score.median_evaluations_to.items()},
        **{f"seconds_to_{target_name(target)}": time_s for target, time_s in score.median_seconds_to.items()},
    }


def _cell(score: CellScore) -> dict[str, float]:
    return {
        "regret_pct": PERCENT * score.regret,
        "area_under_regret_pct": PERCENT * score.area_under_curve,
        "hypervolume": score.hypervolume,
        **{name: float(getattr(score, name)) for name in COSTS},
        **{f"evaluations_to_{target_name(target)}": float(count) for target, count in score.evaluations_to.items()},
        **{f"seconds_to_{target_name(target)}": time_s for target, time_s in score.seconds_to.items()},
    }


def target_name(target: float) -> str:
    """A relative regret as part of a metric's name: 0.05 is ``5pct``, 0.001 is ``0.1pct``."""
    return f"{PERCENT * target:.6g}pct"


def _win_shares(summary: StudySummary) -> Mapping[str, float]:
    """First places of each contender over the number of conditions."""
    winners: dict[str, list[str]] = {}
    least: dict[str, float] = {}
    for score in summary.by_condition:
        best = least.setdefault(score.condition, score.mean_rank)
        if score.mean_rank == best:
            winners.setdefault(score.condition, []).append(score.contender)
    return {
        score.contender: sum(1.0 / len(names) for names in winners.values() if score.contender in names)
        / max(1, len(winners))
        for score in summary.contenders
    }
