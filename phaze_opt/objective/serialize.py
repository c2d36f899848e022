"""Evaluations as JSON: the keys the command line prints, and back without loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.template import AXES
from phaze_opt.objective.evaluation import (
    Effort,
    Evaluation,
    LayerSchedule,
    Provenance,
    TimeBreakdown,
)
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.record.plain_data import from_plain

SCALARS = (
    "model",
    "status",
    "reason",
    "micro_batch",
    "sequence_length",
    "area_mm2",
    "tdp_w",
    "throughput_samples_per_s",
    "throughput_bound_samples_per_s",
    "throughput_tokens_per_s",
    "iteration_time_s",
    "throughput_per_tdp",
    "mfu",
    "tc_utilisation",
    "vc_utilisation",
    "energy_per_iteration_j",
    "average_power_w",
)
"""Fields of `Evaluation` that are themselves in its JSON; ``num_parameters`` is printed as ``parameters``."""


def architecture_to_json(accelerator: Accelerator) -> dict[str, Any]:
    """An architecture in the units people use (binary MB and GB), with every exact field beside them."""
    exact = asdict(accelerator)
    of_chip = [axis for axis in AXES if axis.name in exact]
    friendly = {axis.key: axis.printed(exact[axis.name]) for axis in of_chip}
    return friendly | {key: value for key, value in exact.items() if key not in friendly}


def _whole(value: float) -> int | float:
    """The integer, where the value is one."""
    return int(value) if value == int(value) else value


def architecture_from_json(data: Mapping[str, Any]) -> Accelerator:
    """Inverse of `architecture_to_json`."""
    names = {field.name for field in fields(Accelerator)}
    return Accelerator(**{key: value for key, value in data.items() if key in names})


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as a JSON object; the keys of the command line, then what restores it exactly."""
    data: dict[str, Any] = {name: getattr(evaluation, name) for name in SCALARS}
    data["status"] = evaluation.status.value
    data["parameters"] = evaluation.num_parameters
    data["architecture"] = architecture_to_json(evaluation.accelerator)
    data["placement"] = _placement_to_json(evaluation)
    data["schedule"] = _schedule_to_json(evaluation.schedules)
    data["schedule_gap"] = evaluation.schedule_gap
    data["breakdown"] = asdict(evaluation.breakdown)
    data["provenance"] = asdict(evaluation.provenance)
    data["effort"] = asdict(evaluation.effort)
    data["constraints"] = dict(evaluation.constraints)
    data["members"] = [evaluation_to_json(member) for member in evaluation.members]
    return data


def _placement_to_json(evaluation: Evaluation) -> dict[str, Any] | None:
    """The placement with the counts people look for."""
    placement = evaluation.placement
    if placement is None:
        return None
    return {
        "tensor_parallel": placement.tensor_parallel,
        "pipeline_stages": len(placement.stages),
        "data_parallel": placement.data_parallel,
        "micro_batch": evaluation.micro_batch,
        "num_micro_batches": placement.num_micro_batches,
        "recompute": [stage.is_recomputed for stage in placement.stages],
        "devices_used": placement.devices_used,
        "batch_time_s": placement.batch_time_s,
        "status": placement.status.value,
        "stages": [asdict(stage) for stage in placement.stages],
        "shortfall": asdict(placement.shortfall) if placement.shortfall is not None else None,
    }


def _schedule_to_json(schedules: tuple[LayerSchedule, ...]) -> dict[str, Any]:
    """By distinct layer: makespan, bound and gap of one pass through its phases, and each phase apart."""
    layers: dict[str, Any] = {}
    for name in dict.fromkeys(entry.layer for entry in schedules):
        phases = [entry for entry in schedules if entry.layer == name]
        makespan = sum(entry.makespan_s for entry in phases)
        bound = sum(entry.lower_bound_s for entry in phases)
        layers[name] = {
            "makespan_s": makespan,
            "lower_bound_s": bound,
            "gap": 0.0 if makespan <= 0 else max(0.0, 1.0 - bound / makespan),
            "repeats": phases[0].repeats,
            "phases": {
                entry.phase: {
                    "makespan_s": entry.makespan_s,
                    "lower_bound_s": entry.lower_bound_s,
                    "gap": entry.gap,
                    "status": entry.status.value,
                }
                for entry in phases
            },
        }
    return layers


def evaluation_from_json(data: Mapping[str, Any]) -> Evaluation:
    """Inverse of `evaluation_to_json`; ``evaluation_from_json(evaluation_to_json(e)) == e``.

    Raises:
        ValueError: the data is not what `evaluation_to_json` gives.
    """
    try:
        return from_plain(Evaluation, _evaluation_fields(data))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, InputError) as error:
        message = f"not an evaluation as phaze-opt writes it ({type(error).__name__})"
        raise ValueError(message) from error


def _evaluation_fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Evaluation`; types are not looked at yet."""
    return {
        **{name: data[name] for name in SCALARS},
        "num_parameters": data["parameters"],
        "accelerator": _fields_of(Accelerator, data["architecture"]),
        "placement": None if data["placement"] is None else _fields_of(PlacementResult, data["placement"]),
        "schedules": _schedule_fields(data["schedule"]),
        "breakdown": _fields_of(TimeBreakdown, data["breakdown"]),
        "provenance": _fields_of(Provenance, data["provenance"]),
        "effort": _fields_of(Effort, data["effort"]),
        "constraints": tuple(data["constraints"].items()),
        "members": tuple(_evaluation_fields(member) for member in data["members"]),
    }


def _fields_of(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What a dataclass is made of, among what is printed with it."""
    return {field.name: data[field.name] for field in fields(kind)}


def _schedule_fields(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Fields of every `LayerSchedule`."""
    return [
        {
            "layer": name,
            "phase": phase,
            "repeats": layer["repeats"],
            **{key: entry[key] for key in ("makespan_s", "lower_bound_s", "status")},
        }
        for name, layer in data.items()
        for phase, entry in layer["phases"].items()
    ]
