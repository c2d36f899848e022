"""A model's layers as tables and a page: what each is made of, how often it comes, what it takes on a chip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phaze_opt import __version__
from phaze_opt.cost.model_profile import LayerProfile, ModelProfile, OperatorProfile, PhaseProfile, ratio
from phaze_opt.graph.operator import CoreType, edges_among
from phaze_opt.graph.traced.device_sizes import WeightShare
from phaze_opt.graph.traced.traced_workload import TracedWorkload
from phaze_opt.report.document import (
    Alternative,
    Beside,
    Block,
    Choice,
    FigureBlock,
    Folded,
    Paragraph,
    ReportDocument,
    Section,
    TableBlock,
)
from phaze_opt.report.picture import BEST_COLOUR, COLOURS, Curve, Layer, Marks, Picture, PlotAxis, Words
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


def lanes_of(count: int, edges: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """The lane of each of ``count`` rows, from 0.

    A lane is taken from the row of an operator to that of its last reader, so that no line crosses an operator it does
    not belong to. An operator goes on in the lane of the first of those it is the last reader of, else in the first
    lane that is free.

    Args:
        count: rows, in a topological order.
        edges: between rows, forward.
    """
    last = list(range(count))
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        last[source] = max(last[source], target)
        before[target].append(source)
    lanes = [0] * count
    busy: set[int] = set()
    for row in range(count):
        ended = sorted(lanes[source] for source in before[row] if last[source] == row)
        busy -= set(ended)
        free = (lane for lane in range(count) if lane not in busy)
        lanes[row] = ended[0] if ended else next(free)
        if last[row] > row:
            busy.add(lanes[row])
    return tuple(lanes)


MAX_DRAWN = 60
"""Operators drawn of a phase: of more, those that take longest."""
CORE_WORDS = {
    CoreType.TC: "tensor cores",
    CoreType.VC: "vector cores",
    CoreType.TC_AND_VC: "tensor and vector cores",
    CoreType.NETWORK: "network",
    CoreType.NONE: "no core (a view)",
}
_LOOKS = {
    CoreType.TC: (COLOURS[0], "circle"),
    CoreType.VC: (COLOURS[1], "square"),
    CoreType.TC_AND_VC: (COLOURS[2], "diamond"),
    CoreType.NETWORK: (COLOURS[3], "triangle-up"),
    CoreType.NONE: ("#999999", "circle-open"),
}
"""Colour and shape of each kind of core: no figure rests on colour alone."""
ROW_PX = 21
LANES = 22.0
"""Lanes that a picture has room for, words included."""
MOST_LETTERS = 24
"""Of a name."""
_PATH_WORDS = "critical path"


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A phase as it is drawn: which operators, in which lanes, which edges between rows."""

    phase: PhaseProfile
    shown: tuple[int, ...]
    lanes: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]
    tight: frozenset[tuple[int, int]]

    @property
    def num_lanes(self) -> int:
        """Lanes that are taken."""
        return max(self.lanes, default=0) + 1


def graph_block(layer: LayerProfile, *, name: str) -> Beside:
    """Forward and backward of a layer, beside each other on a wide page and one above the other on a narrow one.

    Args:
        layer: profiled.
        name: of the pictures, unique in the document.
    """
    phases = [phase for phase in (layer.forward, layer.backward) if phase.operators]
    return Beside(tuple(_block(phase, f"{name}-{phase.phase.value}") for phase in phases))


def _block(phase: PhaseProfile, name: str) -> FigureBlock:
    drawing = _draw(phase)
    title = f"{phase.phase.value.capitalize()}: critical path {format_time(phase.mobility.length_s)}"
    layers = (*_edges(drawing), *_operators(drawing), *_labels(drawing))
    rows = len(drawing.shown)
    axis = PlotAxis(is_bare=True, span=(-0.8, rows - 0.2), is_flipped=True)
    picture = Picture(title, layers, PlotAxis(is_bare=True, span=(-0.8, LANES)), axis, ROW_PX * rows + 20)
    return FigureBlock(name, picture, _words(drawing))


def heaviest_of(phase: PhaseProfile, most: int) -> tuple[int, ...]:
    """At most so many operators of a phase, those that take longest, in their order."""
    by_time = sorted(range(len(phase.operators)), key=lambda index: -phase.operators[index].latency_s)
    return tuple(sorted(by_time[:most]))


