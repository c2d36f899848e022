"""Evaluations as JSON: the keys the command line prints, and back without loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.objective.evaluation import (
    Effort,
    Evaluation,
    EvaluationStatus,
    LayerSchedule,
    Provenance,
    ScheduleQuality,
    TimeBreakdown,
)
from phaze_opt.placement.problem import PlacementResult, PlacementStatus, Shortfall, Stage
from phaze_opt.units import bytes_to_gib, bytes_to_mib

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
    friendly = {key: exact.pop(key) for key in ("num_tc", "num_vc", "tc_width", "tc_depth", "vc_width")}
    friendly["glb_mb"] = _whole(bytes_to_mib(accelerator.glb_bytes))
    friendly["hbm_gb"] = _whole(bytes_to_gib(accelerator.hbm_bytes))
    return {**friendly, **exact}


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
    """Inverse of `evaluation_to_json`; ``evaluation_from_json(evaluation_to_json(e)) == e``."""
    scalars = {name: data[name] for name in SCALARS if name != "status"}
    return Evaluation(
        **scalars,
        status=EvaluationStatus(data["status"]),
        num_parameters=data["parameters"],
        accelerator=architecture_from_json(data["architecture"]),
        placement=_placement_from_json(data["placement"]),
        schedules=_schedules_from_json(data["schedule"]),
        breakdown=TimeBreakdown(**data["breakdown"]),
        provenance=Provenance(**data["provenance"]),
        effort=Effort(**data["effort"]),
        constraints=tuple(data["constraints"].items()),
        members=tuple(evaluation_from_json(member) for member in data["members"]),
    )


def _placement_from_json(data: Mapping[str, Any] | None) -> PlacementResult | None:
    """Inverse of `_placement_to_json`."""
    if data is None:
        return None
    return PlacementResult(
        status=PlacementStatus(data["status"]),
        batch_time_s=data["batch_time_s"],
        tensor_parallel=data["tensor_parallel"],
        data_parallel=data["data_parallel"],
        num_micro_batches=data["num_micro_batches"],
        stages=tuple(Stage(**stage) for stage in data["stages"]),
        shortfall=Shortfall(**data["shortfall"]) if data["shortfall"] is not None else None,
    )


def _schedules_from_json(data: Mapping[str, Any]) -> tuple[LayerSchedule, ...]:
    """Inverse of `_schedule_to_json`."""
    return tuple(
        LayerSchedule(
            layer=name,
            phase=phase,
            repeats=layer["repeats"],
            makespan_s=entry["makespan_s"],
            lower_bound_s=entry["lower_bound_s"],
            status=ScheduleQuality(entry["status"]),
        )
        for name, layer in data.items()
        for phase, entry in layer["phases"].items()
    )
