"""A layer's forward and backward drawn as graphs of operators: one a row, coloured by core, critical path marked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phaze_opt.cost.model_profile import LayerProfile, OperatorProfile, PhaseProfile
from phaze_opt.graph.operator import CoreType, edges_among
from phaze_opt.report.document import FigureBlock
from phaze_opt.report.style import BEST_COLOUR, COLOURS, LEGEND, finish_figure, plot_text
from phaze_opt.report.text import format_scaled, format_time
from phaze_opt.units import bytes_to_mib

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
LANE_PX = 15
WIDE_PX, NARROW_PX = 480, 330
"""Width of a phase on a wide and on a narrow page."""
WIDE_CHARACTERS, NARROW_CHARACTERS = 44, 24
"""Characters of a name there."""
_LEGEND_ROOM_PX = 76
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


def graph_block(layer: LayerProfile, *, name: str) -> FigureBlock:
    """Forward and backward of a layer, beside each other on a wide page and one above the other on a narrow one.

    Args:
        layer: profiled.
        name: of the figure, unique in the document.
    """
    drawings = [_draw(phase) for phase in (layer.forward, layer.backward) if phase.operators]
    figure = _figure(drawings)
    return FigureBlock(name, f"Operators of {layer.graph.name}", " ".join(map(_words, drawings)), figure)


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


def _figure(drawings: Sequence[_Drawing]) -> Figure:
    """The phases as one figure."""
    import plotly.graph_objects as go

    figure = go.Figure()
    kinds: dict[CoreType, None] = {}
    for place, drawing in enumerate(drawings):
        axes = {"xaxis": f"x{place + 1}", "yaxis": f"y{place + 1}"}
        figure.add_traces([*_edge_traces(drawing, axes), *_operator_traces(drawing, axes, kinds)])
    for trace in _legend_traces(kinds):
        figure.add_trace(trace)
    height = ROW_PX * (max(len(drawing.shown) for drawing in drawings) + 2) + _LEGEND_ROOM_PX
    finish_figure(figure, height=height, narrow=_narrow(drawings))
    figure.update_layout(_layout(drawings, WIDE_PX), legend={**LEGEND, "itemclick": False, "itemdoubleclick": False})
    figure.update_layout(margin={"l": 8, "r": 8, "t": 30, "b": _LEGEND_ROOM_PX - ROW_PX})
    return figure


def _layout(drawings: Sequence[_Drawing], width_px: int) -> dict[str, Any]:
    """Axes and headings of phases beside each other."""
    layout: dict[str, Any] = {"hovermode": "closest", "annotations": []}
    rows = max(len(drawing.shown) for drawing in drawings)
    for place, drawing in enumerate(drawings):
        left, right = place / len(drawings), (place + 0.97) / len(drawings)
        hidden = {"showgrid": False, "zeroline": False, "visible": False, "fixedrange": True}
        layout[f"xaxis{place + 1}"] = {
            **hidden,
            "range": [-0.8, width_px / LANE_PX],
            "domain": [left, right],
            "anchor": f"y{place + 1}",
        }
        layout[f"yaxis{place + 1}"] = {**hidden, "range": [rows, -1.0], "domain": [0, 1], "anchor": f"x{place + 1}"}
        layout["annotations"] += [_heading(drawing, left, 1.0), *_labels(drawing, place, WIDE_CHARACTERS)]
    return layout


def _heading(drawing: _Drawing, left: float, top: float) -> dict[str, Any]:
    """Name and critical path of a phase, above it."""
    phase = drawing.phase
    return {
        "text": f"<b>{phase.phase.value}</b>: critical path {format_time(phase.mobility.length_s)}",
        "x": left,
        "y": top,
        "xref": "paper",
        "yref": "paper",
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
    }


def _narrow(drawings: Sequence[_Drawing]) -> dict[str, Any]:
    """Changes on a narrow page: phases one above the other, each as high as its rows."""
    heights = [ROW_PX * (len(drawing.shown) + 3) for drawing in drawings]
    total = sum(heights)
    below = 24 * 4
    changes: dict[str, Any] = {"height": total + below, "margin": {"l": 4, "r": 4, "t": 24, "b": below}}
    top, words = 1.0, []
    for place, (drawing, height) in enumerate(zip(drawings, heights, strict=True)):
        bottom = top - height / total
        changes[f"xaxis{place + 1}.domain"] = [0, 1]
        changes[f"xaxis{place + 1}.range"] = [-0.8, NARROW_PX / LANE_PX]
        changes[f"yaxis{place + 1}.domain"] = [max(0.0, bottom), top - 1.5 * ROW_PX / total]
        changes[f"yaxis{place + 1}.range"] = [len(drawing.shown), -1.0]
        words += [_heading(drawing, 0.0, top - 1.3 * ROW_PX / total), *_labels(drawing, place, NARROW_CHARACTERS)]
        top = bottom
    # The template's first axes are called xaxis and yaxis; Plotly reads xaxis1 as the same.
    renamed = {key.replace("axis1.", "axis."): value for key, value in changes.items()}
    return {**renamed, "annotations": words}


def _edge_traces(drawing: _Drawing, axes: dict[str, str]) -> Iterator[Any]:
    """Lines between operators; those of the critical path on top."""
    import plotly.graph_objects as go

    for is_tight in (False, True):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for source, target in drawing.edges:
            if ((source, target) in drawing.tight) is is_tight:
                at, to = drawing.lanes[source], drawing.lanes[target]
                xs += [at, at, to, None]
                ys += [source, max(source, target - 0.7), target, None]
        line = {"color": BEST_COLOUR, "width": 3} if is_tight else {"color": "#BBBBBB", "width": 1.5}
        yield go.Scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False, **axes)


def _operator_traces(drawing: _Drawing, axes: dict[str, str], kinds: dict[CoreType, None]) -> Iterator[Any]:
    """Operators in their lanes; ``kinds`` collects what cores there are."""
    import plotly.graph_objects as go

    phase = drawing.phase
    critical = frozenset(phase.critical)
    each = [phase.operators[index] for index in drawing.shown]
    kinds.update(dict.fromkeys(profile.operator.core_type for profile in each))
    looks = [_LOOKS[profile.operator.core_type] for profile in each]
    is_critical = [index in critical for index in drawing.shown]
    yield go.Scatter(
        x=list(drawing.lanes),
        y=list(range(len(each))),
        mode="markers",
        marker={
            "color": [colour for colour, _ in looks],
            "symbol": [shape for _, shape in looks],
            "size": 11,
            "line": {"color": BEST_COLOUR, "width": [2 if on else 0 for on in is_critical]},
        },
        hovertext=[_hover(profile) for profile in each],
        hoverinfo="text",
        showlegend=False,
        **axes,
    )


def _legend_traces(kinds: dict[CoreType, None]) -> Iterator[Any]:
    """An entry for every kind of core there is, and one for the critical path."""
    import plotly.graph_objects as go

    for kind in (each for each in _LOOKS if each in kinds):
        colour, shape = _LOOKS[kind]
        marker = {"color": colour, "symbol": shape, "size": 11}
        yield go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=CORE_WORDS[kind])
    yield go.Scatter(x=[None], y=[None], mode="lines", line={"color": BEST_COLOUR, "width": 3}, name=_PATH_WORDS)


def _labels(drawing: _Drawing, place: int, most: int) -> list[dict[str, Any]]:
    """Name, time and share of every operator, behind all lanes.

    Args:
        drawing: a phase.
        place: of its axes.
        most: characters of a name.
    """
    axes = {"xref": f"x{place + 1}", "yref": f"y{place + 1}", "xanchor": "left", "showarrow": False}
    critical, phase = frozenset(drawing.phase.critical), drawing.phase
    total_s = sum(profile.latency_s for profile in phase.operators)
    found = []
    for row, index in enumerate(drawing.shown):
        text = _label(phase.operators[index], total_s, is_bold=index in critical, most=most)
        found.append({"text": text, "x": drawing.num_lanes - 0.4, "y": row, "font": {"size": 12}, **axes})
    return found


def _label(profile: OperatorProfile, total_s: float, *, is_bold: bool, most: int) -> str:
    """Name, time and share of the phase's time; of a long name its end, which says most."""
    name = profile.operator.name
    name = plot_text(name if len(name) <= most else f"...{name[3 - most :]}")
    name = f"<b>{name}</b>" if is_bold else name
    if profile.latency_s <= 0.0:
        return name
    return f"{name} <span style='color:#666'>{format_time(profile.latency_s)}, {_share(profile, total_s)}</span>"


def _share(profile: OperatorProfile, total_s: float) -> str:
    """Share of the time of all operators of the phase."""
    share = profile.latency_s / total_s if total_s else 0.0
    return f"{100 * share:.0f}%" if share >= 0.095 else f"{100 * share:.1f}%"


def _hover(profile: OperatorProfile) -> str:
    """What a pointer over an operator shows."""
    operator = profile.operator
    lines = [
        f"<b>{plot_text(operator.name)}</b>",
        f"{CORE_WORDS[operator.core_type]}, {format_time(profile.latency_s)}",
        f"{format_scaled(operator.matmul_flops, 'FLOP')}, HBM {bytes_to_mib(profile.traffic_bytes):,.3g} MiB",
    ]
    if operator.collective is not None:
        collective = operator.collective
        kind = collective.kind.value.replace("_", "-")
        lines.append(f"{kind} of {bytes_to_mib(collective.payload_bytes):,.3g} MiB")
    if operator.stash_bytes:
        lines.append(f"keeps {bytes_to_mib(operator.stash_bytes):,.3g} MiB for backward")
    return "<br>".join(lines)
