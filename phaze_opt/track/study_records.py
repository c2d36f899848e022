"""Study events as flat journal records: the params, metrics and tags of a study's runs.

Four levels, each a run inside the one before: study, strategy (contender), search (one seed of one condition), trial.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from phaze_opt.objective.goals import Goal
from phaze_opt.search.trial import Trial
from phaze_opt.study.events import CellFinished, StudyFinished, StudyStarted
from phaze_opt.study.plan import Cell
from phaze_opt.study.result import CellResult
from phaze_opt.study.scores import COSTS
from phaze_opt.track.order import Record
from phaze_opt.track.records import (
    architecture_params,
    describe_architecture,
    evaluation_metrics,
    evaluation_tags,
    finite,
    flatten,
    text,
)

STUDY_STARTED = "study started"
CELL = "cell"
CELL_TRIAL = "cell trial"
CELL_FINISHED = "cell finished"
STUDY_FINISHED = "study finished"
DEFAULT_SETTING = "default"
MAX_CURVE_POINTS = 200
"""A longer curve keeps only the points where it bends."""
Curve = tuple[tuple[int, float], ...]
"""(evaluations spent, value) points."""


def study_started_record(event: StudyStarted, *, target: str, experiment: str, time_ms: int) -> Record:
    """The study's run: name, identity and its axes, flattened with dots; the whole plan is an artifact."""
    params = {"num_cells": str(event.num_cells)}
    plan = plan_fields(event.config)
    flat = {key: text(value) for key, value in flatten(plan) if key not in ("name", "description")}
    return {
        "kind": STUDY_STARTED,
        "time_ms": time_ms,
        "target": target,
        "experiment": experiment or event.name,
        "is_own_experiment": not experiment,
        "study_id": event.study_id,
        "name": event.name,
        "description": event.description,
        "num_cells": event.num_cells,
        "params": {**params, **flat},
        "tags": {"study_id": event.study_id},
    }


def plan_fields(config: Mapping[str, object]) -> Mapping[str, object]:
    """The fields of `StudyConfig` within a resolved plan, which may hold conditions and constants beside them."""
    inner = config.get("config")
    return inner if isinstance(inner, Mapping) else config


def granted(config: Mapping[str, object]) -> str:
    """Evaluations (or seconds) granted to each search, as the plan says."""
    budget = plan_fields(config).get("budget")
    if not isinstance(budget, Mapping):
        return "" if budget is None else str(budget)
    seconds = budget.get("seconds")
    return f"{seconds} s" if seconds else str(budget.get("evaluations", ""))


def cell_record(event: CellFinished, *, study_id: str, budget: str, index: int, time_ms: int) -> Record:
    """A search's run, and the strategy it belongs to."""
    result = event.result
    contender = {"strategy": result.cell.contender.name, "budget": budget}
    return {
        "kind": CELL,
        "time_ms": time_ms,
        "key": result.cell.key,
        "index": index,
        "name": cell_name(result.cell),
        "contender": {
            "name": contender["strategy"],
            "params": contender | _contender_params(result.cell),
            "tags": contender | {"study_id": study_id},
        },
        "params": cell_params(result.cell, budget=budget),
        "tags": {**cell_tags(result.cell, budget=budget), "study_id": study_id},
        "charged_s": result.charged_s,
    }


def cell_trial_record(event: CellFinished, trial: Trial[None], *, study_id: str, budget: str, time_ms: int) -> Record:
    """One trial's run."""
    evaluation = event.evaluations[trial.number]
    cell = event.result.cell
    return {
        "kind": CELL_TRIAL,
        "time_ms": time_ms,
        "key": cell.key,
        "number": trial.number,
        "wall_s": trial.wall_s,
        "params": {**architecture_params(evaluation), **cell_tags(cell, budget=budget)},
        "metrics": {**evaluation_metrics(evaluation), "evaluation": trial.number + 1, "wall_s": trial.wall_s},
        "tags": {
            **evaluation_tags(evaluation),
            **cell_tags(cell, budget=budget),
            "study_id": study_id,
            "is_repeat": text(trial.is_repeat),
            "is_best": text(trial.number == event.best_number),
        },
    }


def cell_finished_record(event: CellFinished, *, time_ms: int) -> Record:
    """What a search came to: its cost, its best design's figures, and the best so far by evaluations."""
    result = event.result
    metrics: dict[str, float] = {name: getattr(result, name) for name in COSTS}
    tags = {"is_exhausted": text(result.is_exhausted)}
    if event.best_number >= 0:
        best = event.evaluations[event.best_number]
        metrics |= evaluation_metrics(best)
        tags |= {"best_trial": str(event.best_number), "best_architecture": describe_architecture(best)}
    seconds = np.cumsum([trial.wall_s for trial in result.trials]).tolist()
    return {
        "kind": CELL_FINISHED,
        "time_ms": time_ms,
        "key": result.cell.key,
        "charged_s": result.charged_s,
        "metrics": finite(metrics),
        "tags": tags,
        "curves": {curve_name(result.cell.condition.goal): thinned(best_so_far(result))},
        "seconds": [round(value, 3) for value in seconds],
    }


