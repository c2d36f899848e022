"""A picture as values, and the colours of all: pages, SVG and PNG files are drawn from it (`drawing`).

Contenders have colour, dash and marker together, so that no picture rests on colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#BBBBBB", "#7A6A00")
"""Okabe and Ito's palette (2008), its black replaced by grey and its yellow darkened for white ground."""
BEST_COLOUR = "#D55E00"
REFERENCE_COLOUR = "#222222"
MUTED_COLOUR = "#888888"
GRID_COLOUR = "#E5E5E5"
GROUND_COLOUR = "#FFFFFF"
DARK_INKS = MappingProxyType(
    {
        REFERENCE_COLOUR: "#E6E6E6",
        MUTED_COLOUR: "#9AA0A8",
        GRID_COLOUR: "#33373F",
        GROUND_COLOUR: "#16181C",
        "#0072B2": "#2480C8",
    }
)
"""Inks by those on white, for readers who prefer a dark ground; the darkest blue is raised, short of the lighter."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down", "pentagon")
LINE_COLOURS = tuple(colour for colour in COLOURS if colour != "#BBBBBB")
"""Seven colours, five dashes and nine markers: no two of the first 35 contenders share colour and dash."""

Values = Sequence[float]


@dataclass(frozen=True, slots=True)
class Look:
    """Colour, dash and marker of a contender."""

    colour: str
    dash: str
    marker: str


def contender_look(index: int) -> Look:
    """The look of the contender at a place of the study's order."""
    return Look(LINE_COLOURS[index % len(LINE_COLOURS)], DASHES[index % len(DASHES)], MARKERS[index % len(MARKERS)])


@dataclass(frozen=True, slots=True)
class PlotAxis:
    """An axis.

    Attributes:
        label: what it shows, with its unit.
        is_log: logarithmic.
        span: its two ends; without them those of what is drawn.
        ticks: positions and their labels; without them round values.
        is_from_zero: begins at zero, where it has no span.
        is_flipped: falls from left to right, or rises from top to bottom.
        is_share: shares of one, written in per cent.
        is_bare: neither ticks nor grid.
    """

    label: str = ""
    is_log: bool = False
    span: tuple[float, float] | None = None
    ticks: tuple[tuple[float, str], ...] = ()
    is_from_zero: bool = False
    is_flipped: bool = False
    is_share: bool = False
    is_bare: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """A line through points; not a number parts it. A step holds each value up to the next point.

    Attributes:
        x, y: equally many.
        name: in the legend; may be empty.
        marker: on at most `MOST_MARKERS` of the points.
        hovers: for each point what a pointer over its marker shows.
    """

    x: Values
    y: Values
    name: str = ""
    colour: str = REFERENCE_COLOUR
    width: float = 2.0
    dash: str = "solid"
    is_step: bool = False
    marker: str = ""
    marker_px: float = 7.0
    hovers: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Band:
    """What lies between two lines; one that is hidden is drawn on a page alone, when asked for."""

    x: Values
    low: Values
    high: Values
    colour: str
    is_step: bool = False
    is_hidden: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Values that colour marks, and what they are."""

    values: Values
    label: str
    span: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Marks:
    """Points.

    Attributes:
        x, y: equally many.
        name: in the legend; may be empty.
        colour, symbol: of all, or of each.
        px: diameter.
        scale: colours them instead.
        ringed: indices of those with a thick rim in `BEST_COLOUR`.
        hovers: for each what a pointer over it shows.
        labels: written where they cover least of what else is drawn; empty of points without a name.
    """

    x: Values
    y: Values
    name: str = ""
    colour: str | Sequence[str] = COLOURS[0]
    symbol: str | Sequence[str] = "circle"
    px: float = 8.0
    opacity: float = 1.0
    scale: Scale | None = None
    ringed: Sequence[int] = ()
    hovers: Sequence[str] = ()
    labels: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Boxes:
    """Rectangles: bars, pieces of work, parts of a die, cells of a matrix.

    Attributes:
        left, bottom, width, height: one value each.
        name: in the legend; may be empty.
        colour: of all, or of each.
        hovers: for each what a pointer over it shows.
        words: for each what is written in it where it fits.
    """

    left: Values
    bottom: Values
    width: Values
    height: Values
    name: str = ""
    colour: str | Sequence[str] = COLOURS[0]
    is_hatched: bool = False
    hovers: Sequence[str] = ()
    words: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A straight line across the picture, upright at ``x`` or level at ``y``, with words beside it."""

    x: float | None = None
    y: float | None = None
    words: str = ""
    dash: str = "dot"


@dataclass(frozen=True, slots=True)
class Words:
    """Text at a point: ``left``, ``center`` or ``right`` of it begins or ends there; ``lift_px`` above it."""

    x: float
    y: float
    text: str
    side: str = "center"
    is_bold: bool = False
    lift_px: float = 0.0


Layer = Curve | Band | Marks | Boxes | Rule | Words


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture.

    Attributes:
        title: above it in files and as a heading in pages.
        layers: from the bottom up.
        x, y: axes.
        height_px: of what the axes enclose and their labels, without the legend.
        is_to_scale: one unit is equally long on both axes.
    """

    title: str
    layers: tuple[Layer, ...]
    x: PlotAxis = PlotAxis()
    y: PlotAxis = PlotAxis()
    height_px: int = 400
    is_to_scale: bool = False


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of all bars: its length in each, and what a pointer over it shows."""

    name: str
    lengths: tuple[float, ...]
    hovers: tuple[str, ...]
    colour: str
    is_hatched: bool = False


BAR = 0.62
"""Height of a bar, of its row."""


def row_axis(names: Sequence[str]) -> PlotAxis:
    """An upright axis with a row for every name, the first on top."""
    return PlotAxis(span=(-0.6, len(names) - 0.4), ticks=tuple(enumerate(names)), is_flipped=True)


def stacked_bars(title: str, label: str, names: Sequence[str], parts: Sequence[BarPart]) -> Picture:
    """A bar for every name, from the left part after part; parts of no length are left out."""
    begins = [0.0] * len(names)
    layers = []
    for part in parts:
        if any(part.lengths):
            rows = [row - BAR / 2 for row in range(len(names))]
            heights = [BAR] * len(names)
            layers.append(
                Boxes(tuple(begins), rows, part.lengths, heights, part.name, part.colour, part.is_hatched, part.hovers)
            )
            begins = [begin + length for begin, length in zip(begins, part.lengths, strict=True)]
    return Picture(
        title, tuple(layers), PlotAxis(label, is_from_zero=True), row_axis(names), 90 + 50 * max(1, len(names))
    )


def span_around(values: Values, *, share: float = 0.08) -> tuple[float, float]:
    """Ends of an axis with room for names; it begins at zero unless more than half of it would be empty then."""
    low, high = min(values), max(values)
    start = low if low > high / 2.0 else 0.0
    room = share * (high - start) or share * high
    return (start - room if start else 0.0, high + room)


def faint(colour: str, opacity: float = 0.16) -> str:
    """A colour with its opacity as ``#RRGGBBAA``."""
    return f"{colour}{round(255 * opacity):02X}"
