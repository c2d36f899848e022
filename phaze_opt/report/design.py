"""One design in tables: what it is, what it does, how the model is placed, where the time goes, what is proven."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.objective.evaluation import Evaluation, LayerSchedule, TimeBreakdown
from phaze_opt.objective.references import EXPERT_PREFIX, is_expert
from phaze_opt.placement.problem import PlacementResult, Stage
from phaze_opt.report.content import Column, TableContent, pairs_table
from phaze_opt.report.text import (
    describe_cores,
    describe_memories,
    format_gib,
    format_number,
    format_ratio,
    format_scaled,
    format_share,
    format_time,
)

CAUSES = (
    ("tensor_cores_s", "tensor cores", "the tensor cores: matrix products take"),
    ("vector_cores_s", "vector cores", "the vector cores: softmax, norms and elementwise work take"),
    ("memory_bound_s", "memory", "memory: waiting for HBM and buffer traffic takes"),
    ("tensor_parallel_collectives_s", "tensor-parallel collectives", "the network: tensor-parallel collectives take"),
    ("boundary_transfers_s", "boundary transfers", "the network: transfers between pipeline stages take"),
    ("gradient_all_reduce_s", "gradient all-reduce", "the network: the data-parallel gradient all-reduce takes"),
    ("bubble_s", "pipeline bubble", "the pipeline: waiting for other stages takes"),
    ("update_s", "optimizer update", "the optimizer: updating the weights takes"),
)
"""Fields of `TimeBreakdown`, their short names, and the phrase that says what limits a design."""
BAR_CELLS = 20
PROVEN_GAP = 1e-9


def design_table(evaluation: Evaluation) -> TableContent:
    """The accelerator and the workload it was evaluated on."""
    chip = evaluation.accelerator
    title = f"Design: {chip.name}" if chip.name else "Design"
    samples = f"{evaluation.micro_batch} {'sample' if evaluation.micro_batch == 1 else 'samples'}"
    rows = (
        ("cores", describe_cores(chip)),
        ("memories", describe_memories(chip)),
        ("peak", f"{format_scaled(chip.peak_flops_per_s, 'FLOP/s')} at {chip.clock_hz / 1e9:.3g} GHz"),
        ("area, TDP", f"{format_number(evaluation.area_mm2)} mm2, {format_number(evaluation.tdp_w)} W"),
        ("model", f"{evaluation.model}, {evaluation.num_parameters:,} parameters"),
        ("sequence, micro-batch", f"{_sequences(evaluation)} tokens, {samples}"),
    )
    return pairs_table(title, rows, note=_machine_note(chip))


def _sequences(evaluation: Evaluation) -> str:
    """Tokens a sample, of each model."""
    lengths = dict.fromkeys(member.sequence_length for member in evaluation.members or (evaluation,))
    return ", ".join(f"{length}" for length in lengths)


def _machine_note(chip: Accelerator) -> str:
    """That a machine that exists is priced here like a design; empty for designs."""
    device = find_device(chip.name)
    if device is None or device.name != chip.name or device.layout is None or device.layout.num_tc != chip.num_tc:
        return ""
    published = (
        *((f"{format_number(device.die_mm2)} mm2",) if device.die_mm2 else ()),
        *((f"{format_number(device.tdp_w)} W",) if device.tdp_w else ()),
    )
    figures = f" (published: {', '.join(published)})" if published else ""
    return (
        f"{chip.name} exists; here it is priced as if designed, area and TDP at 22 nm{figures}; "
        "evaluate with --software prices training plans on the real one"
    )


EXPERTS_NOTE = "blocks split evenly by hand, best micro-batch of those searched (mb); Phaze's baselines"
MODELLED_NOTE = "every column is modelled, area and TDP at 22 nm; tpu-v4 is Phaze's reference of 256 vector lanes"


def performance_table(evaluation: Evaluation, *, references: Mapping[str, Evaluation]) -> TableContent:
    """The design beside the reference machines, a column each: rates, ratios, efficiency, area and power."""
    references = {name: other for name, other in references.items() if not is_expert(name)}
    others = tuple(references.values())
    columns = (Column(""), *(Column(name, is_number=True) for name in ("this design", *references)))
    rows = (
        ("samples/s", *(_if_feasible(e, format_number(e.throughput_samples_per_s)) for e in (evaluation, *others))),
        ("tokens/s", *(_if_feasible(e, f"{e.throughput_tokens_per_s:,.0f}") for e in (evaluation, *others))),
        ("design is faster by", "", *(format_ratio(_ratio(evaluation, other)) for other in others)),
        ("iteration", *(_if_feasible(e, format_time(e.iteration_time_s)) for e in (evaluation, *others))),
        ("model FLOPs utilisation", *(_if_feasible(e, format_share(e.mfu)) for e in (evaluation, *others))),
        ("area, mm2", *(format_number(e.area_mm2) for e in (evaluation, *others))),
        ("TDP, W", *(format_number(e.tdp_w) for e in (evaluation, *others))),
        (
            "samples/s per kW of TDP",
            *(_if_feasible(e, format_number(1000 * e.throughput_per_tdp)) for e in (evaluation, *others)),
        ),
    )
    failed = [f"{name} is infeasible: {other.reason}" for name, other in references.items() if not other.is_feasible]
    note = "; ".join([MODELLED_NOTE, *failed])
    return TableContent("Performance", columns, rows, note, emphasised=frozenset({0, 2}))


def experts_table(evaluation: Evaluation, *, experts: Mapping[str, Evaluation]) -> TableContent:
    """The hand placements that the design is compared with, a row each; what does not fit says why below."""
    headings = ("t x p x d", "mb", "samples/s", "iteration", "design is faster by")
    columns = (Column("machine"), *(Column(heading, is_number=True) for heading in headings))
    rows = tuple(
        (
            name.removeprefix(EXPERT_PREFIX),
            describe_degrees(other.placement) if other.placement is not None else "-",
            str(other.micro_batch),
            _if_feasible(other, format_number(other.throughput_samples_per_s)),
            _if_feasible(other, format_time(other.iteration_time_s)),
            format_ratio(_ratio(evaluation, other)),
        )
        for name, other in experts.items()
    )
    failed = [
        f"{name} is infeasible: {other.reason.split(';')[0]}"
        for name, other in experts.items()
        if not other.is_feasible
    ]
    return TableContent("Hand placements of an expert", columns, rows, "; ".join([EXPERTS_NOTE, *failed]))


def _if_feasible(evaluation: Evaluation, text: str) -> str:
    return text if evaluation.is_feasible else "infeasible"


def _ratio(evaluation: Evaluation, other: Evaluation) -> float:
    rate = other.throughput_samples_per_s
    return evaluation.throughput_samples_per_s / rate if rate > 0 else 0.0


def members_table(evaluation: Evaluation) -> TableContent:
    """A common design model by model."""
    headings = ("samples/s", "MFU", "t x p x d", "largest share of time")
    columns = (Column("model"), *(Column(heading, is_number=True) for heading in headings))
    rows = []
    for member in evaluation.members:
        name, share = largest_cause(member)
        degrees = "-" if member.placement is None else describe_degrees(member.placement)
        rate = format_number(member.throughput_samples_per_s)
        rows.append((member.model, rate, format_share(member.mfu), degrees, f"{name} {format_share(share)}"))
    return TableContent("Each model on this design", columns, tuple(rows))


def placement_table(placement: PlacementResult) -> TableContent:
    """Degrees in the title, one row per run of like stages."""
    columns = (
        Column("stages"),
        Column("layers"),
        Column("activations"),
        Column("time/micro-batch", is_number=True),
        Column("memory", is_number=True),
        Column("sync", is_number=True),
    )
    numbered = list(enumerate(placement.stages, start=1))
    rows = tuple(_stage_row(list(group)) for _, group in groupby(numbered, key=lambda item: _likeness(item[1])))
    title = (
        f"Placement: tensor {placement.tensor_parallel} x pipeline {len(placement.stages)} x "
        f"data {placement.data_parallel}"
    )
    count = placement.num_micro_batches
    batches = f"{count:,} micro-batch{'es' if count != 1 else ''}"
    note = f"{placement.devices_used:,} devices used; {batches} a replica and iteration"
    return TableContent(title, columns, rows, note)


def _likeness(stage: Stage) -> tuple[object, ...]:
    figures = (f"{stage.time_s:.4g}", format_gib(stage.memory_bytes), f"{stage.sync_s:.3g}")
    return (stage.last - stage.first, stage.is_recomputed, *figures)


def _stage_row(group: list[tuple[int, Stage]]) -> tuple[str, ...]:
    (first, stage), (last, end) = group[0], group[-1]
    numbers = str(first) if first == last else f"{first}-{last}"
    layers = stage.last - stage.first + 1
    span = f"{stage.first}-{end.last}" if end.last > stage.first else str(stage.first)
    return (
        numbers,
        f"{span} ({layers} each)" if len(group) > 1 else f"{span} ({layers})",
        "recomputed" if stage.is_recomputed else "stashed",
        format_time(stage.time_s),
        format_gib(stage.memory_bytes),
        format_time(stage.sync_s),
    )


def describe_degrees(placement: PlacementResult) -> str:
    """Tensor x pipeline x data."""
    return f"{placement.tensor_parallel} x {len(placement.stages)} x {placement.data_parallel}"


def time_table(evaluation: Evaluation) -> TableContent:
    """Where an iteration's time goes, largest first, with a bar."""
    columns = (
        Column("where the time goes"),
        Column("time", is_number=True),
        Column("share", is_number=True),
        Column(""),
    )
    rows = tuple(
        (name, format_time(seconds), format_share(share), "█" * round(BAR_CELLS * share))
        for name, seconds, share in time_shares(evaluation.breakdown)
        if seconds > 0
    )
    return TableContent(f"One iteration: {format_time(evaluation.iteration_time_s)}", columns, rows)


