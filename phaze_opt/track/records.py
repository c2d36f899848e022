"""Events of searches, studies and proofs as flat records of runs: what a tracker shows as params, metrics and tags.

Names are those of the command line and its JSON, so that a column of the tracking store means what the table means. A
study has four levels, each a run inside the one before: study, strategy (contender), search (one seed of one
condition), trial.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from phaze_opt.certify.events import ProofFinished, ProofStarted
from phaze_opt.certify.result import ProofMove
from phaze_opt.hardware.chip_template import CHIP_AXES
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation, architecture_to_json
from phaze_opt.objective.goals import Goal
from phaze_opt.search.events import SearchFinished, SearchStarted
from phaze_opt.search.result import Trial
from phaze_opt.study.config import Cell
from phaze_opt.study.events import CellFinished, StudyFinished, StudyStarted
from phaze_opt.study.result import CellResult
from phaze_opt.study.scores import COSTS
from phaze_opt.track.pending_delivery import Record
from phaze_opt.units import bytes_to_gib, bytes_to_mib


class RecordKind:
    """What a record says, as its ``kind``."""

    STARTED = "started"
    TRIAL = "trial"
    FINISHED = "finished"
    PROOF_STARTED = "proof started"
    PROOF_MOVED = "proof moved"
    PROOF_FINISHED = "proof finished"
    STUDY_STARTED = "study started"
    CELL = "cell"
    CELL_TRIAL = "cell trial"
    CELL_FINISHED = "cell finished"
    STUDY_FINISHED = "study finished"
    CLOSED = "closed"


ORIGIN_FIELDS = ("estimator", "package_version", "scenario_digest", "constants_digest")


def started_record(
    event: SearchStarted | StudyStarted | ProofStarted, *, target: str, experiment: str, time_ms: int
) -> Record:
    """The top run: name, identity and the resolved configuration, flattened with dots."""
    record: Record = {"time_ms": time_ms, "target": target, "experiment": experiment, "name": event.name}
    identity: Record
    flat: dict[str, object]
    match event:
        case SearchStarted():
            identity = {"kind": RecordKind.STARTED, "search_id": event.search_id}
            params = {name: getattr(event, name) for name in ("strategy", "goal", "seed", "num_trials")}
            given = {key.removeprefix("scenario."): value for key, value in flatten(event.config)}
            flat = {**given, **params}
            tags = {"strategy": event.strategy, "goal": event.goal, "phaze_opt.search_id": event.search_id}
        case StudyStarted():
            identity = {
                "kind": RecordKind.STUDY_STARTED,
                "experiment": experiment or event.name,
                "is_own_experiment": not experiment,
                "study_id": event.study_id,
                "description": event.description,
                "num_cells": event.num_cells,
            }
            # The whole plan is an artifact.
            named = flatten(plan_fields(event.config))
            flat = {"num_cells": event.num_cells} | {key: x for key, x in named if key not in ("name", "description")}
            tags = {"study_id": event.study_id}
        case ProofStarted():
            identity = {"kind": RecordKind.PROOF_STARTED, "proof_id": event.proof_id}
            flat = {key.removeprefix("scenario."): value for key, value in flatten(event.config)}
            problem = str(event.config.get("problem_digest", ""))
            tags = {"phaze_opt.proof_id": event.proof_id, "problem_digest": problem}
    return {**record, **identity, "params": {key: text(value) for key, value in flat.items()}, "tags": tags}


def trial_record(trial: Trial[Evaluation], *, context: Mapping[str, str], time_ms: int) -> Record:
    """A trial's run; ``context`` are params of the search repeated on each trial (strategy, seed ...)."""
    return {
        "kind": RecordKind.TRIAL,
        "time_ms": time_ms,
        "number": trial.number,
        "wall_s": trial.wall_s,
        "params": {**architecture_params(trial.evaluation), **context},
        "metrics": {**evaluation_metrics(trial.evaluation), "wall_s": trial.wall_s},
        "tags": evaluation_tags(trial.evaluation)
        | {"is_repeat": text(trial.is_repeat), "is_resumed": text(trial.is_resumed)},
    }


