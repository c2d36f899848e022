"""`Evaluation`: what one design point is worth, why, and where the figures came from; as JSON and back without loss."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol, get_type_hints

from phaze_opt.errors import InputError
from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.chip_template import AXES
from phaze_opt.hardware.constants import Constants
from phaze_opt.hardware.silicon.chip_silicon import over_reticle
from phaze_opt.placement.problem import PlacementResult
from phaze_opt.record.plain_data import from_plain, omit_default, omitted_names, to_plain
from phaze_opt.record.result_fields import Better, Digits, ResultField, declares, fields_of, names_of, result_field
from phaze_opt.schedule.problem import MipRuns, ScheduleStatus, count_mips
from phaze_opt.units import GIGA


class EvaluationStatus(StrEnum):
    """Feasible, or the first constraint that the point breaks.

    UNBUILDABLE: a die larger than the reticle, of a chip that is not known to exist.
    TOO_FEW_DEVICES: only of a given placement that needs more devices than there are.
    """

    FEASIBLE = "feasible"
    UNBUILDABLE = "unbuildable"
    OVER_AREA = "over_area"
    OVER_TDP = "over_tdp"
    OVER_CAPEX = "over_capex"
    OUT_OF_MEMORY = "out_of_memory"
    TOO_FEW_DEVICES = "too_few_devices"


class ScheduleQuality(StrEnum):
    """How the makespan of a schedule is known."""

    OPTIMAL = ScheduleStatus.OPTIMAL.value
    FEASIBLE = ScheduleStatus.FEASIBLE.value
    TIME_LIMIT = ScheduleStatus.TIME_LIMIT.value


def relative_gap(makespan_s: float, lower_bound_s: float) -> float:
    """What a proof leaves open: (makespan - lower bound) / makespan."""
    return 0.0 if makespan_s <= 0 else max(0.0, 1.0 - lower_bound_s / makespan_s)


PROVEN_GAP = 1e-9


def is_proven(gap: float) -> bool:
    """Whether a gap is none but for rounding: of a schedule, of the choice of plans, or of designs."""
    return gap <= PROVEN_GAP


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
        return relative_gap(self.makespan_s, self.lower_bound_s)


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Seconds of one iteration by cause; the values sum to the iteration time.

    Attributes:
        tensor_cores_s, vector_cores_s, memory_bound_s: what operators of a designed chip wait for.
        tensor_parallel_collectives_s, boundary_transfers_s, gradient_all_reduce_s, bubble_s, update_s: of placements
            and plans alike; of a plan what of the traffic is exposed.
        matmul_s, attention_s, vector_s: of a plan on a machine that exists, as `StepTime` has them.
        launch_s, parameter_s, overhead_s, waiting_s: of any plan.
    """

    tensor_cores_s: float = 0.0
    vector_cores_s: float = 0.0
    memory_bound_s: float = 0.0
    tensor_parallel_collectives_s: float = 0.0
    boundary_transfers_s: float = 0.0
    gradient_all_reduce_s: float = 0.0
    bubble_s: float = 0.0
    update_s: float = 0.0
    matmul_s: Annotated[float, omit_default(0.0)] = 0.0
    attention_s: Annotated[float, omit_default(0.0)] = 0.0
    vector_s: Annotated[float, omit_default(0.0)] = 0.0
    launch_s: Annotated[float, omit_default(0.0)] = 0.0
    parameter_s: Annotated[float, omit_default(0.0)] = 0.0
    overhead_s: Annotated[float, omit_default(0.0)] = 0.0
    waiting_s: Annotated[float, omit_default(0.0)] = 0.0

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by cause, without what only plans have where it is 0."""
        found: dict[str, float] = to_plain(TimeBreakdown, self)
        return found


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
    """Work done for one evaluation, as if it were the first: what was looked up counts as what it stands for.

    ``mips`` are the blocks that MIPs were solved for, so that several evaluations count each once (`together`).
    """

    num_ilp_solves: int = 0
    num_placements: int = 0
    mips: Annotated[tuple[tuple[str, int], ...], omit_default(())] = ()

    @classmethod
    def of(cls, mips: MipRuns, num_placements: int) -> "Effort":
        """With the number of its MIPs."""
        return cls(count_mips(mips), num_placements, tuple(sorted(mips)))

    @classmethod
    def together(cls, efforts: Sequence["Effort"]) -> "Effort":
        """Of several evaluations; a block that several of them meet was solved once."""
        mips = {run for effort in efforts for run in effort.mips}
        unnamed = sum(effort.num_ilp_solves - count_mips(effort.mips) for effort in efforts)
        placements = sum(effort.num_placements for effort in efforts)
        return cls(unnamed + count_mips(mips), placements, tuple(sorted(mips)))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The value of one architecture and micro-batch for one model (or, with ``members``, for several).

    Rates and times are zero, and ``placement`` None, unless ``status`` is FEASIBLE. ``mfu`` and ``throughput_per_tdp``
    count every device of the cluster, idle ones included; utilisations and ``average_power_w`` (of one device, W) only
    those used; energy (J) is of all used devices. No plan, placement or schedule exceeds ``throughput_bound_*``: it is
    above the throughput where open schedules, those of other plans too, leave the choice open. ``unknown`` names
    figures that are not published or not modelled: they are 0 here and null in JSON. ``throughput_per_usd``
    (samples/USD of the total cost of ownership) is None where nobody asked for it.
    """

    model: str
    status: EvaluationStatus
    reason: str
    accelerator: Accelerator
    micro_batch: int
    sequence_length: int
    num_parameters: int
    area_mm2: float = result_field(
        "area, mm2", "mm2", "of a chip", better=Better.LOWER, is_headline=True, needs_feasible=False
    )
    tdp_w: float = result_field(
        "TDP, W", "W", "thermal design power of a chip", better=Better.LOWER, is_headline=True, needs_feasible=False
    )
    throughput_samples_per_s: float = result_field(
        "samples/s", "samples/s", "of the whole cluster", default=0.0, better=Better.HIGHER, is_headline=True
    )
    throughput_bound_samples_per_s: float = result_field(
        "bound of samples/s", "samples/s", "that no plan, placement or schedule exceeds", default=0.0
    )
    throughput_tokens_per_s: float = result_field(
        "tokens/s", "tokens/s", "of the whole cluster", default=0.0, better=Better.HIGHER, is_headline=True,
        digits=Digits.COUNT,
    )  # fmt: skip
    iteration_time_s: float = result_field(
        "iteration", "s", "of one step", default=0.0, better=Better.LOWER, is_headline=True, digits=Digits.TIME
    )
    mfu: float = result_field(
        "model FLOPs utilisation", "", "model FLOPs over the peak of all devices", default=0.0, better=Better.HIGHER,
        is_headline=True, digits=Digits.SHARE,
    )  # fmt: skip
    throughput_per_tdp: float = result_field(
        "samples/s per kW of TDP", "samples/s/W", "over the TDP of all devices", default=0.0, better=Better.HIGHER,
        is_headline=True, scale=1000.0,
    )  # fmt: skip
    tc_utilisation: float = result_field(
        "tensor cores busy", "", "share of the used devices' MACs that an iteration keeps busy", default=0.0,
        better=Better.HIGHER, digits=Digits.SHARE,
    )  # fmt: skip
    vc_utilisation: float = result_field(
        "vector cores busy", "", "share of their lanes", default=0.0, better=Better.HIGHER, digits=Digits.SHARE
    )
    energy_per_iteration_j: float = result_field(
        "energy of an iteration, J",
        "J",
        "modelled, of all used devices",
        default=0.0,
        better=Better.LOWER,
        has_mean=False,
    )
    average_power_w: float = result_field(
        "average power, W", "W", "of one used device", default=0.0, better=Better.LOWER, has_mean=False
    )
    placement: PlacementResult | None = None
    schedules: tuple[LayerSchedule, ...] = ()
    breakdown: TimeBreakdown = field(default_factory=TimeBreakdown)
    provenance: Provenance = field(default_factory=Provenance)
    effort: Effort = field(default_factory=Effort)
    constraints: tuple[tuple[str, float], ...] = ()
    members: "tuple[Evaluation, ...]" = ()
    unknown: tuple[str, ...] = ()
    throughput_per_usd: float | None = result_field(
        "samples/USD", "samples/USD", "over the total cost of ownership; where it was asked for", default=None,
        better=Better.HIGHER,
    )  # fmt: skip

    def known(self, name: str) -> float | None:
        """A figure by name; None if it is not known."""
        value = None if name in self.unknown else getattr(self, name)
        return None if value is None else float(value)

    @property
    def figures(self) -> dict[str, float]:
        """Every declared figure that is known of it, by name."""
        known = {each.name: self.known(each.name) for each in fields_of(Evaluation) if self.has(each)}
        return {name: value for name, value in known.items() if value is not None}

    def has(self, figure: ResultField) -> bool:
        """Whether a figure has a meaning here: rates need a feasible design, energy one model."""
        return (self.is_feasible or not figure.needs_feasible) and (figure.has_mean or not self.members)

    @property
    def is_feasible(self) -> bool:
        """Whether every constraint holds."""
        return self.status is EvaluationStatus.FEASIBLE

    @property
    def is_planned(self) -> bool:
        """Whether it is of a full parallel plan, not of a placement."""
        return any(part.placement is not None and part.placement.plan is not None for part in (self, *self.members))

    @property
    def micro_batches(self) -> tuple[int, ...]:
        """Samples of a micro-batch: one, or with full plans those of each of several models."""
        return (
            tuple(member.micro_batch for member in self.members)
            if self.is_planned and self.members
            else (self.micro_batch,)
        )

    @property
    @declares("schedule gap", "", "largest gap that its schedules leave", better=Better.LOWER, digits=Digits.SHARE)
    def schedule_gap(self) -> float:
        """Largest gap of any of its schedules, or of its throughput where another plan may gain more."""
        gaps = [self.rate_gap, *(schedule.gap for schedule in self.schedules)]
        return max([*gaps, *(member.schedule_gap for member in self.members)], default=0.0)

    @property
    def rate_gap(self) -> float:
        """(bound - throughput) / bound: what open schedules leave of the choice of plans or placements; 0 if proven."""
        gap = relative_gap(self.throughput_bound_samples_per_s, self.throughput_samples_per_s)
        return 0.0 if is_proven(gap) else gap


