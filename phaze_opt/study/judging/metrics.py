"""Figures of a judged study by name, as trackers keep them: letters, digits, underscores and dots only."""

from __future__ import annotations

from collections.abc import Mapping

from phaze_opt.study.scores import COSTS, CellScore, ContenderScore, StudySummary

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
