"""Parallel plans in tables: the fastest ones, and where the time and the memory of the best go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from types import MappingProxyType

from phaze_opt.objective.step.plan_search import PlanRanking, RankedPlan
from phaze_opt.placement.plan_memory import RESERVE_SHARE
from phaze_opt.placement.step_time import StepTime
from phaze_opt.report.content import Column, TableContent, pairs_table
from phaze_opt.report.plan_notes import coverage_note
from phaze_opt.report.text import format_number, format_share, format_time
from phaze_opt.units import bytes_to_gib
from phaze_opt.workload.plan import ParallelPlan, Recompute

PART_NAMES = MappingProxyType(
    {
        "matmul_s": "matmuls",
        "attention_s": "attention",
        "vector_s": "norms, activations and other vector work",
        "launch_s": "waiting for launches",
        "tensor_s": "collectives inside layers",
        "transfer_s": "transfers between stages",
        "bubble_s": "pipeline bubble",
        "parameter_s": "parameter traffic (ZeRO 3)",
        "gradient_s": "gradient and parameter collectives",
        "update_s": "optimizer update",
        "overhead_s": "fixed time of a step",
        "waiting_s": "waiting for the slowest island",
    }
)
"""Fields of `StepTime` in words."""
TRACE = 1e-9
"""Share of a step below which a part is what rounding left of it, and has no row."""
RESERVE_NOTE = f"memory includes {RESERVE_SHARE:.0%} for workspace and fragmentation"
_RECOMPUTE = MappingProxyType({Recompute.NONE: "none", Recompute.SELECTIVE: "sel.", Recompute.FULL: "full"})
_IDEAL_NOTE = (
    "ideal software: rates of the data sheet but for tiles that are not full, nothing overlapped; --software names "
    "real ones"
)


@dataclass(frozen=True, slots=True)
class PlanSetting:
    """What every plan of a ranking shares.

    Attributes:
        machine, software, network, model: names.
        num_devices: devices of the cluster.
        tokens: of one step.
        flops: model FLOPs of one step.
        peak_flops_per_s: of one device.
        peak_type: number format that the peak is of.
        is_ideal: whether a real machine is priced with ideal software.
        notes: sentences on what the prices rest on.
    """

    machine: str
    software: str
    network: str
    model: str
    num_devices: int
    tokens: int
    flops: float
    peak_flops_per_s: float
    peak_type: str = "bf16"
    is_ideal: bool = False
    notes: tuple[str, ...] = ()

    def tokens_per_s(self, time: StepTime) -> float:
        """Tokens a second over the whole cluster."""
        return self.tokens / time.seconds

    def mfu(self, ranked: RankedPlan) -> float:
        """Model FLOPs over what the plan's devices could do in the time of its step."""
        return self.flops / (ranked.time.seconds * ranked.plan.num_devices * self.peak_flops_per_s)


def plans_table(ranking: PlanRanking, setting: PlanSetting, *, top: int) -> TableContent:
    """The ``top`` fastest plans; degrees that are 1, or 0, in all of them have no column.

    A mark beside its rank says that a plan has parts which no measurement of the software covers.
    """
    best = ranking.ranked[:top]
    coverage, marks = coverage_note(best, setting.software)
    degrees = [each for each in _DEGREES if any(each.text(ranked.plan) != each.neutral for ranked in best)]
    columns = (
        Column("#", is_number=True),
        Column("t x p x d", is_number=True),
        *(Column(each.heading, is_number=True) for each in degrees),
        Column("rec."),
        *(Column(heading, is_number=True) for heading in ("step", "tokens/s", "MFU", "GiB")),
    )
    rows = tuple(
        (
            f"{rank}{mark}",
            f"{ranked.plan.tensor} x {ranked.plan.pipeline} x {ranked.plan.data}",
            *(each.text(ranked.plan) for each in degrees),
            _RECOMPUTE[ranked.plan.recompute],
            format_time(ranked.time.seconds),
            format_number(setting.tokens_per_s(ranked.time)),
            format_share(setting.mfu(ranked)),
            _gib(ranked.memory.peak_bytes),
        )
        for rank, (ranked, mark) in enumerate(zip(best, marks, strict=True), start=1)
    )
    meanings = "".join(f"{each.heading} {each.meaning}, " for each in degrees)
    note = (
        f"{len(best)} of {len(ranking.ranked):,} plans that fit, {ranking.num_misfits:,} do not{_left_out(ranking)}; "
        f"t tensor, p pipeline, d data parallel, {meanings}rec. recomputation, MFU of the {setting.peak_type} peak, "
        f"GiB of the fullest stage; {RESERVE_NOTE}; {setting.tokens:,} tokens a step, network {setting.network}"
    )
    idle = max((setting.num_devices - ranked.plan.num_devices for ranked in best), default=0)
    if idle:
        note += f"; up to {idle:,} devices idle, which MFU leaves out"
    if coverage:
        note += f"; {coverage}"
    title = f"Plans of {setting.model} on {setting.num_devices:,} {setting.machine} ({setting.software})"
    return TableContent(title, columns, rows, note, emphasised=frozenset({0}))


