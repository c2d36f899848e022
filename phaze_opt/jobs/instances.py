"""The jobs of ``schedule`` and ``place``: instances of files, solved exactly and worked out again by other code."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from phaze_opt.errors import InputError

if TYPE_CHECKING:
    from phaze_opt.placement.phaze_solve import PhazePlacement
    from phaze_opt.schedule.problem import ScheduleInstance, ScheduleResult

EXCLUSIVITY_RULES = ("chip", "type")


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """An operator graph to schedule.

    Attributes:
        file: of one instance, or of a list of them (JSON).
        exclusivity: what a spread operator excludes: ``chip`` or ``type``.
        time_limit_s: wall-clock limit; the best so far is the answer then.
        name: which instance of a list.
    """

    file: str
    exclusivity: str = "chip"
    time_limit_s: float = 60.0
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleAnswer:
    """The instance and its schedule, in the file's unit of time."""

    instance: ScheduleInstance
    result: ScheduleResult

    @property
    def standing(self) -> str:
        """How surely it is the best, in words."""
        words = {"optimal": "optimal", "feasible": "not proven", "time_limit": "time limit"}
        status = self.result.status.value
        return words[status] + ("" if status == "optimal" else f", gap {100 * self.result.gap:.2g} %")

    def to_json(self) -> dict[str, Any]:
        """The schedule by the file's ids."""
        instance, result = self.instance, self.result
        return {
            "name": instance.name,
            "makespan": result.makespan_s,
            "lower_bound": result.lower_bound_s,
            "gap": result.gap,
            "status": result.status.value,
            "exclusivity": instance.problem.exclusivity.value,
            "start": {str(node): begin for node, begin in zip(instance.ids, result.start_s, strict=True)},
            "spread": [node for node, is_spread in zip(instance.ids, result.is_spread, strict=True) if is_spread],
        }


def read_instance(request: ScheduleRequest) -> ScheduleInstance:
    """The instance of a request.

    Raises:
        InputError: an option or the file breaks a rule.
    """
    from phaze_opt.schedule.problem import Exclusivity, load_instance

    if request.exclusivity not in EXCLUSIVITY_RULES:
        message = f"'{request.exclusivity}' is unknown; give chip or type"
        raise InputError(message, key="--exclusivity")
    if not (request.time_limit_s > 0 and isfinite(request.time_limit_s)):
        message = f"{request.time_limit_s:g} must be a positive number of seconds"
        raise InputError(message, key="--time-limit")
    return load_instance(request.file, exclusivity=Exclusivity(request.exclusivity), name=request.name)


def solve_instance(request: ScheduleRequest, instance: ScheduleInstance) -> ScheduleAnswer:
    """The shortest schedule found within the time limit."""
    from phaze_opt.schedule.problem import ScheduleOptions
    from phaze_opt.schedule.solve import solve_schedule
    from phaze_opt.schedule.verify import verify_schedule

    result = solve_schedule(instance.problem, options=ScheduleOptions(time_limit_s=request.time_limit_s))
    verify_schedule(instance.problem, result)
    return ScheduleAnswer(instance, result)


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A placement instance of a file (JSON), and the rules that it is placed under."""

    file: str
    semantics: str = "phaze"


@dataclass(frozen=True, slots=True)
class PlaceAnswer:
    """The placement; where none fits it has a shortfall."""

    placement: PhazePlacement

    def to_json(self) -> dict[str, Any]:
        """Seconds, bytes and the file's own layer ids."""
        placement = self.placement
        found: dict[str, Any] = {
            "batch_time": placement.batch_time_s,
            "tensor_parallel": placement.tensor_parallel,
            "data_parallel": placement.data_parallel,
            "micro_batches": placement.num_micro_batches,
        }
        stages = [
            {
                "layers": list(each.layers),
                "devices": each.num_devices,
                "load_s": each.load_s,
                "memory_bytes": each.memory_bytes,
            }
            for each in placement.stages
        ]
        result = {"status": placement.status.value, **found, "stages": stages}
        if placement.shortfall is not None:
            shortfall = asdict(placement.shortfall)
            result |= {**dict.fromkeys(found), "reason": shortfall.pop("reason"), "shortfall": shortfall}
        return result


def place_instance(request: PlaceRequest) -> PlaceAnswer:
    """Stages and degrees with the smallest time per batch.

    Raises:
        InputError: the semantics are unknown, or the file breaks a rule.
    """
    from phaze_opt.placement.phaze_instance import load_phaze_instance
    from phaze_opt.placement.phaze_solve import solve_phaze
    from phaze_opt.placement.verify import verify_phaze

    if request.semantics != "phaze":
        message = (
            f"'{request.semantics}' is unknown: files are placed under 'phaze'; evaluate and search use the native "
            "rules"
        )
        raise InputError(message, key="--semantics")
    instance = load_phaze_instance(request.file)
    placement = solve_phaze(instance)
    verify_phaze(instance, placement)
    return PlaceAnswer(placement)