def _draw(phase: PhaseProfile) -> _Drawing:
    """What of a phase is drawn."""
    shown, count = heaviest_of(phase, MAX_DRAWN), len(phase.operators)
    rows = {operator: row for row, operator in enumerate(shown)}

    def among(edges: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        return tuple((rows[source], rows[target]) for source, target in edges_among(shown, edges, count=count))

    edges = among(phase.graph.edges)
    return _Drawing(phase, shown, lanes_of(len(shown), edges), edges, frozenset(among(phase.tight_edges)))


def _words(drawing: _Drawing) -> str:
    """What is drawn of a phase, for those who cannot see it."""
    phase = drawing.phase
    count, hidden = len(phase.operators), len(phase.operators) - len(drawing.shown)
    words = (
        f"{phase.phase.value.capitalize()}: {count} operators, {len(phase.critical)} of them on a critical path of "
        f"{format_time(phase.mobility.length_s)}."
    )
    if hidden:
        share = sum(phase.operators[index].latency_s for index in drawing.shown)
        total = sum(each.latency_s for each in phase.operators)
        words += (
            f" The {len(drawing.shown)} that take longest are drawn, {100 * share / (total or 1.0):.0f} % of the time; "
            f"lines run through the other {hidden}."
        )
    return words


def _edges(drawing: _Drawing) -> Iterator[Layer]:
    """Lines between operators; those of the critical path on top."""
    for is_tight in (False, True):
        xs: list[float] = []
        ys: list[float] = []
        for source, target in drawing.edges:
            if ((source, target) in drawing.tight) is is_tight:
                at, to = drawing.lanes[source], drawing.lanes[target]
                xs += [at, at, to, math.nan]
                ys += [source, max(source, target - 0.7), target, math.nan]
        if is_tight:
            yield Curve(xs, ys, _PATH_WORDS, BEST_COLOUR, 3.0)
        else:
            yield Curve(xs, ys, "", "#BBBBBB", 1.5)


def _operators(drawing: _Drawing) -> Iterator[Marks]:
    """Operators in their lanes, a colour and a shape for each kind of core, rims for the critical path."""
    critical = frozenset(drawing.phase.critical)
    for kind, (colour, shape) in _LOOKS.items():
        rows = [
            row for row, index in enumerate(drawing.shown) if drawing.phase.operators[index].operator.core_type is kind
        ]
        if rows:
            ringed = [place for place, row in enumerate(rows) if drawing.shown[row] in critical]
            hovers = [_hover(drawing.phase.operators[drawing.shown[row]]) for row in rows]
            lanes = [drawing.lanes[row] for row in rows]
            yield Marks(lanes, rows, CORE_WORDS[kind], colour, shape, 11, ringed=ringed, hovers=hovers)


def _labels(drawing: _Drawing) -> Iterator[Words]:
    """Name, time and share of every operator, behind all lanes."""
    critical, phase = frozenset(drawing.phase.critical), drawing.phase
    total_s = sum(profile.latency_s for profile in phase.operators)
    for row, index in enumerate(drawing.shown):
        text = _label(phase.operators[index], total_s)
        yield Words(drawing.num_lanes - 0.4, row, text, side="left", is_bold=index in critical)


def _label(profile: OperatorProfile, total_s: float) -> str:
    """Name, time and share of the phase's time; of a long name its end, which says most."""
    name = profile.operator.name
    name = name if len(name) <= MOST_LETTERS else f"...{name[3 - MOST_LETTERS :]}"
    if profile.latency_s <= 0.0:
        return name
    return f"{name} {format_time(profile.latency_s)}, {_share(profile, total_s)}"


def _share(profile: OperatorProfile, total_s: float) -> str:
    """Share of the time of all operators of the phase."""
    share = profile.latency_s / total_s if total_s else 0.0
    return f"{100 * share:.0f}%" if share >= 0.095 else f"{100 * share:.1f}%"


def _hover(profile: OperatorProfile) -> str:
    """What a pointer over an operator shows."""
    operator = profile.operator
    lines = [
        operator.name,
        f"{CORE_WORDS[operator.core_type]}, {format_time(profile.latency_s)}",
        f"{format_scaled(operator.matmul_flops, 'FLOP')}, HBM {bytes_to_mib(profile.traffic_bytes):,.3g} MiB",
    ]
    if operator.collective is not None:
        collective = operator.collective
        kind = collective.kind.value.replace("_", "-")
        lines.append(f"{kind} of {bytes_to_mib(collective.payload_bytes):,.3g} MiB")
    if operator.stash_bytes:
        lines.append(f"keeps {bytes_to_mib(operator.stash_bytes):,.3g} MiB for backward")
    return "\n".join(lines)
