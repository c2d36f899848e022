"""One look for all figures: white or dark ground, colours that colour-blind readers can tell apart.

Contenders have colour, dash and marker together, so that no figure rests on colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from phaze_opt.report.document import FigureBlock

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BBBBBB", "#7A6A00")
"""Okabe and Ito's palette (2008), its black replaced by grey and its yellow darkened for white ground."""
BEST_COLOUR = "#D55E00"
REFERENCE_COLOUR = "#222222"
MUTED_COLOUR = "#888888"
GRID_COLOUR = "#E5E5E5"
LABEL_GROUND = "rgba(255, 255, 255, 0.85)"
"""Behind labels that stand on points."""
DARK_INKS = MappingProxyType(
    {
        REFERENCE_COLOUR: "#E6E6E6",
        MUTED_COLOUR: "#9AA0A8",
        GRID_COLOUR: "#33373F",
        LABEL_GROUND: "rgba(22, 24, 28, 0.85)",
        "#0072B2": "#2480C8",
    }
)
"""Inks by those on white, for readers who prefer a dark ground; the darkest blue is raised, short of the lighter."""
SCALE = "Viridis"
RIM = MappingProxyType({"width": 0.5, "color": MUTED_COLOUR})
"""Around points coloured by `SCALE`: its dark end would be lost on a dark ground, its light end on white."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon")
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#BBBBBB")
"""Seven colours, five dashes and nine markers: no two of the first 35 contenders share colour and dash."""
LEGEND_ROW_PX = 24
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
NARROW_MARGIN = {"l": 52, "r": 12, "t": 16}
DEFAULT_HEIGHT_PX = 460
TITLE_PX = 20
"""Room that a title takes within a figure."""


def apply_style(figure: Figure, title: str, *, template: str = "plotly_white") -> Figure:
    """Set title, fonts, grid and legend; returns the same figure.

    Args:
        figure: to be styled.
        title: of the figure; may be empty.
        template: of plotly. ``none`` makes a figure ten times faster to build and 6 KB smaller, for pages of many.
    """
    figure.update_layout(
        template=template,
        title={"text": title, "x": 0.01, "xanchor": "left", "font": {"size": 17}},
        font={"family": FONT, "size": 13, "color": REFERENCE_COLOUR},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 80, "r": 30, "t": 80, "b": 60},
        height=DEFAULT_HEIGHT_PX,
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(gridcolor=GRID_COLOUR, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID_COLOUR, zeroline=False, automargin=True)
    return figure


def style_bars(figure: Figure, title: str, *, count: int, axis: str) -> Figure:
    """Stacked bars, one on each of so many lines, with a legend below the axis: it takes several lines on a phone."""
    figure.update_layout(barmode="stack", legend={"traceorder": "normal"})
    figure.update_xaxes(title=axis, rangemode="tozero")
    figure.update_yaxes(autorange="reversed", ticksuffix="  ")
    apply_style(figure, title)
    below = {"y": 0, "yref": "container", "yanchor": "bottom", "x": 0.01, "xanchor": "left"}
    figure.update_layout(height=240 + 60 * max(1, count), legend=below, margin={"t": 60, "b": 140})
    return figure


@dataclass(frozen=True, slots=True)
class Mark:
    """A point that has a name: where it is, and what it looks like."""

    name: str
    x: float
    y: float
    symbol: str
    size: int
    colour: str
    hover: str


Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Frame:
    """The ends of both axes, from which places in px follow; the second may be logarithmic."""

    x: tuple[float, float]
    y: tuple[float, float]
    is_log: bool = False

    @classmethod
    def around(cls, places: Sequence[Place], *, is_log: bool = False) -> Frame:
        """Axes with room for names; they begin at nought unless more than half of the first would be empty."""
        across, up = [x for x, _ in places], [y for _, y in places]
        start = min(across) if min(across) > max(across) / 2.0 else 0.0
        room = 0.08 * (max(across) - start) or 0.08 * max(across)
        low, top = (0.8 * min(up), 1.1 * max(up) * (max(up) / min(up)) ** 0.12) if is_log else (0.0, 1.12 * max(up))
        return cls((start - room if start else 0.0, max(across) + room), (low, top), is_log)

    def height(self, y: float) -> float:
        """A value as the second axis has it: on a logarithmic one its exponent."""
        return math.log10(y) if self.is_log else y

    def px(self, place: Place, size: tuple[float, float]) -> Place:
        """Where a point is on a drawing of some width and height."""
        (left, right), (low, high) = self.x, (self.height(end) for end in self.y)
        return size[0] * (place[0] - left) / (right - left), size[1] * (self.height(place[1]) - low) / (high - low)


WIDE_PX, NARROW_PX = (640.0, 330.0), (180.0, 300.0)
"""Width and height of what axes enclose, on a wide page and on a phone."""
LETTER_PX, LINE_PX = 7.0, 18.0
DIRECTIONS = ((0, 1), (1, 1), (-1, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (0, -1))
DISTANCES_PX = (14.0, 30.0, 50.0, 75.0)


def add_marks(figure: Figure, marks: Sequence[Mark], *, crowd: Sequence[Place], frame: Frame) -> None:
    """Draw points with their names beside them (`set_names`)."""
    for mark in marks:
        is_ring = mark.symbol.endswith("-open")
        figure.add_scatter(
            x=[mark.x], y=[mark.y], mode="markers", name=mark.name, showlegend=False, cliponaxis=False,
            hovertext=[mark.hover], hoverinfo="text",
            marker={"symbol": mark.symbol, "size": mark.size, "color": mark.colour,
                    "line": {"width": 2.5 if is_ring else 0, "color": mark.colour}},
        )  # fmt: skip
    set_names(figure, marks, crowd=crowd, frame=frame)


def set_names(figure: Figure, marks: Sequence[Mark], *, crowd: Sequence[Place], frame: Frame) -> None:
    """Name points that are drawn where names cover no other point or name, and set the axes.

    Args:
        figure: to be drawn on.
        marks: the points.
        crowd: the points without a name.
        frame: the axes.
    """
    figure.update_xaxes(range=list(frame.x))
    figure.update_yaxes(range=[frame.height(end) for end in frame.y])
    points = [*crowd, *((mark.x, mark.y) for mark in marks)]
    wide, narrow = ([*_labels(marks, points, frame, size)] for size in (WIDE_PX, NARROW_PX))
    figure.update_layout(annotations=wide, meta={"narrow": {"annotations": narrow}})


def _labels(
    marks: Sequence[Mark], points: Sequence[Place], frame: Frame, size: tuple[float, float]
) -> Iterator[dict[str, Any]]:
    """Names of marks on a drawing of a size: each where it covers least, the nearest such place."""
    crowd = [frame.px(point, size) for point in points]
    taken: list[tuple[float, float, float, float]] = []
    for mark in marks:
        x, y = frame.px((mark.x, mark.y), size)
        half = (len(mark.name) * LETTER_PX / 2, LINE_PX / 2)
        shifts = [
            (across * (distance + half[0]), up * (distance + half[1] * (across == 0)))
            for distance in DISTANCES_PX
            for across, up in DIRECTIONS
        ]
        boxes = [_box(x + right, y + up, half) for right, up in shifts]
        place = min(range(len(boxes)), key=lambda at: (_cover(boxes[at], crowd, taken, size), at))  # noqa: B023 -- used at once
        taken.append(boxes[place])
        yield {
            "x": mark.x, "y": frame.height(mark.y), "text": mark.name, "ax": shifts[place][0], "ay": -shifts[place][1],
            "showarrow": True, "arrowhead": 0, "arrowwidth": 1, "arrowcolor": mark.colour,
            "standoff": mark.size / 2, "font": {"color": mark.colour}, "bgcolor": LABEL_GROUND, "borderpad": 1,
        }  # fmt: skip


def _box(x: float, y: float, half: tuple[float, float]) -> tuple[float, float, float, float]:
    return x - half[0], x + half[0], y - half[1], y + half[1]


def _cover(
    box: tuple[float, float, float, float],
    crowd: Sequence[Place],
    taken: Sequence[tuple[float, float, float, float]],
    size: tuple[float, float],
) -> int:
    """How much a name would cover: points, with room around them; other names and the edge count for many."""
    left, right, low, high = box
    room = 7.0
    points = sum(left - room < x < right + room and low - room < y < high + room for x, y in crowd)
    names = sum(left < end and begin < right and low < top and bottom < high for begin, end, bottom, top in taken)
    is_outside = left < 0.0 or low < 0.0 or right > size[0] or high > size[1]
    return points + 100 * names + 100 * is_outside


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, dash and marker of a contender."""

    colour: str
    dash: str
    marker: str