THROUGHPUT = "throughput_samples_per_s"
"""The figure by which designs are sorted, drawn and compared."""


class Budgets(Protocol):
    """What states how large a chip may be and how much it may draw; None for no limit."""

    @property
    def max_area_mm2(self) -> float | None:
        """Area of a chip, mm2."""

    @property
    def max_tdp_w(self) -> float | None:
        """Thermal design power, W."""

    @property
    def max_capex_usd(self) -> float | None:
        """What the whole cluster may cost, USD."""


CAPEX = "capex"
"""Constraint on what a cluster costs."""


def budget_constraints(area_mm2: float | None, tdp_w: float | None, budgets: Budgets) -> tuple[tuple[str, float], ...]:
    """By how much a chip exceeds each budget, relative to it; what is not known, or not limited, is left out."""
    pairs = (("area", area_mm2, budgets.max_area_mm2), ("tdp", tdp_w, budgets.max_tdp_w))
    return tuple(
        (name, value / budget - 1.0) for name, value, budget in pairs if value is not None and budget is not None
    )


def unbuildable(blank: Evaluation, constants: Constants) -> Evaluation:
    """The evaluation of a chip whose die `over_reticle` finds too large."""
    excess, reason = over_reticle(blank.accelerator, constants)
    constraints = (("reticle", excess), *blank.constraints)
    told = f"this die could not be built: {reason}"
    return replace(blank, status=EvaluationStatus.UNBUILDABLE, reason=told, constraints=constraints)