def finished_record(event: SearchFinished, *, time_ms: int) -> Record:
    """The end of a search: its totals, and the best design's figures under the names a trial has."""
    totals = {"wall_s": event.wall_s, **event.metrics}
    tags = {"is_interrupted": text(event.is_interrupted)}
    if event.best is not None:
        totals |= evaluation_metrics(event.best)
        tags |= evaluation_tags(event.best) | best_tags(event.best, event.best_number)
    return {
        "kind": RecordKind.FINISHED,
        "time_ms": time_ms,
        "search_id": event.search_id,
        "is_interrupted": event.is_interrupted,
        "metrics": finite(totals),
        "tags": tags,
    }


def closed_record(directory: Path) -> Record:
    """The end of what was cut short and never goes on: when anything was last written of it."""
    time_s = max(path.stat().st_mtime for path in directory.iterdir())
    return {"kind": RecordKind.CLOSED, "time_ms": round(1000 * time_s)}


def architecture_params(evaluation: Evaluation) -> dict[str, str]:
    """The design as params, buffers in binary megabytes and gigabytes as users type them."""
    chip = evaluation.accelerator
    sizes = architecture_to_json(chip)
    amounts = [known for known in CHIP_AXES if not known.choices]
    exact = {known.key: known.printed(sizes[known.name]) for known in amounts if known.name in sizes}
    return {
        **{known.key: f"{(exact | sizes)[known.key]:g}" for known in amounts if known.key in exact | sizes},
        **{known.key: sizes[known.key] for known in CHIP_AXES if known.choices and known.key in sizes},
        "micro_batch": str(evaluation.micro_batch),
        "model": evaluation.model,
        "sequence_length": str(evaluation.sequence_length),
    }


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Figures of an evaluation; rates and times only if it is feasible, constraints always."""
    metrics = evaluation.figures
    metrics |= {f"constraint.{name}": value for name, value in evaluation.constraints}
    if evaluation.is_feasible:
        if not evaluation.members:
            metrics |= {f"breakdown.{name}": seconds for name, seconds in evaluation.breakdown.parts.items()}
        for member in evaluation.members:
            metrics[f"{THROUGHPUT}.{member.model}"] = member.throughput_samples_per_s
        placement = evaluation.placement
        if placement is not None:
            metrics |= {"tensor_parallel": placement.tensor_parallel, "pipeline_stages": len(placement.stages)}
            metrics |= {"data_parallel": placement.data_parallel, "devices_used": placement.devices_used}
    return finite(metrics)


def evaluation_tags(evaluation: Evaluation) -> dict[str, str]:
    """Status, its reason and where the figures came from."""
    provenance = evaluation.provenance
    tags = {
        "status": evaluation.status.value,
        "reason": evaluation.reason,
        "model": evaluation.model,
        **{name: getattr(provenance, name) for name in ORIGIN_FIELDS},
    }
    return {key: value for key, value in tags.items() if value}


def best_tags(evaluation: Evaluation, number: int | None = None) -> dict[str, str]:
    """The best design in one line, cores, lanes, buffer and memory, and its trial if it is of one."""
    chip = evaluation.accelerator
    line = (
        f"{chip.num_tc} TC {chip.tc_width}x{chip.tc_depth}, {chip.num_vc} VC of {chip.vc_width}, "
        f"GLB {bytes_to_mib(chip.glb_bytes):g} MB, HBM {bytes_to_gib(chip.hbm_bytes):g} GB"
    )
    return ({} if number is None else {"best_trial": str(number)}) | {"best_architecture": line}


def finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics without those that no store takes."""
    return {key: float(value) for key, value in metrics.items() if math.isfinite(value)}