def _left_out(ranking: PlanRanking) -> str:
    """Plans that recompute in vain, in words."""
    number = ranking.num_dominated
    return f", {number:,} more recompute without saving memory" if number else ""


@dataclass(frozen=True, slots=True)
class _Degree:
    """A column that most plans do not need."""

    heading: str
    meaning: str
    neutral: str
    text: Callable[[ParallelPlan], str]


_DEGREES = (
    _Degree("c", "context parallel", "1", lambda plan: str(plan.context)),
    _Degree("e", "expert parallel", "1", lambda plan: str(plan.expert)),
    _Degree("v", "model chunks a stage", "1", lambda plan: str(plan.interleave)),
    _Degree("mb", "micro-batch", "", lambda plan: str(plan.micro_batch)),
    _Degree("zero", "ZeRO stage", "0", lambda plan: str(plan.zero)),
    _Degree("shards", "replicas that share the state", "0", lambda plan: str(plan.state_shards)),
)


def _gib(num_bytes: float) -> str:
    """The same figure in every table of plans."""
    return f"{bytes_to_gib(num_bytes):.1f}"


def describe_plan(plan: ParallelPlan) -> str:
    """One plan in words: its three degrees, micro-batch and recomputation, and of the others what is not neutral."""
    others = (f"{each.meaning} {each.text(plan)}" for each in _DEGREES if each.text(plan) != each.neutral)
    return (
        f"plan: tensor {plan.tensor} x pipeline {plan.pipeline} x data {plan.data}, {', '.join(others)}, "
        f"recomputation {plan.recompute.value}"
    )


def step_table(best: RankedPlan, setting: PlanSetting) -> TableContent:
    """Where the time of one plan's step goes."""
    time = best.time
    is_told_apart = time.attention_s > 0 or time.vector_s > 0
    names = PART_NAMES if is_told_apart else {**PART_NAMES, "matmul_s": "computing (scheduled operators)"}
    parts = sorted(((getattr(time, f.name), names[f.name]) for f in fields(time)), reverse=True)
    rows = tuple(
        (name, format_time(seconds), format_share(seconds / time.seconds))
        for seconds, name in parts
        if seconds > TRACE * time.seconds
    )
    columns = (Column("part"), Column("time", is_number=True), Column("share", is_number=True))
    note = describe_plan(best.plan) + (f"; {_IDEAL_NOTE}" if setting.is_ideal else "")
    return TableContent(f"Where a step of {format_time(time.seconds)} goes", columns, rows, note)


def memory_table(best: RankedPlan) -> TableContent:
    """Memory of the fullest stage of one plan."""
    stages = best.memory.stages
    number = max(range(len(stages)), key=lambda index: stages[index].total_bytes)
    stage = stages[number]
    parts = (
        ("weights", stage.weight_bytes),
        ("gradients", stage.gradient_bytes),
        ("optimizer state", stage.optimizer_bytes),
        *((("layers whole for a while (ZeRO)", stage.gathered_bytes),) if stage.gathered_bytes else ()),
        ("activations", stage.activation_bytes),
        ("reserve", stage.reserve_bytes),
        ("all", stage.total_bytes),
    )
    rows = tuple((name, f"{_gib(num_bytes)} GiB") for name, num_bytes in parts)
    return pairs_table(f"Memory, stage {number + 1} of {len(stages)}", rows)