def time_shares(breakdown: TimeBreakdown) -> tuple[tuple[str, float, float], ...]:
    """(name, seconds, share) of every cause, largest first."""
    seconds = {name: float(getattr(breakdown, field)) for field, name, _ in CAUSES}
    total = sum(seconds.values())
    shares = ((name, value, value / total if total > 0 else 0.0) for name, value in seconds.items())
    return tuple(sorted(shares, key=lambda item: -item[1]))


def largest_cause(evaluation: Evaluation) -> tuple[str, float]:
    """Name and share of what takes most of an iteration."""
    name, _, share = time_shares(evaluation.breakdown)[0]
    return name, share


def schedule_table(evaluation: Evaluation) -> TableContent:
    """Makespan, proven bound and gap of every distinct layer and phase."""
    columns = (
        Column("layer"),
        Column("phase"),
        Column("repeats", is_number=True),
        Column("makespan", is_number=True),
        Column("lower bound", is_number=True),
        Column("gap", is_number=True),
        Column("status"),
    )
    rows = tuple(_schedule_row(item) for item in evaluation.schedules if item.makespan_s > 0)
    return TableContent("Operator schedules on one device", columns, rows)


def _schedule_row(item: LayerSchedule) -> tuple[str, ...]:
    is_proven = item.gap <= PROVEN_GAP
    return (
        item.layer,
        item.phase,
        str(item.repeats),
        format_time(item.makespan_s),
        format_time(item.lower_bound_s),
        "0" if is_proven else f"{100 * item.gap:.2g} %",
        "proven optimal" if is_proven else item.status.value.replace("_", " "),
    )


def limits_sentence(evaluation: Evaluation) -> str:
    """One plain sentence on what limits the design."""
    if not evaluation.is_feasible:
        return f"This design is infeasible ({evaluation.status.value.replace('_', ' ')}): {evaluation.reason}"
    if evaluation.members:
        slowest = min(evaluation.members, key=lambda member: member.mfu)
        return f"Its least efficient model is {slowest.model}. {limits_sentence(slowest)}"
    phrases = {name: phrase for _, name, phrase in CAUSES}
    (name, _, share), (next_name, _, next_share) = time_shares(evaluation.breakdown)[:2]
    sentence = f"What limits this design is {phrases[name]} {format_share(share)} of an iteration"
    if next_share > 0:
        sentence += f", then {next_name} with {format_share(next_share)}"
    return f"{sentence}."
