"""`Evaluation`: what one design point is worth, why, and where the figures came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.schedule.problem import ScheduleStatus


class EvaluationStatus(StrEnum):
    """Feasible, or the first constraint that the point breaks.

    TOO_FEW_DEVICES: only of a given placement that needs more devices than there are.
    """

    FEASIBLE = "feasible"
    OVER_AREA = "over_area"
    OVER_TDP = "over_tdp"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_FEW_DEVICES = "too_few_devices"


class ScheduleQuality(StrEnum):
    """How the makespan of a schedule is known."""

    OPTIMAL = ScheduleStatus.OPTIMAL.value
    FEASIBLE = ScheduleStatus.FEASIBLE.value
    TIME_LIMIT = ScheduleStatus.TIME_LIMIT.value


@dataclass(frozen=True, slots=True)
class LayerSchedule:
    """Makespan and bound of one distinct layer and phase at the chosen tensor degree, s."""

    layer: str
    phase: str
    repeats: int
    makespan_s: float
    lower_bound_s: float
    status: ScheduleQuality

    @property
    def gap(self) -> float:
        """(makespan - lower bound) / makespan."""
        return 0.0 if self.makespan_s <= 0 else max(0.0, 1.0 - self.lower_bound_s / self.makespan_s)


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Seconds of one iteration by cause; the values sum to the iteration time."""

    tensor_cores_s: float = 0.0
    vector_cores_s: float = 0.0
    memory_bound_s: float = 0.0
    tensor_parallel_collectives_s: float = 0.0
    boundary_transfers_s: float = 0.0
    gradient_all_reduce_s: float = 0.0
    bubble_s: float = 0.0
    update_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Provenance:
    """Which code, options and tolerances produced an evaluation; enough to reproduce it."""

    package_version: str = ""
    estimator: str = ""
    solver: str = ""
    scenario_digest: str = ""
    constants_digest: str = ""


@dataclass(frozen=True, slots=True)
class Effort:
    """Work done for one evaluation."""

    num_ilp_solves: int = 0
    num_placements: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of one architecture and micro-batch for one model (or, with ``members``, for several).

    Rates and times are zero, and ``placement`` None, unless ``status`` is FEASIBLE. ``mfu`` and ``throughput_per_tdp``
    count every device of the cluster, idle ones included; utilisations and ``average_power_w`` (of one device, W) only
    those used; energy (J) is of all used devices. ``throughput_bound_*`` is an upper bound that the schedules' gaps
    leave open: equal to the throughput when every schedule is proven.
    """

    model: str
    status: EvaluationStatus
    reason: str
    accelerator: Accelerator
    micro_batch: int
    sequence_length: int
    num_parameters: int
    area_mm2: float
    tdp_w: float
    throughput_samples_per_s: float = 0.0
    throughput_bound_samples_per_s: float = 0.0
    throughput_tokens_per_s: float = 0.0
    iteration_time_s: float = 0.0
    throughput_per_tdp: float = 0.0
    mfu: float = 0.0
    tc_utilisation: float = 0.0
    vc_utilisation: float = 0.0
    energy_per_iteration_j: float = 0.0
    average_power_w: float = 0.0
    placement: PlacementResult | None = None
    schedules: tuple[LayerSchedule, ...] = ()
    breakdown: TimeBreakdown = field(default_factory=TimeBreakdown)
    provenance: Provenance = field(default_factory=Provenance)
    effort: Effort = field(default_factory=Effort)
    constraints: tuple[tuple[str, float], ...] = ()
    members: tuple[Evaluation, ...] = ()

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint holds."""
        return self.status is EvaluationStatus.FEASIBLE

    @property
    def schedule_gap(self) -> float:
        """Largest gap of any of its schedules."""
        gaps = [schedule.gap for schedule in self.schedules]
        return max([*gaps, *(member.schedule_gap for member in self.members)], default=0.0)
