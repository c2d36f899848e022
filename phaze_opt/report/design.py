"""One design in tables: what it is and does, its placement, where the time goes, what is proven, what it assumes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from phaze_opt.hardware.accelerator import Accelerator
from phaze_opt.hardware.device_catalogue import find_device
from phaze_opt.objective.evaluation import THROUGHPUT, Evaluation, LayerSchedule, TimeBreakdown, is_proven
from phaze_opt.objective.reference_machines import EXPERT_PREFIX, is_expert
from phaze_opt.objective.scenario import CommonMean
from phaze_opt.placement.problem import PlacementResult, Stage
from phaze_opt.record.result_fields import ResultField, headlines_of
from phaze_opt.report.chip import describe_cores, describe_memories, is_chip_of, silicon_words
from phaze_opt.report.plans import describe_plan
from phaze_opt.report.table import Column, Fields, TableContent, number, numbers, pairs_table, table_of, words
from phaze_opt.report.text import (
    counted,
    format_figure,
    format_gib,
    format_number,
    format_ratio,
    format_scaled,
    format_share,
    format_time,
)

if TYPE_CHECKING:
    from phaze_opt.objective.headline_range import SensitivityRow

CAUSES = (
    ("tensor_cores_s", "tensor cores", "the tensor cores: matrix products take"),
    ("vector_cores_s", "vector cores", "the vector cores: softmax, norms and elementwise work take"),
    ("memory_bound_s", "memory", "memory: waiting for HBM and buffer traffic takes"),
    ("tensor_parallel_collectives_s", "tensor-parallel collectives", "the network: tensor-parallel collectives take"),
    ("boundary_transfers_s", "boundary transfers", "the network: transfers between pipeline stages take"),
    ("gradient_all_reduce_s", "gradient all-reduce", "the network: the data-parallel gradient all-reduce takes"),
    ("bubble_s", "pipeline bubble", "the pipeline: waiting for other stages takes"),
    ("update_s", "optimizer update", "the optimizer: updating the weights takes"),
    ("matmul_s", "matmuls", "matrix products: they take"),
    ("attention_s", "attention", "attention: its products and softmax take"),
    ("vector_s", "vector work", "vector work: norms, activations and other vector work take"),
    ("launch_s", "launches", "the host: waiting for launches takes"),
    ("parameter_s", "parameter traffic", "the network: parameter traffic (ZeRO 3) takes"),
    ("overhead_s", "fixed time", "the software: the fixed time of a step takes"),
    ("waiting_s", "waiting for islands", "the cluster: waiting for the slowest island takes"),
)
"""Fields of `TimeBreakdown`, their short names, and the phrase that says what limits a design.