def contender_look(index: int) -> Look:
    """The look of the contender at a place of the study's order."""
    return Look(LINE_COLOURS[index % len(LINE_COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)])


def plot_text(text: str) -> str:
    """A name as plotly shall show it: its labels understand some tags, which names must not bring along."""
    return html.escape(text)


def finish_figure(
    figure: Figure, *, height: int, num_legend: int = 0, narrow: Mapping[str, Any] | None = None
) -> Figure:
    """Set the house's look, without a title, and what changes on a narrow page.

    Args:
        figure: to be styled; returned.
        height: of the drawing, px.
        num_legend: entries of the legend below the drawing; two of them share a row on a narrow page.
        narrow: further changes of the layout on a narrow page.
    """
    apply_style(figure, "", template="none")
    figure.update_layout(
        title=None, height=height, legend=LEGEND, margin={"l": 70, "r": 24, "t": 36, "b": 90 if num_legend else 56}
    )
    figure.update_xaxes(title_standoff=8)
    figure.update_yaxes(title_standoff=8)
    below = LEGEND_ROW_PX * math.ceil(num_legend / 2)
    changes: dict[str, Any] = {"height": height + below, "margin": {**NARROW_MARGIN, "b": 60 + below}}
    figure.update_layout(meta={"narrow": {**changes, **(narrow or {})}})
    return figure


def figure_block(name: str, figure: Figure) -> FigureBlock:
    """A figure of `apply_style` for a page: its title becomes a heading, and a narrow page has the legend below it.

    Beside each other there is no room for many axes on a narrow page: parallel coordinates keep their width there. What
    a figure itself asks for on a narrow page (``meta``) goes before.
    """
    from plotly.graph_objects import Figure, Parcoords

    drawn, title = Figure(figure), figure.layout.title.text or ""
    margin, height = drawn.layout.margin, drawn.layout.height or DEFAULT_HEIGHT_PX
    if title:
        height -= TITLE_PX
        drawn.update_layout(title=None, height=height, margin={"t": margin.t - TITLE_PX})
    below = 22 * sum(bool(trace.name) and trace.showlegend is not False for trace in drawn.data)
    narrow = {"legend": LEGEND, "margin.l": 60, "margin.r": 16, "margin.b": 60 + below, "height": height + below}
    if any(isinstance(trace, Parcoords) for trace in drawn.data):
        narrow |= {"width": 760, "margin.r": 40}  # the last axis has its name above it, half of it to its right
    own = (figure.layout.meta or {}).get("narrow", {})
    drawn.update_layout(meta={"narrow": {**narrow, **own}})
    return FigureBlock(name, title, "", drawn)