def study_finished_record(event: StudyFinished, contenders: Mapping[str, str], *, time_ms: int) -> Record:
    """What a study came to: figures of strategies and searches, their regret curves, the findings.

    Args:
        event: the judgement.
        contenders: of each search that was told of, by its key.
        time_ms: now.
    """
    regrets = {key: curve for key, curve in event.cell_regrets_pct.items() if event.is_complete and key in contenders}
    of_contender: dict[str, list[tuple[float, ...]]] = {}
    for key, regret in regrets.items():
        of_contender.setdefault(contenders[key], []).append(regret)
    return {
        "kind": STUDY_FINISHED,
        "time_ms": time_ms,
        "is_complete": event.is_complete,
        "contenders": {name: finite(metrics) for name, metrics in event.contender_metrics.items()},
        "cells": {key: finite(metrics) for key, metrics in event.cell_metrics.items()},
        "cell_curves": {key: thinned(curve) for key, curve in regrets.items()},
        "contender_curves": {name: thinned(median_curve(several)) for name, several in of_contender.items()},
        "notes": event.notes,
    }


def cell_name(cell: Cell) -> str:
    """``seed 3 bert-large tpe``, with the setting where it has a name of its own.

    Lists cut names short after a dozen characters, legends show nothing else.
    """
    setting = cell.condition.setting.name
    place = "" if setting == DEFAULT_SETTING else f"{setting} "
    return f"seed {cell.seed} {place}{cell.condition.workload.name} {cell.contender.name}"


def cell_tags(cell: Cell, *, budget: str) -> dict[str, str]:
    """What tells one search of a study from another; params of its trials too."""
    return {
        "strategy": cell.contender.name,
        "setting": cell.condition.setting.name,
        "workload": cell.condition.workload.name,
        "seed": str(cell.seed),
        "goal": cell.condition.goal.value,
        "budget": budget,
    }


def cell_params(cell: Cell, *, budget: str) -> dict[str, str]:
    """Choices behind one search."""
    setting = cell.condition.setting
    return {
        **cell_tags(cell, budget=budget),
        **_contender_params(cell),
        "models": text(cell.condition.workload.models),
        "devices": str(setting.devices),
        "network": setting.network,
        "global_batch": str(setting.global_batch),
    }


def _contender_params(cell: Cell) -> dict[str, str]:
    contender = cell.contender
    params = {"plugin": contender.strategy, "pruner": contender.pruner or "none"}
    params |= {f"options.{key}": text(value) for key, value in contender.options.items()}
    return params | {f"pruner_options.{key}": text(value) for key, value in contender.pruner_options.items()}


def curve_name(goal: Goal) -> str:
    """Metric that holds the best so far: of the throughput where there are several objectives."""
    return "best_throughput_per_tdp" if goal is Goal.THROUGHPUT_PER_TDP else "best_throughput_samples_per_s"


def best_so_far(result: CellResult) -> tuple[float, ...]:
    """Best first objective so far after each evaluation; 0 while nothing feasible was found."""
    values = [trial.values[0] if trial.values else 0.0 for trial in result.trials]
    return tuple(np.maximum.accumulate(values).tolist()) if values else ()


def median_curve(curves: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Median over searches after each evaluation; a search that ended keeps its last value."""
    length = max((len(curve) for curve in curves), default=0)
    rows = [[*curve, *[curve[-1]] * (length - len(curve))] for curve in curves if curve]
    return tuple(np.median(np.array(rows), axis=0).tolist()) if rows else ()


def thinned(values: Sequence[float]) -> Curve:
    """(evaluations, value) points; of a long curve those where it changes, the points before them and the last."""
    count = len(values)
    if count <= MAX_CURVE_POINTS:
        return tuple((index + 1, value) for index, value in enumerate(values))
    bends = {index for index in range(1, count) if values[index] != values[index - 1]}
    kept = sorted({0, count - 1} | bends | {index - 1 for index in bends})
    return tuple((index + 1, values[index]) for index in kept)


def wanted_trials(event: CellFinished, *, is_best_only: bool) -> tuple[Trial[None], ...]:
    """The trials that get runs."""
    trials = event.result.trials
    return tuple(trial for trial in trials if not is_best_only or trial.number == event.best_number)
