"""A validation as JSON values."""

from __future__ import annotations

from typing import Any

from phaze_opt.validation.goals import BY_CELL
from phaze_opt.validation.result import GoalResult, GroupResult, SetResult, Validation
from phaze_opt.validation.scores import Scores


def validation_to_json(validation: Validation) -> dict[str, Any]:
    """Figures by data set; errors in per cent, null where nothing is scored."""
    return {
        "datasets": {result.name: set_to_json(result) for result in validation.sets},
        "goals": [_goal_to_json(goal) for goal in validation.goals],
        "fitted_digest": validation.fitted.digest,
    }


def set_to_json(result: SetResult) -> dict[str, Any]:
    """Figures of one set."""
    groups = {group.label: _group_to_json(group) for group in result.groups}
    if result.num_cells > 1:
        groups[BY_CELL] = {"rows": result.scores.num_rows, "cells": result.num_cells, "mape": result.mape_by_cell}
    return {
        "rows": len(result.rows),
        "scored": result.scores.num_rows,
        "unscored_reasons": dict(result.unscored_reasons),
        **_scores_to_json(result.scores),
        "baseline_mape": result.baseline_mape,
        "baseline": result.baseline,
        "mape_by_cell": result.mape_by_cell,
        "groups": groups,
        "regimes": {group.label: _group_to_json(group) for group in result.regimes},
        "family": result.family,
        "like": ", ".join(result.dataset.likes),
        "is_context": result.dataset.is_context,
    }


def _group_to_json(group: GroupResult) -> dict[str, Any]:
    return {
        "rows": group.scores.num_rows,
        **_scores_to_json(group.scores),
        "baseline_mape": group.baseline_mape,
    }


def _scores_to_json(scores: Scores) -> dict[str, float]:
    return {
        "mape": scores.mape,
        "median_ape": scores.median_ape,
        "p90_ape": scores.p90_ape,
        "bias": scores.bias,
        "spearman": scores.spearman,
        "kendall": scores.kendall,
    }


def _goal_to_json(goal: GoalResult) -> dict[str, Any]:
    return {
        "dataset": goal.dataset,
        "group": goal.group,
        "figure": goal.figure,
        "goal": goal.goal,
        "value": goal.value,
        "is_met": goal.is_met,
    }