Of the first `NUM_OF_DESIGNS` only designed chips have any; matmuls, attention and vector work are of machines that
exist.
"""
NUM_OF_DESIGNS = 3
COMMON_MEANS = {
    CommonMean.ARITHMETIC: "arithmetic mean",
    CommonMean.GEOMETRIC: "geometric mean",
    CommonMean.WORST: "the model worst off",
}
BAR_CELLS = 20
NOMINAL = "nominal"
ENDS = ("low", "high")
BILLION = 1e9


def design_table(evaluation: Evaluation) -> TableContent:
    """The accelerator and the workload it was evaluated on."""
    chip = evaluation.accelerator
    title = f"Design: {chip.name}" if chip.name else "Design"
    batches = evaluation.micro_batches
    samples = f"{', '.join(map(str, batches))} sample{'' if batches == (1,) else 's'}"
    sizes = ("micro-batch", samples)
    if _has_tokens(evaluation):
        sizes = ("sequence, micro-batch", f"{_sequences(evaluation)} tokens, {samples}")
    rows = (
        ("cores", describe_cores(chip)),
        ("memories", describe_memories(chip)),
        ("peak", f"{format_scaled(chip.peak_flops_per_s, 'FLOP/s')} at {chip.clock_hz / 1e9:.3g} GHz"),
        ("area, TDP", f"{format_number(evaluation.area_mm2)} mm2, {format_number(evaluation.tdp_w)} W"),
        ("model" if not evaluation.members else "models", _models(evaluation)),
        sizes,
    )
    return pairs_table(title, rows, note=machine_note(chip) if _is_as_designed(evaluation) else "")


def _is_as_designed(evaluation: Evaluation) -> bool:
    """Whether it is priced as a design: of machines that exist no energy is modelled."""
    return (evaluation.members or (evaluation,))[0].known("energy_per_iteration_j") is not None


def _models(evaluation: Evaluation) -> str:
    """Each model with its parameters."""
    members = evaluation.members or (evaluation,)
    return "; ".join(f"{member.model}, {member.num_parameters:,} parameters" for member in members)


def _has_tokens(evaluation: Evaluation) -> bool:
    """Whether a sample of any model is a sequence."""
    return any(member.sequence_length > 1 for member in evaluation.members or (evaluation,))


def _sequences(evaluation: Evaluation) -> str:
    """Tokens a sample, of each model."""
    lengths = dict.fromkeys(member.sequence_length for member in evaluation.members or (evaluation,))
    return ", ".join(f"{length}" for length in lengths)


def machine_note(chip: Accelerator) -> str:
    """That a machine that exists is priced here like a design; empty for designs."""
    device = find_device(chip.name)
    if device is None or not is_chip_of(chip, device):
        return ""
    published = (
        *((f"{format_number(device.die_mm2)} mm2",) if device.die_mm2 else ()),
        *((f"{format_number(device.tdp_w)} W",) if device.tdp_w else ()),
    )
    figures = f" (published: {', '.join(published)})" if published else ""
    return (
        f"{chip.name} exists; here it is priced as if designed, area and TDP {silicon_words(chip)}{figures}; "
        f"`evaluate --arch {chip.name}` prices training plans on the real one"
    )


EXPERTS_NOTE = "blocks split evenly by hand, best micro-batch of those searched (mb); Phaze's baselines"
PLANNED_EXPERTS_NOTE = f"{EXPERTS_NOTE}, as plans that shard no state"
MODELLED_NOTE = (
    "designs, phaze-tpu-v4 (Phaze's reference of 256 vector lanes) and what is called modelled are so, area and TDP "
    "{}; other machines have their own software, and area and TDP as published"
)

MEAN_NOTE = "samples/s and tokens/s are means over the models (--common), and an iteration is a batch at that rate"


def performance_table(evaluation: Evaluation, *, references: Mapping[str, Evaluation]) -> TableContent:
    """The design beside the reference machines, a column each: rates, ratios, efficiency, area and power."""
    references = {name: other for name, other in references.items() if not is_expert(name)}
    others = tuple(references.values())
    mean = "mean " if evaluation.members else ""
    columns = (Column(""), *numbers("this design", *references))
    rate, *figures = (each for each in headlines_of(Evaluation) if "tokens" not in each.unit or _has_tokens(evaluation))
    rows = (
        (f"{mean}{rate.label}", *(figure_text(e, rate) for e in (evaluation, *others))),
        ("design is faster by", "", *(format_ratio(_ratio(evaluation, other)) for other in others)),
        *(
            (
                f"{mean if 'tokens' in each.unit else ''}{each.label}",
                *(figure_text(e, each) for e in (evaluation, *others)),
            )
            for each in figures
        ),
    )
    failed = [f"{name} is infeasible: {other.reason}" for name, other in references.items() if not other.is_feasible]
    note = "; ".join(
        [
            MODELLED_NOTE.format(silicon_words(evaluation.accelerator))
            if _is_as_designed(evaluation)
            else "area and TDP as published",
            *([MEAN_NOTE] if evaluation.members else []),
            *failed,
        ]
    )
    return TableContent("Performance", columns, rows, note, emphasised=frozenset({0, 1}))


def figure_text(evaluation: Evaluation, figure: ResultField) -> str:
    """A declared figure as people read it, or why there is none."""
    if not evaluation.has(figure):
        return "infeasible"
    value = evaluation.known(figure.name)
    return "not published" if value is None else format_figure(figure, value)


def experts_table(evaluation: Evaluation, *, experts: Mapping[str, Evaluation]) -> TableContent:
    """The hand placements that the design is compared with, a row each; what does not fit says why below."""
    fields: Fields[tuple[str, Evaluation]] = (
        words("machine", lambda item: item[0].removeprefix(EXPERT_PREFIX)),
        number("t x p x d", lambda item: describe_degrees(item[1].placement)),
        number("mb", lambda item: str(item[1].micro_batch)),
        number("samples/s", lambda item: _if_feasible(item[1], format_number(item[1].throughput_samples_per_s))),
        number("iteration", lambda item: _if_feasible(item[1], format_time(item[1].iteration_time_s))),
        number("design is faster by", lambda item: format_ratio(_ratio(evaluation, item[1]))),
    )
    failed = [
        f"{name} is infeasible: {other.reason.split(';')[0]}"
        for name, other in experts.items()
        if not other.is_feasible
    ]
    note = "; ".join([PLANNED_EXPERTS_NOTE if evaluation.is_planned else EXPERTS_NOTE, *failed])
    return table_of("Hand placements of an expert", fields, experts.items(), note)


def _if_feasible(evaluation: Evaluation, text: str) -> str:
    return text if evaluation.is_feasible else "infeasible"


def _ratio(evaluation: Evaluation, other: Evaluation) -> float:
    rate = other.throughput_samples_per_s
    return evaluation.throughput_samples_per_s / rate if rate > 0 else 0.0


def members_table(evaluation: Evaluation) -> TableContent:
    """A common design model by model."""
    fields: Fields[Evaluation] = (
        words("model", lambda member: member.model),
        number("samples/s", lambda member: format_number(member.throughput_samples_per_s)),
        number("MFU", lambda member: format_share(member.mfu)),
        number("t x p x d", lambda member: describe_degrees(member.placement)),
        number("largest share of time", lambda member: "{} {}".format(*_largest_cause(member))),
    )
    return table_of("Each model on this design", fields, evaluation.members)


def placement_table(placement: PlacementResult) -> TableContent:
    """Degrees in the title, one row per run of like stages."""
    numbered = enumerate(placement.stages, start=1)
    runs = (list(group) for _, group in groupby(numbered, key=lambda item: _likeness(item[1])))
    fields: Fields[list[tuple[int, Stage]]] = (
        words("stages", lambda run: span(run[0][0], run[-1][0])),
        words("layers", _layers),
        words("activations", lambda run: "recomputed" if run[0][1].is_recomputed else "stashed"),
        number("time/micro-batch", lambda run: format_time(run[0][1].time_s)),
        number("memory", lambda run: format_gib(run[0][1].memory_bytes)),
        number("sync", lambda run: format_time(run[0][1].sync_s)),
    )
    title = (
        f"{'Placement' if placement.plan is None else 'Plan'}: tensor {placement.tensor_parallel} x "
        f"pipeline {len(placement.stages)} x data {placement.data_parallel}"
    )
    count = placement.num_micro_batches
    batches = f"{count:,} micro-batch{'es' if count != 1 else ''}"
    note = f"{counted(placement.devices_used, 'device')} used; {batches} a replica and iteration"
    if placement.plan is not None:
        note = f"{describe_plan(placement.plan)}; {note}"
    return table_of(title, fields, runs, note)


def _likeness(stage: Stage) -> tuple[object, ...]:
    figures = (f"{stage.time_s:.4g}", format_gib(stage.memory_bytes), f"{stage.sync_s:.3g}")
    return (_num_layers(stage), len(stage.chunks), stage.is_recomputed, *figures)


def _layers(run: list[tuple[int, Stage]]) -> str:
    first, each = run[0][1], " each" if len(run) > 1 else ""
    if first.chunks:
        return f"{_num_layers(first)} in {len(first.chunks)} chunks{each}"
    return f"{span(first.first, run[-1][1].last)} ({_num_layers(first)}{each})"


def _num_layers(stage: Stage) -> int:
    """Layers of a stage; those between its chunks are of others."""
    return sum(each.last - each.first + 1 for each in stage.chunks or (stage,))


def span(first: int, last: int) -> str:
    """``3-7``, or ``3`` alone."""
    return f"{first}-{last}" if last > first else str(first)


def describe_degrees(placement: PlacementResult | None) -> str:
    """Tensor x pipeline x data; a dash without a placement."""
    if placement is None:
        return "-"
    return f"{placement.tensor_parallel} x {len(placement.stages)} x {placement.data_parallel}"


def time_table(evaluation: Evaluation) -> TableContent:
    """Where an iteration's time goes, largest first, with a bar."""
    fields: Fields[tuple[str, float, float]] = (
        words("where the time goes", lambda cause: cause[0]),
        number("time", lambda cause: format_time(cause[1])),
        number("share", lambda cause: format_share(cause[2])),
        words("", lambda cause: "█" * round(BAR_CELLS * cause[2])),
    )
    shares = (cause for cause in time_shares(evaluation.breakdown) if cause[1] > 0)
    return table_of(f"One iteration: {format_time(evaluation.iteration_time_s)}", fields, shares)