def broken_budget(blank: Evaluation, budgets: Budgets) -> Evaluation | None:
    """The evaluation of a chip over a budget, else None; its constraints are `budget_constraints` and `CAPEX`."""
    for name, value in blank.constraints:
        if value > 0 and name == "area":
            reason = f"area {blank.area_mm2:.1f} mm2 exceeds the budget of {budgets.max_area_mm2:g} mm2"
            return replace(blank, status=EvaluationStatus.OVER_AREA, reason=reason)
        if value > 0 and name == "tdp":
            reason = f"TDP {blank.tdp_w:.1f} W exceeds the budget of {budgets.max_tdp_w:g} W"
            return replace(blank, status=EvaluationStatus.OVER_TDP, reason=reason)
        if value > 0 and name == CAPEX and budgets.max_capex_usd is not None:
            capex_usd = budgets.max_capex_usd * (1.0 + value)
            reason = (
                f"the cluster costs {capex_usd:,.0f} USD, which exceeds the budget of {budgets.max_capex_usd:,.0f} USD"
            )
            return replace(blank, status=EvaluationStatus.OVER_CAPEX, reason=reason)
    return None


SCALARS = tuple(
    name
    for name, kind in get_type_hints(Evaluation).items()
    if kind in (str, int, float, float | None, EvaluationStatus) and name != "num_parameters"
)
"""Fields of `Evaluation` that are themselves in its JSON; ``num_parameters`` is printed as ``parameters``."""
_DERIVED = tuple(name for name in names_of(Evaluation) if name not in SCALARS)
"""Figures that follow from others."""
_IF_ASKED = frozenset(field.name for field in fields(Evaluation) if field.default is None)
"""Metrics that are known only where they were asked for, and left out elsewhere."""
_OF_CHIP = frozenset(field.name for field in fields(Accelerator))
_AS_PLAIN = {"breakdown": TimeBreakdown, "provenance": Provenance, "effort": Effort}
"""Fields whose JSON is that of `plain_data`."""


