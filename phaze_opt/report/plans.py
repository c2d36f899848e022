"""Parallel plans and training software: the fastest plans, where time and memory go, and what their prices rest on."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from phaze_opt.cost.measured_software import (
    SoftwareRows,
    machine_gap,
    measured_rows,
    model_gap,
    shared_and_own,
    unmeasured_parts,
    usual_zero,
)
from phaze_opt.cost.plan_memory import RESERVE_SHARE
from phaze_opt.cost.step_time import StepTime
from phaze_opt.hardware.fitted import FittedGroup
from phaze_opt.plan.plan_search import PlanRanking, RankedPlan
from phaze_opt.report.table import Column, Field, Fields, TableContent, number, pairs_table, table_of, words
from phaze_opt.report.text import format_number, format_share, format_time
from phaze_opt.units import bytes_to_gib
from phaze_opt.workload.plan import ParallelPlan, Recompute
from phaze_opt.workload.software import TrainingStack

ERROR = "cross_validated_mape"
"""Figure of a data set in the file of constants: mean error of rows that were kept out of the fit, per cent."""
CALIBRATED = "phaze-opt calibrate"
"""What the file of constants names as the source of groups that the command fitted."""
STEPS = "train_"
"""Beginning of the names of data sets of whole steps."""
MARK = "*"
MOST_NAMED = 4


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
    "ideal software: rates of the data sheet (of TPUs what matmuls alone reach of them) but for tiles that are not "
    "full, nothing overlapped; --software names real ones"
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
    fields: Fields[tuple[str, RankedPlan]] = (
        number("#", lambda item: item[0]),
        number("t x p x d", lambda item: f"{item[1].plan.tensor} x {item[1].plan.pipeline} x {item[1].plan.data}"),
        *(each.field for each in degrees),
        words("rec.", lambda item: _RECOMPUTE[item[1].plan.recompute]),
        number("step", lambda item: format_time(item[1].time.seconds)),
        number("tokens/s", lambda item: format_number(setting.tokens_per_s(item[1].time))),
        number("MFU", lambda item: format_share(setting.mfu(item[1]))),
        number("GiB", lambda item: _gib(item[1].memory.peak_bytes)),
    )
    items = [(f"{rank}{mark}", ranked) for rank, (ranked, mark) in enumerate(zip(best, marks, strict=True), start=1)]
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
    return table_of(title, fields, items, note, emphasis=lambda item: item[1] is best[0])


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

    @property
    def field(self) -> Field[tuple[str, RankedPlan]]:
        """Its column in the table of plans."""
        return number(self.heading, lambda item: self.text(item[1].plan))


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
    parts = sorted(((getattr(time, part.name), names[part.name]) for part in dataclasses.fields(time)), reverse=True)
    fields: Fields[tuple[float, str]] = (
        words("part", lambda part: part[1]),
        number("time", lambda part: format_time(part[0])),
        number("share", lambda part: format_share(part[0] / time.seconds)),
    )
    shown = (part for part in parts if part[0] > TRACE * time.seconds)
    note = describe_plan(best.plan) + (f"; {_IDEAL_NOTE}" if setting.is_ideal else "")
    return table_of(f"Where a step of {format_time(time.seconds)} goes", fields, shown, note)


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


def coverage_note(plans: Sequence[RankedPlan], software: str) -> tuple[str, tuple[str, ...]]:
    """Which plans rest on what was never measured with a software.

    Returns:
        one clause, empty if every part of every plan was measured or the software is measured nowhere, and for each
        plan a mark, or nothing; what all of them share marks none.
    """
    rows = measured_rows(software)
    if rows is None or not plans:
        return "", ("",) * len(plans)
    parts = [unmeasured_parts(each.plan, rows) for each in plans]
    shared, others = shared_and_own(parts)
    marks = tuple(MARK if set(each) - set(shared) else "" for each in parts)
    clauses = []
    if others:
        clauses.append(f"{MARK} has parts that no measurement of {software} covers: {_named(others)}")
    if shared:
        who = "all of these have" if len(plans) > 1 else "it has"
        clauses.append(f"{who} what no measurement of {software} covers: {', '.join(shared)}")
    return "; ".join(clauses), marks


def _named(counts: Sequence[tuple[str, int]]) -> str:
    shown = [f"{part} ({count})" for part, count in counts[:MOST_NAMED]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {rest} more (--json names all)" if rest else "")


def software_notes(
    software: str,
    *,
    machine: str,
    dtype: str,
    is_chosen: bool,
    is_zero_named: bool,
    gradients: tuple[int, int, str],
    num_experts: int,
    sequence_length: int,
    errors: Mapping[str, Mapping[str, float]],
    own_fit: str = "",
) -> tuple[str, ...]:
    """Sentences on a software that plans are priced with; none on one that is measured nowhere.

    Args:
        software: its name.
        machine: what plans are priced on.
        dtype: format of its matmuls.
        is_chosen: whether the machine decided on it, as the user named none.
        is_zero_named: whether the user named ZeRO stages.
        gradients: bytes of a gradient, as priced and as the software has them, and where the latter is known from.
        num_experts: of a block of the model; 1 without any.
        sequence_length: tokens.
        errors: figures by data set, as the file of constants holds them.
        own_fit: what the user fitted the software's constants to; then published rows say nothing of them.
    """
    rows = measured_rows(software)
    if rows is None:
        return ()
    notes = []
    if is_chosen:
        notes.append(f"software {software}, as measured on {machine}; --software names another, ideal among them")
    stage = usual_zero(software)
    if stage and not is_zero_named:
        notes.append(f"ZeRO {stage} unless --zero says otherwise: {software} was never measured without")
    gaps = (
        own_fit or machine_gap(rows, software=software, machine=machine, dtype=dtype),
        model_gap(rows, software=software, num_experts=num_experts, sequence_length=sequence_length),
    )
    notes += [gap for gap in gaps if gap]
    notes.append(gradient_note(*gradients))
    error = error_note(rows, errors)
    if error and not own_fit:
        notes.append(f"steps of {software} that were kept out of its fit are predicted with a mean error of {error}")
    return tuple(notes)


def own_fit_note(software: str, groups: Sequence[FittedGroup]) -> str:
    """What a software's constants rest on where ``phaze-opt calibrate`` fitted them to rows of the user's; else empty.

    Args:
        software: its name.
        groups: of the file of constants in force, that hold constants of the software.
    """
    own = [group for group in groups if group.source == CALIBRATED]
    if not own:
        return ""
    number = len({(name, row) for group in own for name, rows in group.datasets.items() for row in rows})
    figures = own[-1].residuals
    words = [
        f"{what} {figures[key]:.1f} %"
        for key, what in (("mape", "mean error"), (ERROR, "of rows kept out"))
        if key in figures
    ]
    noun = "row" if number == 1 else "rows"
    return f"constants of {software} were fitted to {number} {noun} of your own, and speak of their machines" + (
        f" ({', '.join(words)})" if words else ""
    )


def gradient_note(priced: int, own: int, source: str) -> str:
    """How wide gradients are, held and sent."""
    if priced != own:
        return f"gradients are held and sent in {8 * priced} bits as asked; the software was measured with {8 * own}"
    other = 32 if own == 2 else 16
    return f"gradients are held and sent in {8 * own} bits ({source}); --gradient-bits {other} for the other width"


def error_note(rows: SoftwareRows, errors: Mapping[str, Mapping[str, float]]) -> str:
    """Errors of steps kept out, by data set; empty if the file of constants has none."""
    steps = [name for name in rows.datasets if name.startswith(STEPS)]
    found = [(name, errors[name][ERROR]) for name in steps if ERROR in errors.get(name, {})]
    return ", ".join(f"{value:.1f} % ({name.removeprefix(STEPS)})" for name, value in found)


def choices_table(stacks: Sequence[TrainingStack]) -> TableContent:
    """Kernels, gradients and overlaps of each."""
    fields: Fields[TrainingStack] = (
        words("software", lambda stack: stack.name),
        words("kernels fused", lambda stack: stack.fusion.value),
        words("attention", lambda stack: stack.attention.value),
        number("bits", lambda stack: str(8 * stack.gradient_bytes)),
        number("overlap t, g, p", _overlaps),
    )
    note = (
        "bits: of a gradient, held and sent; overlap: shares that hide behind compute, of tensor-parallel traffic, "
        "of what replicas send once a step and of what ZeRO 2 and 3 send every micro-batch; all constants with --json"
    )
    return table_of("Training software", fields, stacks, note)


def _overlaps(stack: TrainingStack) -> str:
    shares = (stack.tensor_overlap, stack.data_overlap, stack.parameter_overlap)
    return " ".join(f"{share:.2f}" for share in shares)


def measured_table(names: Sequence[str], errors: Mapping[str, Mapping[str, float]]) -> TableContent:
    """Machine and data set of each software's rows; `errors` has figures by data set."""
    rows = []
    for name in names:
        measured = measured_rows(name)
        if measured is None:
            rows.append((name, "none", "", ""))
            continue
        for each in measured.rows:
            error = errors.get(each.dataset, {}).get(ERROR)
            shown = "" if error is None else f"{error:.1f}"
            rows.append((name, f"{each.machine} {each.dtype}", each.dataset.removeprefix("train_"), shown))
    columns = (Column("software"), Column("machine"), Column("data set"), Column("error, %", is_number=True))
    note = "error: mean of rows of the data set that were kept out of the fit, over all its machines"
    return TableContent("Measured on", columns, tuple(rows), note)


def features_table(names: Sequence[str]) -> TableContent:
    """Largest degree of each parallel feature, and recomputation, of each software's rows."""
    fields: Fields[tuple[str, SoftwareRows]] = (
        words("software", lambda item: item[0]),
        words("parallel features, to degree", lambda item: ", ".join(f"{k} {v}" for k, v in item[1].reach.items())),
        words("recomputation", lambda item: ", ".join(sorted(each.value for each in item[1].recompute))),
    )
    found = [(name, rows) for name in names if (rows := measured_rows(name)) is not None]
    note = "`evaluate` marks plans with features that no row has; degrees of ZeRO are devices that share the state"
    return table_of("What was measured", fields, found, note)