def time_shares(breakdown: TimeBreakdown) -> tuple[tuple[str, float, float], ...]:
    """(name, seconds, share) of every cause, largest first."""
    seconds = {name: float(getattr(breakdown, field)) for field, name, _ in CAUSES}
    total = sum(seconds.values())
    shares = ((name, value, value / total if total > 0 else 0.0) for name, value in seconds.items())
    return tuple(sorted(shares, key=lambda item: -item[1]))


def _largest_cause(evaluation: Evaluation) -> tuple[str, str]:
    name, _, share = time_shares(evaluation.breakdown)[0]
    return name, format_share(share)


_SCHEDULE: Fields[LayerSchedule] = (
    words("layer", lambda item: item.layer),
    words("phase", lambda item: item.phase),
    number("repeats", lambda item: str(item.repeats)),
    number("makespan", lambda item: format_time(item.makespan_s)),
    number("lower bound", lambda item: format_time(item.lower_bound_s)),
    number("gap", lambda item: "0" if is_proven(item.gap) else f"{100 * item.gap:.2g} %"),
    words("status", lambda item: "proven optimal" if is_proven(item.gap) else item.status.value.replace("_", " ")),
)


def schedule_table(evaluation: Evaluation) -> TableContent:
    """Makespan, proven bound and gap of every distinct layer and phase, and what they leave open of the plan."""
    schedules = (item for item in evaluation.schedules if item.makespan_s > 0)
    return table_of("Operator schedules on one device", _SCHEDULE, schedules, bound_words(evaluation))