def architecture_to_json(accelerator: Accelerator) -> dict[str, Any]:
    """An architecture in the units people use (binary MB and GB), with every exact field beside them."""
    exact = {name: value for name, value in asdict(accelerator).items() if value or name == "name"}
    # The clock stands below for every chip; an L2 that follows from the array is an exact figure alone.
    of_chip = [axis for axis in AXES if axis.name in exact and axis.name not in ("clock_hz", "l2_bytes")]
    friendly = {axis.key: axis.printed(exact[axis.name]) for axis in of_chip}
    friendly |= {
        "glb_bytes_per_cycle": round(accelerator.glb_bandwidth_bytes_per_s / accelerator.clock_hz, 6),
        "clock_ghz": accelerator.clock_hz / GIGA,
    }
    return friendly | {key: value for key, value in exact.items() if key not in friendly}


def evaluation_to_json(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as a JSON object; the keys of the command line, then what restores it exactly."""
    plain = to_plain(Evaluation, replace(evaluation, members=()))
    shown = [name for name in SCALARS if not (name in _IF_ASKED and plain.get(name) is None)]
    return {
        **{name: None if name in evaluation.unknown else plain[name] for name in shown},
        "parameters": evaluation.num_parameters,
        "architecture": architecture_to_json(evaluation.accelerator),
        "placement": _placement_to_json(evaluation, plain["placement"]),
        "schedule": _schedule_to_json(evaluation.schedules),
        **{name: evaluation.known(name) for name in _DERIVED},
        **{name: plain[name] for name in _AS_PLAIN},
        "constraints": dict(evaluation.constraints),
        "members": [evaluation_to_json(member) for member in evaluation.members],
    }


def _placement_to_json(evaluation: Evaluation, plain: dict[str, Any] | None) -> dict[str, Any] | None:
    """The placement with the counts people look for."""
    placement = evaluation.placement
    if placement is None or plain is None:
        return None
    return {
        "tensor_parallel": placement.tensor_parallel,
        "pipeline_stages": len(placement.stages),
        "data_parallel": placement.data_parallel,
        "micro_batch": evaluation.micro_batch,
        "num_micro_batches": placement.num_micro_batches,
        "recompute": [stage.is_recomputed for stage in placement.stages],
        "devices_used": placement.devices_used,
        **{name: plain[name] for name in ("batch_time_s", "status", "stages", "shortfall", "plan") if name in plain},
    }


def _schedule_to_json(schedules: tuple[LayerSchedule, ...]) -> dict[str, Any]:
    """By distinct layer: makespan, bound and gap of one pass through its phases, and each phase apart."""
    layers: dict[str, Any] = {}
    for name in dict.fromkeys(entry.layer for entry in schedules):
        phases = [entry for entry in schedules if entry.layer == name]
        makespan_s = sum(entry.makespan_s for entry in phases)
        bound_s = sum(entry.lower_bound_s for entry in phases)
        layers[name] = {
            **_proof(makespan_s, bound_s),
            "repeats": phases[0].repeats,
            "phases": {
                entry.phase: {**_proof(entry.makespan_s, entry.lower_bound_s), "status": entry.status.value}
                for entry in phases
            },
        }
    return layers


def _proof(makespan_s: float, lower_bound_s: float) -> dict[str, float]:
    gap = relative_gap(makespan_s, lower_bound_s)
    return {"makespan_s": makespan_s, "lower_bound_s": lower_bound_s, "gap": gap}


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
        **{name: data.get(name) if name in _IF_ASKED else data[name] for name in SCALARS},
        **dict.fromkeys(unknown := _unknown(data), 0.0),
        "unknown": unknown,
        **{name: _fields_of(kind, data[name]) for name, kind in _AS_PLAIN.items()},
        "num_parameters": data["parameters"],
        "accelerator": {name: value for name, value in _coded(data["architecture"]).items() if name in _OF_CHIP},
        "placement": None if data["placement"] is None else _fields_of(PlacementResult, data["placement"]),
        "schedules": _schedule_fields(data["schedule"]),
        "constraints": tuple(data["constraints"].items()),
        "members": tuple(_evaluation_fields(member) for member in data["members"]),
    }


def _coded(architecture: Mapping[str, Any]) -> dict[str, Any]:
    """An architecture with its kinds as the numbers that they have in an `Accelerator`."""
    kinds = {
        axis.name: axis.parsed(architecture[axis.key]) for axis in AXES if axis.choices and axis.key in architecture
    }
    return {**architecture, **kinds}


def _unknown(data: Mapping[str, Any]) -> tuple[str, ...]:
    """Figures that are null."""
    return tuple(name for name in SCALARS if name not in _IF_ASKED and data[name] is None)


def _fields_of(kind: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What a dataclass is made of, among what is printed with it."""
    left_out = omitted_names(kind)
    return {field.name: data[field.name] for field in fields(kind) if field.name in data or field.name not in left_out}


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
