"""How contenders look in figures: colour, dash and marker together, so that no figure rests on colour alone."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from phaze_opt.report.style import COLOURS, apply_style

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon")
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#BBBBBB")
"""Seven colours, five dashes and nine markers: no two of the first 35 contenders share colour and dash."""
LEGEND_ROW_PX = 24
LEGEND = {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom"}
NARROW_MARGIN = {"l": 52, "r": 12, "t": 16}


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, dash and marker of a contender."""

    colour: str
    dash: str
    marker: str


def contender_look(index: int) -> Look:
    """The look of the contender at a place of the study's order."""
    return Look(
        LINE_COLOURS[index % len(LINE_COLOURS)],
        DASHES[index % len(DASHES)],
        MARKERS[index % len(MARKERS)],
    )


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