def bound_words(evaluation: Evaluation) -> str:
    """What no plan or placement exceeds, where open schedules leave the choice of them open; else empty."""
    if is_proven(evaluation.rate_gap):
        return ""
    bound, gap = format_number(evaluation.throughput_bound_samples_per_s), format_share(evaluation.rate_gap)
    what = "plan" if evaluation.is_planned else "placement"
    return f"no {what} exceeds {bound} samples/s, {gap} more; --schedule-gap 0 narrows that"


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


def evaluation_contents(evaluation: Evaluation, *, references: Mapping[str, Evaluation]) -> list[TableContent]:
    """Design, performance against references and hand placements, placement, time and schedules of one evaluation."""
    contents = [design_table(evaluation)]
    if not evaluation.is_feasible:
        return contents
    contents.append(performance_table(evaluation, references=references))
    experts = {name: other for name, other in references.items() if is_expert(name)}
    if experts:
        contents.append(experts_table(evaluation, experts=experts))
    if evaluation.members:
        contents.append(members_table(evaluation))
    if evaluation.placement is not None:
        contents.append(placement_table(evaluation.placement))
    if evaluation.schedules:
        contents += [time_table(evaluation), schedule_table(evaluation)]
    return contents


def sensitivity_content(rows: Sequence[SensitivityRow]) -> TableContent:
    """One line per assumption with both ends of its range side by side, one per alternative of an option.

    Ordered by how far the throughput moves from the nominal one; ratios are design over reference under the same
    setting.
    """
    nominal = next((row for row in rows if row.origin == NOMINAL), None)
    base = 0.0 if nominal is None else nominal.throughput_samples_per_s
    groups: dict[tuple[str, str], list[SensitivityRow]] = {}
    for row in rows:
        if row.origin != NOMINAL:
            key = (row.assumption, "" if row.origin in ENDS else row.setting)
            groups.setdefault(key, []).append(row)
    ordered = sorted(groups.values(), key=lambda group: -_movement(group, base))
    moving = [group for group in ordered if nominal is None or any(_differs(row, nominal) for row in group)]
    still = [_name(group) for group in ordered if group not in moving]
    fields: Fields[Sequence[SensitivityRow]] = (
        words("assumption: range", _setting),
        number("samples/s", lambda group: _join([format_number(row.throughput_samples_per_s) for row in group])),
        number("/ phaze-tpu-v4", lambda group: _ratios([row.ratio_phaze_tpu_v4 for row in group])),
        number("/ modelled tpu-v4", lambda group: _ratios([row.ratio_modelled_tpu_v4 for row in group])),
    )
    note = "from the low to the high end of each range; ratios to the reference under the same assumption"
    if still:
        note += f"; without effect on these figures: {', '.join(still)}"
    shown = [*([] if nominal is None else [[nominal]]), *moving]
    return table_of("Sensitivity", fields, shown, note, emphasis=lambda group: group[0] is nominal)


