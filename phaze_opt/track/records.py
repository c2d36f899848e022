"""Search events as flat journal records: what a tracker shows as params, metrics and tags.

Names are those of the command line and its JSON, so that a column of the tracking store means what the table means.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import fields

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.events import SearchFinished, SearchStarted
from phaze_opt.search.trial import Trial
from phaze_opt.track.order import Record
from phaze_opt.units import bytes_to_gib, bytes_to_mib

STARTED = "started"
TRIAL = "trial"
FINISHED = "finished"
METRIC_FIELDS = (
    "throughput_samples_per_s",
    "throughput_tokens_per_s",
    "iteration_time_s",
    "throughput_per_tdp",
    "mfu",
    "tc_utilisation",
    "vc_utilisation",
    "energy_per_iteration_j",
    "average_power_w",
)
"""Figures that only a feasible evaluation has."""
ORIGIN_FIELDS = ("estimator", "package_version", "scenario_digest", "constants_digest")
OF_ONE_MODEL = ("energy_per_iteration_j", "average_power_w")
"""Those that a design common to several models has for each of them only; its own fields hold zeros."""


def started_record(event: SearchStarted, *, target: str, experiment: str, time_ms: int) -> Record:
    """The parent run: name, identity and the resolved configuration, flattened with dots."""
    params = {"strategy": event.strategy, "goal": event.goal, "seed": event.seed, "num_trials": event.num_trials}
    named = ((key.removeprefix("scenario."), value) for key, value in flatten(event.config))
    flat = {key: value for key, value in named if key not in params}
    return {
        "kind": STARTED,
        "time_ms": time_ms,
        "target": target,
        "experiment": experiment,
        "search_id": event.search_id,
        "name": event.name,
        "params": {key: text(value) for key, value in {**params, **flat}.items()},
        "tags": {"strategy": event.strategy, "goal": event.goal, "phaze_opt.search_id": event.search_id},
    }


def trial_record(trial: Trial[Evaluation], *, context: Mapping[str, str], time_ms: int) -> Record:
    """A child run; ``context`` are params of the search repeated on each trial (strategy, seed ...)."""
    evaluation = trial.evaluation
    return {
        "kind": TRIAL,
        "time_ms": time_ms,
        "number": trial.number,
        "wall_s": trial.wall_s,
        "params": {**architecture_params(evaluation), **context},
        "metrics": {**evaluation_metrics(evaluation), "wall_s": trial.wall_s},
        "tags": {
            **evaluation_tags(evaluation),
            "is_repeat": text(trial.is_repeat),
            "is_resumed": text(trial.is_resumed),
        },
    }


def finished_record(event: SearchFinished, *, time_ms: int) -> Record:
    """The end of a search: its totals, and the best design's figures under the names a trial has."""
    totals = {"wall_s": event.wall_s, **event.metrics}
    tags = {"is_interrupted": text(event.is_interrupted)}
    if event.best is not None:
        totals |= evaluation_metrics(event.best)
        tags |= evaluation_tags(event.best)
        tags |= {"best_trial": str(event.best_number), "best_architecture": describe_architecture(event.best)}
    return {
        "kind": FINISHED,
        "time_ms": time_ms,
        "search_id": event.search_id,
        "is_interrupted": event.is_interrupted,
        "metrics": finite(totals),
        "tags": tags,
    }


def architecture_params(evaluation: Evaluation) -> dict[str, str]:
    """The design as params, buffers in binary megabytes and gigabytes as users type them."""
    chip = evaluation.accelerator
    counts = {name: str(getattr(chip, name)) for name in ("num_tc", "num_vc", "tc_width", "tc_depth", "vc_width")}
    return {
        **counts,
        "glb_mb": f"{bytes_to_mib(chip.glb_bytes):g}",
        "hbm_gb": f"{bytes_to_gib(chip.hbm_bytes):g}",
        "micro_batch": str(evaluation.micro_batch),
        "model": evaluation.model,
        "sequence_length": str(evaluation.sequence_length),
    }


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """Figures of an evaluation; rates and times only if it is feasible, constraints always."""
    metrics = {"area_mm2": evaluation.area_mm2, "tdp_w": evaluation.tdp_w}
    metrics |= {f"constraint.{name}": value for name, value in evaluation.constraints}
    if evaluation.is_feasible:
        is_common = bool(evaluation.members)
        names = (name for name in METRIC_FIELDS if not (is_common and name in OF_ONE_MODEL))
        metrics |= {name: getattr(evaluation, name) for name in names}
        metrics["schedule_gap"] = evaluation.schedule_gap
        if not is_common:
            breakdown = evaluation.breakdown
            metrics |= {f"breakdown.{item.name}": getattr(breakdown, item.name) for item in fields(breakdown)}
        for member in evaluation.members:
            metrics[f"throughput_samples_per_s.{member.model}"] = member.throughput_samples_per_s
        placement = evaluation.placement
        if placement is not None:
            metrics["tensor_parallel"] = placement.tensor_parallel
            metrics["pipeline_stages"] = len(placement.stages)
            metrics["data_parallel"] = placement.data_parallel
            metrics["devices_used"] = placement.devices_used
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


def describe_architecture(evaluation: Evaluation) -> str:
    """One line: cores, lanes, buffer and memory."""
    chip = evaluation.accelerator
    return (
        f"{chip.num_tc} TC {chip.tc_width}x{chip.tc_depth}, {chip.num_vc} VC of {chip.vc_width}, "
        f"GLB {bytes_to_mib(chip.glb_bytes):g} MB, HBM {bytes_to_gib(chip.hbm_bytes):g} GB"
    )


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
