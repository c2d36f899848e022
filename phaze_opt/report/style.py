"""One look for all figures: white ground, colours that colour-blind readers can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BBBBBB", "#7A6A00")
"""Okabe and Ito's palette (2008), its black replaced by grey and its yellow darkened for white ground."""
BEST_COLOUR = "#D55E00"
REFERENCE_COLOUR = "#222222"
MUTED_COLOUR = "#888888"
GRID_COLOUR = "#E5E5E5"
SCALE = "Viridis"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


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
        font={"family": FONT, "size": 13, "color": "#222222"},
        legend={"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        margin={"l": 80, "r": 30, "t": 80, "b": 60},
        height=460,
        hoverlabel={"align": "left"},
    )
    figure.update_xaxes(gridcolor=GRID_COLOUR, zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor=GRID_COLOUR, zeroline=False, automargin=True)
    return figure