def flatten(value: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested mappings by dotted name, empty ones left out."""
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            yield from flatten(item, f"{name}.")
        elif item not in (None, "", {}):
            yield name, item


def text(value: object) -> str:
    """A value as a param: words for people rather than Python."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return str(value["name"]) if "name" in value else json.dumps(value, default=str)
    if isinstance(value, (list, tuple)):
        return ", ".join(text(item) for item in value)
    return str(value)


def proof_moved_record(progress: ProofMove, *, step: int, time_ms: int) -> Record:
    """One step of the curves of incumbent, bound and gap."""
    metrics = {
        "incumbent": progress.value,
        "upper_bound": progress.value_upper,
        "gap": progress.gap,
        "num_solved": float(progress.num_solved),
        "num_open": float(progress.num_open),
        "num_bounded": float(progress.num_bounded),
    }
    known = {key: value for key, value in metrics.items() if key != "incumbent" or value > 0.0}
    return {"kind": RecordKind.PROOF_MOVED, "time_ms": time_ms, "step": step, "metrics": finite(known)}


def proof_finished_record(event: ProofFinished, *, step: int, time_ms: int) -> Record:
    """The end: the claim, the incumbent's figures under the names a trial has, and what it cost."""
    totals = {"wall_s": event.wall_s, **event.metrics}
    tags = {"is_interrupted": text(event.claim is None), **event.tags}
    claim = event.claim
    if claim is not None:
        tags |= {"is_proved": text(claim.is_proved), "is_feasible": text(claim.is_feasible)}
        counts = {"num_points": claim.num_points, "num_bounded": claim.num_rows, "num_solved": claim.num_solved}
        totals |= {name: float(count) for name, count in counts.items()}
        if claim.is_feasible:
            totals |= {"incumbent": claim.value, "upper_bound": claim.value_upper, "gap": claim.gap}
    if event.best is not None:
        totals |= evaluation_metrics(event.best)
        tags |= evaluation_tags(event.best) | best_tags(event.best)
    return {
        "kind": RecordKind.PROOF_FINISHED,
        "time_ms": time_ms,
        "step": step,
        "is_interrupted": claim is None,
        "metrics": finite(totals),
        "tags": tags,
    }


DEFAULT_SETTING = "default"
MAX_CURVE_POINTS = 200
"""A longer curve keeps only the points where it bends."""
Curve = tuple[tuple[int, float], ...]
"""(evaluations spent, value) points."""


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
        "kind": RecordKind.CELL,
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
    """One trial's run within a study, where no search is resumed in the middle."""
    cell = event.result.cell
    context = cell_tags(cell, budget=budget)
    record = trial_record(trial.with_evaluation(event.evaluations[trial.number]), context=context, time_ms=time_ms)
    tags = {key: value for key, value in record["tags"].items() if key != "is_resumed"}
    return record | {
        "kind": RecordKind.CELL_TRIAL,
        "key": cell.key,
        "metrics": record["metrics"] | {"evaluation": trial.number + 1},
        "tags": tags | context | {"study_id": study_id, "is_best": text(trial.number == event.best_number)},
    }


def cell_finished_record(event: CellFinished, *, time_ms: int) -> Record:
    """What a search came to: its cost, its best design's figures, and the best so far by evaluations."""
    result = event.result
    metrics: dict[str, float] = {name: getattr(result, name) for name in COSTS}
    tags = {"is_exhausted": text(result.is_exhausted)}
    if event.best_number >= 0:
        best = event.evaluations[event.best_number]
        metrics |= evaluation_metrics(best)
        tags |= best_tags(best, event.best_number)
    seconds = np.cumsum([trial.wall_s for trial in result.trials]).tolist()
    return {
        "kind": RecordKind.CELL_FINISHED,
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
        "kind": RecordKind.STUDY_FINISHED,
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
    plain = (Goal.THROUGHPUT, Goal.PARETO)
    return f"best_{THROUGHPUT}" if goal in plain else f"best_{goal}"


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
