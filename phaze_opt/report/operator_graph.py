"""A layer's forward and backward drawn as graphs of operators: one a row, coloured by core, critical path marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phaze_opt.cost.model_profile import LayerProfile, OperatorProfile, PhaseProfile
from phaze_opt.graph.operator import CoreType, edges_among
from phaze_opt.report.document import Beside, FigureBlock
from phaze_opt.report.picture import BEST_COLOUR, COLOURS, Curve, Layer, Marks, Picture, PlotAxis, Words
from phaze_opt.report.text import format_scaled, format_time
from phaze_opt.units import bytes_to_mib


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
