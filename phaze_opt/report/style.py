"""One look for all figures: white or dark ground, colours that colour-blind readers can tell apart.

Contenders have colour, dash and marker together, so that no figure rests on colour alone.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
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
