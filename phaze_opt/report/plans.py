"""Parallel plans in tables: the fastest, where the time of a step goes and what fills the memory."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from types import MappingProxyType

from phaze_opt.cost.plan_memory import PlanMemory
from phaze_opt.cost.stacks import measured_rows, shared_and_own, unmeasured_parts
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.priced_as import PriceSetting
from phaze_opt.plan.launch_flags import LaunchFlags
from phaze_opt.plan.plan_search import PlanRanking, RankedPlan
from phaze_opt.report.chip import silicon_words
from phaze_opt.report.table import Field, Fields, TableContent, number, pairs_table, table_of, words
from phaze_opt.report.text import counted, format_number, format_scaled, format_share, format_time
from phaze_opt.units import bytes_to_gib
from phaze_opt.workload.plan import ParallelPlan, Recompute

MARK, NEAR_MARK, FULL_MARK = "*", "~", "!"
"""Beside the rank of a plan: parts never measured, perhaps as fast as the first, memory to the brim."""
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
BRIM_NOTE = "fills the memory to the brim: the range of its peak reaches beyond it"
_RECOMPUTE = MappingProxyType({Recompute.NONE: "none", Recompute.SELECTIVE: "sel.", Recompute.FULL: "full"})
IDEAL_NOTE = (
    "ideal software: rates of the data sheet (of TPUs what matmuls alone reach of them) but for tiles that are not "
    "full, nothing overlapped; --software names real ones"
)


def plans_table(ranking: PlanRanking, setting: PriceSetting, *, top: int, to_run: int = 0) -> TableContent:
    """The ``top`` fastest plans and the one to run; degrees that are 1, or 0, in all of them have no column.

    Marks beside its rank say that a plan has parts which no measurement of the software covers, that it may be as fast
    as the first for all that the model's error says, or that it fills the memory to the brim.
    """
    best = list(ranking.ranked[:top])
    places = [*range(len(best)), *([to_run] if to_run >= len(best) else [])]
    best += [ranking.ranked[place] for place in places[len(best) :]]
    coverage, unmeasured = coverage_note(best, setting.software)
    caution, others = caution_note(best, setting)
    marks = tuple(map("".join, zip(unmeasured, others, strict=True)))
    degrees = [each for each in _DEGREES if any(each.is_said(ranked.plan) for ranked in best)]
    fields: Fields[tuple[str, RankedPlan]] = (
        number("#", lambda item: item[0]),
        number("t x p x d", lambda item: f"{item[1].plan.tensor} x {item[1].plan.pipeline} x {item[1].plan.data}"),
        *(each.field for each in degrees),
        words("rec.", lambda item: _recompute_word(item[1].plan)),
        number("step", lambda item: format_time(item[1].time.seconds)),
        number(f"{setting.counted}/s", lambda item: format_number(setting.tokens_per_s(item[1].time))),
        number("MFU", lambda item: format_share(setting.mfu(item[1]))),
        number("GiB", lambda item: _gib(item[1].memory.peak_bytes)),
    )
    items = [(f"{place + 1}{mark}", ranked) for place, ranked, mark in zip(places, best, marks, strict=True)]
    meanings = "".join(f"{each.heading} {each.meaning}, " for each in degrees)
    note = (
        f"{len(best)} of {counted(len(ranking.ranked), 'plan')} that fit, {ranking.num_misfits:,} do not"
        f"{_left_out(ranking)}; "
        f"t tensor, p pipeline, d data parallel, {meanings}rec. recomputation, MFU of the {setting.peak_type} peak, "
        f"GiB of the fullest stage, {_range_note(best)}; {setting.tokens:,} {setting.counted} a step, "
        f"network {setting.network}"
    )
    idle = max((setting.num_devices - ranked.plan.num_devices for ranked in best), default=0)
    if idle:
        note += f"; up to {counted(idle, 'device')} idle, which MFU counts"
    note = "; ".join(filter(None, (note, coverage, caution)))
    title = f"Plans of {setting.model} on {setting.num_devices:,} {setting.machine} ({setting.software})"
    return table_of(title, fields, items, note, emphasis=lambda item: item[1] is best[places.index(to_run)])


def _range_note(plans: Sequence[RankedPlan]) -> str:
    """How far below and above it a run may lie."""
    low, high = next(((each.memory.low_share, each.memory.high_share) for each in plans), (0.0, 0.0))
    if not low:
        return f"which may take up to {high:.0%} more"
    return f"which may take {low:.0%} less to {high:.0%} more (peaks elsewhere were 16 to 37% off)"


def _range_words(memory: PlanMemory) -> str:
    """The peak of a plan with its range."""
    low, high = memory.range_bytes
    return f"{_gib(memory.peak_bytes)} GiB ({_gib(low)} to {_gib(high)})"


def caution_note(plans: Sequence[RankedPlan], setting: PriceSetting) -> tuple[str, tuple[str, ...]]:
    """Which plans may be as fast as the first, and which fill the memory to the brim.

    Returns:
        clauses, empty if there are none, and for each plan its marks, or nothing.
    """
    near = [each is not plans[0] and bool(setting.is_within_error(each, plans[0])) for each in plans]
    full = [setting.is_to_the_brim(each) for each in plans]
    marks = tuple(NEAR_MARK * is_near + FULL_MARK * is_full for is_near, is_full in zip(near, full, strict=True))
    clauses = []
    if any(near):
        clauses.append(
            f"{NEAR_MARK} within {setting.error_share:.1%} of the first, too near to tell apart: either may be faster"
        )
    if any(full):
        clauses.append(f"{FULL_MARK} {BRIM_NOTE}")
    return "; ".join(clauses), marks


def _left_out(ranking: PlanRanking) -> str:
    """Plans that others of the same degrees beat, in words."""
    number = len(ranking.beaten)
    return f", {number:,} more are no faster and save no memory by their recomputation or ZeRO stage" if number else ""


@dataclass(frozen=True, slots=True)
class _Degree:
    """A column that most plans do not need; plans say it unless it is neutral."""

    heading: str
    meaning: str
    is_said: Callable[[ParallelPlan], bool]
    text: Callable[[ParallelPlan], str]

    @property
    def field(self) -> Field[tuple[str, RankedPlan]]:
        """Its column in the table of plans."""
        return number(self.heading, lambda item: self.text(item[1].plan))


_DEGREES = (
    _Degree("c", "context parallel", lambda plan: plan.context > 1, lambda plan: str(plan.context)),
    _Degree("e", "expert parallel", lambda plan: plan.has_expert_groups, lambda plan: str(plan.expert_group[0])),
    _Degree(
        "et", "expert tensor parallel", lambda plan: plan.expert_tensor > 0, lambda plan: str(plan.expert_group[1])
    ),
    _Degree("v", "model chunks a stage", lambda plan: plan.interleave > 1, lambda plan: str(plan.interleave)),
    _Degree("mb", "micro-batch", lambda plan: True, lambda plan: str(plan.micro_batch)),
    _Degree("zero", "ZeRO stage", lambda plan: plan.zero > 0, lambda plan: str(plan.zero)),
    _Degree(
        "shards",
        "replicas that share the state",
        lambda plan: plan.state_shards > 0,
        lambda plan: str(plan.state_shards),
    ),
)
"""Degrees of experts are those that Megatron-LM counts: where a plan says nothing of them, t and 1."""


def _gib(num_bytes: float) -> str:
    """The same figure in every table of plans."""
    return f"{bytes_to_gib(num_bytes):.1f}"


def describe_plan(plan: ParallelPlan) -> str:
    """`plan_words`, said to be a plan."""
    return f"plan: {plan_words(plan)}"


def plan_words(plan: ParallelPlan) -> str:
    """One plan in words: its three degrees, micro-batch and recomputation, and of the others what is not neutral."""
    others = (f"{each.meaning} {each.text(plan)}" for each in _DEGREES if each.is_said(plan))
    return (
        f"tensor {plan.tensor} x pipeline {plan.pipeline} x data {plan.data}, {', '.join(others)}, "
        f"recomputation {_stages_words([each.value for each in plan.recomputes])}"
        + (f", blocks a stage {_stages_words([str(each) for each in plan.blocks])}" if plan.blocks else "")
        + (f", in the order {_order_words(plan.unit_order)}" if plan.unit_order else "")
    )


def _order_words(order: Sequence[int]) -> str:
    """Numbers of blocks, first to last; runs of rising ones by their ends."""
    breaks = [0, *(place for place in range(1, len(order)) if order[place] != order[place - 1] + 1), len(order)]
    runs = [order[start:stop] for start, stop in pairwise(breaks)]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _stages_words(values: Sequence[str]) -> str:
    """One word of every stage, first stage first; runs of the same word as a product."""
    runs = [(word, len(list(same))) for word, same in groupby(values)]
    if len(runs) == 1:
        return runs[0][0]
    return ", ".join(word if count == 1 else f"{count} x {word}" for word, count in runs)


def _recompute_word(plan: ParallelPlan) -> str:
    """The one choice of all stages in short, or that they differ."""
    return "mixed" if plan.stage_recompute else _RECOMPUTE[plan.recompute]


def step_table(best: RankedPlan, setting: PriceSetting, causes: Sequence[tuple[str, float]] = ()) -> TableContent:
    """Where the time of one plan's step goes.

    Args:
        best: the plan.
        setting: what it was priced under.
        causes: of a designed chip, where computing is told apart by what it waits for: names and seconds.
    """
    time = best.time
    if causes:
        parts = [(seconds, name) for name, seconds in causes]
    else:
        parts = [(getattr(time, part.name), PART_NAMES[part.name]) for part in dataclasses.fields(time)]
    parts.sort(reverse=True)
    fields: Fields[tuple[float, str]] = (
        words("part", lambda part: part[1]),
        number("time", lambda part: format_time(part[0])),
        number("share", lambda part: format_share(part[0] / time.seconds)),
    )
    shown = (part for part in parts if part[0] > TRACE * time.seconds)
    note = describe_plan(best.plan) + (f"; {IDEAL_NOTE}" if setting.is_ideal else "")
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
        *((("context and communication", stage.device_bytes),) if stage.device_bytes else ()),
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


def machine_table(evaluation: Evaluation, setting: PriceSetting) -> TableContent:
    """What is known of one device of the machine; area and power of a real one are as published."""
    source = "as published" if setting.is_real else f"modelled, {silicon_words(evaluation.accelerator)}"
    peak = f"{format_scaled(setting.peak_flops_per_s, 'FLOP/s')} in {setting.peak_type}"
    rows = (
        ("peak", peak),
        ("memory", f"{_gib(setting.memory_bytes)} GiB"),
        ("die area", known_figure(evaluation, "area_mm2", "mm2")),
        ("board power" if setting.is_real else "TDP", known_figure(evaluation, "tdp_w", "W")),
        ("network", setting.network),
    )
    return pairs_table(f"One device: {setting.machine}", rows, note=f"area and power {source}")


def known_figure(evaluation: Evaluation, name: str, unit: str) -> str:
    """A figure of a machine with its unit, or that it is not published."""
    value = evaluation.known(name)
    return "not published" if value is None else f"{format_number(value)} {unit}".rstrip()


def alone_sentences(best: RankedPlan, setting: PriceSetting) -> tuple[str, ...]:
    """What the table of plans says, of one plan that needs no table."""
    rate, mfu = setting.tokens_per_s(best.time), setting.mfu(best)
    share = f"MFU {100 * mfu:.1f} % of the {setting.peak_type} peak"
    coverage, _ = coverage_note([best], setting.software)
    brim = f"it {BRIM_NOTE}" if setting.is_to_the_brim(best) else ""
    held = f"memory {_range_words(best.memory)}"
    first = f"{best.time.seconds:.4g} s a step, {rate:,.0f} {setting.counted}/s, {share}; {held}"
    return (first, *filter(None, (coverage, brim)))


def launch_sentences(flags: LaunchFlags) -> tuple[str, ...]:
    """How the plan to run is launched, by launcher, and what a launcher has no words for."""
    known = (("Megatron-LM", flags.megatron), ("FSDP (accelerate launch)", flags.fsdp), ("MaxText", flags.maxtext))
    return (*(f"{name}: {' '.join(words)}" for name, words in known if words), *(f"{each}." for each in flags.unsaid))