def _movement(group: Sequence[SensitivityRow], base: float) -> float:
    return max(abs(row.throughput_samples_per_s - base) for row in group)


def _differs(row: SensitivityRow, nominal: SensitivityRow) -> bool:
    """Whether any figure moves by more than a millionth."""
    names = (THROUGHPUT, "ratio_phaze_tpu_v4", "ratio_modelled_tpu_v4")
    pairs = ((getattr(row, name), getattr(nominal, name)) for name in names)
    return any(not math.isclose(one, other, rel_tol=1e-6) for one, other in pairs)


def _name(group: Sequence[SensitivityRow]) -> str:
    row = group[0]
    return row.assumption if row.origin in ENDS else f"{row.assumption} = {row.setting}"


def _setting(group: Sequence[SensitivityRow]) -> str:
    name = "as assumed" if group[0].origin == NOMINAL else group[0].assumption
    return ": ".join(filter(None, (name, _range([row.setting for row in group]))))


def _ratios(values: Sequence[float]) -> str:
    return _join([format_ratio(value) for value in values]).replace("x..", "..")


def _range(settings: Sequence[str]) -> str:
    """``4..16 cycles``: the unit once, where both ends share it."""
    parts = [setting.partition(" ") for setting in settings]
    units = {unit for _, _, unit in parts}
    if len(parts) > 1 and len(units) == 1:
        return f"{_join([_shorten(value) for value, _, _ in parts])} {units.pop()}".rstrip()
    return _join(settings)


def _shorten(value: str) -> str:
    """``225e9`` for ``2.25e+11``."""
    try:
        number = float(value)
    except ValueError:
        return value
    return f"{number / BILLION:g}e9" if abs(number) >= BILLION else value


def _join(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    return "..".join(distinct)
