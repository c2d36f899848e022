"""A model's layers as tables and a page: what each is made of, how often it comes, what it takes on a chip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt import __version__
from phaze_opt.cost.model_profile import LayerProfile, ModelProfile, PhaseProfile, ratio
from phaze_opt.graph.operator import CoreType
from phaze_opt.graph.traced.device_sizes import WeightShare
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.report.document import Alternative, Block, Choice, Folded, Paragraph, ReportDocument, Section, TableBlock
from phaze_opt.report.operator_graph import graph_block, heaviest_of
from phaze_opt.report.table import Fields, TableContent, number, table_of, words
from phaze_opt.report.text import format_number, format_scaled, format_share, format_time
from phaze_opt.units import bytes_to_gib, bytes_to_mib
from phaze_opt.workload.workload import Workload

MAX_LAYERS = 40
"""Distinct layers that a page draws: of more, those that take most of the model's time."""
MAX_ROWS = 200
"""Operators in a table of a phase: of more, those that take longest."""
_NOTE = (
    "of a device and a micro-batch, forward and backward; FLOPs of matrix products; FLOP/B for each byte that "
    "operators read and write; traffic is what HBM moves; time of a schedule, with collectives one after the other"
)
_CORE_SHORT = {
    CoreType.TC: "TC",
    CoreType.VC: "VC",
    CoreType.TC_AND_VC: "TC+VC",
    CoreType.NETWORK: "network",
    CoreType.NONE: "none",
}


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table: a layer, or all of them."""

    name: str
    repeats: int
    num_operators: int
    num_parameters: int
    flops: int
    stash_bytes: float
    operand_bytes: float
    traffic_bytes: float
    seconds: float

    @classmethod
    def of_layer(cls, layer: LayerProfile) -> _Row:
        """One of a kind, as often as it comes."""
        graph = layer.graph
        sizes = (layer.num_operators, graph.num_parameters, layer.flops, graph.stash_bytes)
        return cls(graph.name, layer.repeats, *sizes, layer.operand_bytes, layer.traffic_bytes, layer.seconds)

    @classmethod
    def of_model(cls, profile: ModelProfile) -> _Row:
        """All layers."""
        sizes = (profile.num_operators, profile.num_parameters, profile.flops, profile.stash_bytes)
        count = len(profile.graph.chain)
        return cls("all layers", count, *sizes, profile.operand_bytes, profile.traffic_bytes, profile.seconds)


def layer_table(profile: ModelProfile) -> TableContent:
    """Every distinct layer, in the order of the model, and all of them."""
    rows = [*(_Row.of_layer(layer) for layer in profile.layers), _Row.of_model(profile)]
    fields: Fields[_Row] = (
        words("layer", lambda row: row.name),
        number("times", lambda row: f"{row.repeats:,}"),
        number("ops", lambda row: f"{row.num_operators:,}"),
        number("params", lambda row: _count(row.num_parameters)),
        number("FLOPs", lambda row: _count(row.flops)),
        number("stash", lambda row: _size(row.stash_bytes)),
        number("FLOP/B", lambda row: _intensity(row.flops, row.operand_bytes)),
        number("traffic", lambda row: _size(row.traffic_bytes)),
        number("time", lambda row: format_time(row.seconds)),
    )
    title = f"Layers of {profile.model.name} on {chip_words(profile)}"
    return table_of(title, fields, rows, _NOTE, emphasis=lambda row: row is rows[-1])


def chip_words(profile: ModelProfile) -> str:
    """The chip, by name."""
    return profile.accelerator.name or "the chip"


def page_document(profile: ModelProfile) -> ReportDocument:
    """The page as values."""
    drawn, degree = profile.heaviest[:MAX_LAYERS], profile.graph.tensor_parallel
    products = weights_shared(profile.model, degree)
    shared = (Section("sharding", "Sharding", (TableBlock(sharding_table(products, degree)),)),) if products else ()
    options = tuple(_alternative(layer, place) for place, layer in enumerate(drawn))
    return ReportDocument(
        title=f"{profile.model.name}: operator graphs on {chip_words(profile)}",
        findings=findings(profile),
        sections=(
            Section("layers", "Layers", (TableBlock(layer_table(profile)),)),
            Section("graphs", "Graphs", (*_limits(profile, drawn), Choice("layer", "Layer", options))),
            *shared,
        ),
        footer=_provenance(profile),
    )


def findings(profile: ModelProfile) -> tuple[str, ...]:
    """What matters most, a sentence each."""
    heaviest = profile.heaviest[0]
    intensity = ratio(profile.flops, profile.operand_bytes)
    chip = profile.accelerator
    ridge = chip.peak_flops_per_s / chip.hbm_bandwidth_bytes_per_s
    path_s = sum(layer.path_s * layer.repeats for layer in profile.layers)
    side = "above" if intensity > ridge else "below"
    return (
        f"{profile.model.num_parameters:,} parameters{_share_words(profile)} in {len(profile.graph.chain):,} layers of "
        f"{len(profile.layers):,} kinds, {profile.num_operators:,} operators forward and backward.",
        f"On a device a micro-batch takes {format_scaled(profile.flops, 'FLOP')} and keeps "
        f"{_size(profile.stash_bytes)} for backward; {format_number(intensity)} FLOPs for each byte that its operators "
        f"read and write, {side} the {format_number(ridge)} at which the chip's arrays and HBM are balanced.",
        f"Forward and backward take {format_time(profile.seconds)} on {chip_words(profile)}; "
        f"{format_share(ratio(heaviest.seconds * heaviest.repeats, profile.seconds))} of it in {heaviest.graph.name} "
        f"({heaviest.repeats:,} times). The critical paths alone take {format_time(path_s)}.",
    )


def _share_words(profile: ModelProfile) -> str:
    """What of the parameters a device holds, where they are sharded."""
    degree = profile.graph.tensor_parallel
    return f" ({profile.num_parameters:,} on each of {degree} devices)" if degree > 1 else ""


def _limits(profile: ModelProfile, drawn: Sequence[LayerProfile]) -> tuple[Block, ...]:
    """How to read the graphs, and what of the model they leave out."""
    how = (
        "One operator a row, in the order of the program; a line runs from an operator to those that read its result. "
        "Each takes what it takes spread over all cores of its kind, with its share of all operators' time; the "
        "critical path is the longest chain of them, below which no schedule can be."
    )
    text = (
        f"{len(profile.layers) - len(drawn)} more kinds of layers take less time and are not drawn."
        if (len(drawn) < len(profile.layers))
        else ""
    )
    return tuple(Paragraph(each) for each in (how, text) if each)


def _alternative(layer: LayerProfile, place: int) -> Alternative:
    """A layer: its graph, the operators that take longest, and all of them."""
    label = layer.graph.name if layer.repeats == 1 else f"{layer.graph.name} ({layer.repeats:,} times)"
    tables = tuple(TableBlock(operator_table(phase)) for phase in layer.phases if phase.operators)
    blocks: tuple[Block, ...] = (graph_block(layer, name=f"layer-{place + 1}"), Folded("All operators", tables))
    return Alternative(label, blocks)


def operator_table(phase: PhaseProfile) -> TableContent:
    """Operators of a phase in their order; of more than `MAX_ROWS` those that take longest."""
    critical, shown = frozenset(phase.critical), heaviest_of(phase, MAX_ROWS)
    fields: Fields[int] = (
        words("operator", lambda index: phase.operators[index].operator.name),
        words("cores", lambda index: _CORE_SHORT[phase.operators[index].operator.core_type]),
        number("FLOPs", lambda index: _count(phase.operators[index].operator.matmul_flops)),
        number("operands", lambda index: _size(phase.operators[index].operator.traffic_bytes)),
        number("traffic", lambda index: _size(phase.operators[index].traffic_bytes)),
        number("FLOP/B", lambda index: _intensity(*phase.operators[index].work)),
        number("stash", lambda index: _size(phase.operators[index].operator.stash_bytes)),
        number("time", lambda index: format_time(phase.operators[index].latency_s)),
        number("slack", lambda index: "critical" if index in critical else format_time(phase.mobility.slack_s[index])),
    )
    left = len(phase.operators) - len(shown)
    note = f"The {len(shown)} operators that take longest; {left} others are left out" if left else ""
    title = phase.phase.value.capitalize()
    return table_of(title, fields, shown, note)


def _provenance(profile: ModelProfile) -> tuple[tuple[str, str], ...]:
    """What the figures stand on."""
    training = profile.training
    return (
        ("phaze_opt", __version__),
        ("model", profile.model.source or profile.model.name),
        ("chip", chip_words(profile)),
        ("network", profile.network.name),
        ("tensor parallel", str(profile.graph.tensor_parallel)),
        ("micro-batch", f"{training.micro_batch:,}"),
        ("sequence length", f"{training.sequence_length:,}"),
        ("optimizer", training.optimizer.value),
        ("attention", training.attention.value),
    )


def _count(value: float) -> str:
    """A count with a decimal prefix; a dash for none."""
    return format_scaled(value, "").strip().replace(" ", "\N{NO-BREAK SPACE}") if value else "-"


def _intensity(flops: float, num_bytes: float) -> str:
    """FLOPs for each byte; a dash for none."""
    return format_number(ratio(flops, num_bytes)) if flops else "-"


def _size(num_bytes: float) -> str:
    """Bytes in KiB, MiB or GiB; a dash for none."""
    if not num_bytes:
        return "-"
    mebibytes = bytes_to_mib(num_bytes)
    if mebibytes >= 1024:
        return f"{format_number(bytes_to_gib(num_bytes))}\N{NO-BREAK SPACE}GiB"
    size, unit = (mebibytes, "MiB") if mebibytes >= 1 else (1024 * mebibytes, "KiB")
    return f"{format_number(size)}\N{NO-BREAK SPACE}{unit}"


def weights_shared(model: Workload, degree: int) -> tuple[WeightShare, ...]:
    """Weights of a traced model that is sharded; none of others, whose configs say it all."""
    return model.weight_shares(degree) if degree > 1 and isinstance(model, TracedWorkload) else ()


def sharding_table(weights: Sequence[WeightShare], degree: int) -> TableContent:
    """A line for every product with a weight, and every table, of every kind of layer."""
    fields: Fields[WeightShare] = (
        words("layer", lambda weight: weight.layer),
        words("module", lambda weight: weight.module or "-"),
        words("split", lambda weight: str(weight.split or "every device")),
        words("of it", lambda weight: format_share(weight.share)),
        words("why", lambda weight: weight.reason),
    )
    return table_of(f"Weights on each of {degree} devices", fields, weights)
