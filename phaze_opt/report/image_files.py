"""Figures as SVG and PNG files, for slides and papers: the same traces that a page draws, on white.

Lines, marks and bars are drawn; a figure of other traces (parallel coordinates, heat maps) has no file.
"""

from __future__ import annotations

import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np

from phaze_opt.record.input_files import outside_working_folder
from phaze_opt.record.printable import printable
from phaze_opt.report.style import MUTED_COLOUR, REFERENCE_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet
    from plotly.graph_objects import Figure

PX_PER_INCH = 100.0
POINTS_PER_PX = 72.0 / PX_PER_INCH
WIDTH_PX = 900
PNG_DPI = 160
DRAWN = frozenset({"scatter", "bar"})
DASHES = MappingProxyType(
    {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3)), "longdashdot": "-."}
)
MARKS = MappingProxyType(
    {
        "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v", "cross": "P", "x": "X",
        "star": "*", "pentagon": "p", "x-thin": "x", "line-ns": "|",
    }
)  # fmt: skip
SETTINGS: Mapping[Any, Any] = MappingProxyType(
    {
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.size": 10,
        "axes.edgecolor": MUTED_COLOUR,
        "xtick.color": MUTED_COLOUR,
    }
    | {"ytick.color": MUTED_COLOUR, "xtick.labelcolor": REFERENCE_COLOUR, "ytick.labelcolor": REFERENCE_COLOUR}
)
CROWD = 250
"""Marks of a figure from which on a page has them as an image."""
CROWD_DPI = 110
LABELLED_SHARE = 0.05
"""Share of the axis from which on a bar has its text inside."""


def render_images(name: str, figure: Figure, title: str) -> dict[str, bytes]:
    """A figure as files by name, ``NAME.svg`` and ``NAME.png``; empty if it has traces that are not drawn.

    Args:
        name: of the files, without an ending.
        figure: of plotly.
        title: above the drawing; may be empty.
    """
    if not all(trace.type in DRAWN for trace in figure.data):
        return {}
    with _settings(name):
        sheet = _sheet(figure, title)
        files = {}
        for ending, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": PNG_DPI})):
            stream = io.BytesIO()
            sheet.savefig(stream, format=ending, **options)
            files[f"{name}.{ending}"] = stream.getvalue()
    return files


def render_drawing(name: str, figure: Figure) -> str:
    """A figure as an SVG element for a page: on the page's ground, in its ink, without a title.

    Args:
        name: unique in the page.
        figure: of plotly, of lines, marks and bars alone.
    """
    with _settings(name):
        stream = io.BytesIO()
        sheet = _sheet(figure, "", is_crowd_an_image=True)
        empty = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        sheet.savefig(stream, format="svg", transparent=True, dpi=CROWD_DPI, metadata=empty)
    text = stream.getvalue().decode()
    return text[text.index("<svg") :]


@contextmanager
def _settings(name: str) -> Iterator[None]:
    """Letters stay letters in SVG, equal figures give equal files, and names within drawings of a page differ.

    Letters that the font of pictures has not are boxes in them, of which nobody is warned. The user's own settings of
    matplotlib change nothing.
    """
    with outside_working_folder():
        from matplotlib import rc_context, style

    own = {**SETTINGS, "svg.hashsalt": name}
    with style.context("default", after_reset=True), rc_context(own), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def _sheet(figure: Figure, title: str, *, is_crowd_an_image: bool = False) -> Sheet:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Sheet

    height_px = figure.layout.height or 460
    sheet = Sheet(figsize=(WIDTH_PX / PX_PER_INCH, height_px / PX_PER_INCH), layout="constrained")
    FigureCanvasAgg(sheet)
    _Drawing(sheet.add_subplot(), figure, is_crowd_an_image=is_crowd_an_image).draw(title)
    sheet.draw_without_rendering()
    sheet.set_layout_engine(None)  # places are found once, and are the same for all files
    return sheet


def plain_text(text: str | None) -> str:
    """A label of plotly without its tags."""
    broken = (text or "").replace("<br>", "\n").replace("<sup>2</sup>", "\N{SUPERSCRIPT TWO}")
    return printable(html.unescape(re.sub(r"</?(?:b|i|sup|sub)>", "", broken)))


@dataclass(slots=True)
class _Scale:
    """An axis: where its values are, names among them by the order in which they come."""

    layout: Any
    places: dict[str, int] = field(default_factory=dict)

    @property
    def is_log(self) -> bool:
        return bool(self.layout.type == "log")

    def of(self, values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Values as numbers; what is not there is not a number."""
        found = [] if values is None else list(values)
        if any(isinstance(value, str) for value in found):
            for value in found:
                self.places.setdefault(value, len(self.places))
            return np.array([self.places[value] for value in found], dtype=float)
        return np.array([np.nan if value is None else value for value in found], dtype=float)

    def at(self, value: Any) -> float:
        """Place of an annotation: on a logarithmic axis it is given by its exponent."""
        if isinstance(value, str):
            return float(self.places.get(value, 0))
        return float(10.0**value if self.is_log else value)


@final
class _Drawing:
    """Draws the traces of one figure into axes."""

    def __init__(self, axes: Axes, figure: Figure, *, is_crowd_an_image: bool = False) -> None:
        self._axes = axes
        self._figure = figure
        num_marks = sum(0 if trace.x is None else len(trace.x) for trace in figure.data)
        self._is_image = is_crowd_an_image and num_marks > CROWD
        self._x = _Scale(figure.layout.xaxis)
        self._y = _Scale(figure.layout.yaxis)
        self._ends: dict[tuple[float, bool], float] = {}
        self._last: tuple[Any, Any] = ((), ())

    def draw(self, title: str) -> None:
        """All of it."""
        for name in self._figure.layout.yaxis.categoryarray or ():
            self._y.places.setdefault(name, len(self._y.places))
        for trace in self._figure.data:
            if trace.visible is False or trace.visible == "legendonly":
                continue
            if trace.type == "bar":
                self._bars(trace)
            else:
                self._scatter(trace)
        self._finish_axes()
        for shape in self._figure.layout.shapes or ():
            self._shape(shape)
        for note in self._figure.layout.annotations or ():
            self._note(note)
        self._axes.set_title(printable(title), loc="left", fontsize=12)
        self._legend()

    def _scatter(self, trace: Any) -> None:
        x, y = self._x.of(trace.x), self._y.of(trace.y)
        mode, is_step = trace.mode or "lines", trace.line.shape == "hv"
        if trace.fill == "toself":
            hatch = "//" if trace.fillpattern.shape else None
            self._axes.fill(
                x, y, facecolor=_colour(trace.fillcolor), edgecolor="white", hatch=hatch, label=_label(trace)
            )
            return
        elif trace.fill == "tonexty" and len(self._last[0]) == len(x):
            step: Literal["post"] | None = "post" if is_step else None
            self._axes.fill_between(x, self._last[1], y, color=_colour(trace.fillcolor), step=step, linewidth=0)
        self._last = (x, y)
        if "lines" in mode and trace.line.width != 0:
            self._axes.plot(
                x, y, color=_colour(trace.line.color), linewidth=0.8 * (trace.line.width or 2),
                linestyle=DASHES.get(trace.line.dash or "solid", "-"), label=_label(trace),
                drawstyle="steps-post" if is_step else "default",
            )  # fmt: skip
        if "markers" in mode:
            self._marks(trace, x, y, label="" if "lines" in mode else _label(trace))

    def _marks(self, trace: Any, x: Any, y: Any, *, label: str | None) -> None:
        marker = trace.marker
        name = str(marker.symbol or "circle")
        colour = marker.color if marker.color is not None else trace.line.color
        size = (0.75 * (float(marker.size) if isinstance(marker.size, int | float) else 8.0)) ** 2
        shape = MARKS.get(name.removesuffix("-open"), "o")
        if not isinstance(colour, str) and colour is not None:
            drawn = self._axes.scatter(x, y, s=size, c=list(colour), cmap="viridis", marker=shape, label=label or None)
            bar = self._axes.figure.colorbar(drawn, ax=self._axes, pad=0.01, fraction=0.05)
            bar.set_label(plain_text(marker.colorbar.title.text))
            return
        is_open = name.endswith("-open") and shape not in "x|"
        self._axes.scatter(
            x, y, s=size, marker=shape, label=label or None, alpha=marker.opacity, zorder=3,
            rasterized=self._is_image,
            **({"facecolors": "none", "edgecolors": _colour(colour), "linewidths": 1.8} if is_open
               else {"c": [_colour(colour)] * len(x)}),
        )  # fmt: skip

    def _bars(self, trace: Any) -> None:
        is_flat = trace.orientation == "h"
        at = self._y.of(trace.y) if is_flat else self._x.of(trace.x)
        size = self._x.of(trace.x) if is_flat else self._y.of(trace.y)
        if not len(size) or np.all(np.isnan(size)):
            self._axes.bar([0], [0], color=_colour(_first(trace.marker.color)), label=_label(trace))
            return
        width = np.array(trace.width if trace.width is not None else [0.6] * len(at), dtype=float)
        base = self._bases(trace, at, size)
        hatch = "//" if _first(trace.marker.pattern.shape) else None
        style: dict[str, Any] = {"color": _colours(trace.marker.color, len(at)), "hatch": hatch, "label": _label(trace)}
        style |= {"edgecolor": "white", "linewidth": 0.5}
        if is_flat:
            self._axes.barh(at, size, width, left=base, **style)
        else:
            self._axes.bar(at, size, width, bottom=base, **style)
        if trace.text is not None and is_flat and trace.textposition == "inside":
            self._texts(trace, at, base, size)

    def _bases(self, trace: Any, at: Any, size: Any) -> Any:
        """Where bars begin: as said, or on top of those before where they are stacked."""
        if trace.base is not None:
            return np.array(trace.base, dtype=float)
        if self._figure.layout.barmode != "stack":
            return np.zeros(len(at))
        base = np.zeros(len(at))
        for index, (place, value) in enumerate(zip(at, size, strict=True)):
            key = (float(place), bool(value >= 0))
            base[index] = self._ends.get(key, 0.0)
            self._ends[key] = base[index] + (0.0 if np.isnan(value) else float(value))
        return base

    def _texts(self, trace: Any, at: Any, base: Any, size: Any) -> None:
        """Words inside those bars that are wide enough."""
        shown = self._x.layout.range
        whole = float(shown[1] - shown[0]) if shown else float(np.nanmax(base + size))
        for text, place, begin, width in zip(trace.text, at, base, size, strict=True):
            if width > LABELLED_SHARE * whole and len(plain_text(text)) * 0.009 < width / whole:
                self._axes.text(
                    begin + width / 2, place, plain_text(text), ha="center", va="center", fontsize=7, color="white"
                )

    def _finish_axes(self) -> None:
        for which, scale in (("x", self._x), ("y", self._y)):
            layout = scale.layout
            self._axes.set(**{f"{which}label": plain_text(layout.title.text)})
            if scale.is_log:
                self._axes.set(**{f"{which}scale": "log"})
            if layout.range is not None:
                ends = [10.0**end for end in layout.range] if scale.is_log else list(layout.range)
                self._axes.set(**{f"{which}lim": ends})
            elif layout.rangemode == "tozero" and not scale.is_log:
                self._axes.set(**{f"{which}lim": (0, None)})
            self._ticks(which, scale)
            if layout.autorange == "reversed":
                (self._axes.yaxis if which == "y" else self._axes.xaxis).set_inverted(True)
        if self._y.layout.scaleanchor:
            self._axes.set_aspect("equal", adjustable="box")
        self._axes.grid(visible=True, color="#E5E5E5", linewidth=0.6)
        self._axes.set_axisbelow(True)
        self._axes.spines[["top", "right"]].set_visible(False)

    def _ticks(self, which: str, scale: _Scale) -> None:
        layout = scale.layout
        if layout.visible is False or layout.showticklabels is False:
            self._axes.set(**{f"{which}ticks": []})
        elif scale.places:
            labels = [plain_text(name) for name in scale.places]
            self._axes.set(**{f"{which}ticks": list(scale.places.values()), f"{which}ticklabels": labels})
        elif layout.tickvals is not None:
            texts = layout.ticktext if layout.ticktext is not None else [f"{value:g}" for value in layout.tickvals]
            labels = [plain_text(str(text)) for text in texts]
            self._axes.set(**{f"{which}ticks": list(layout.tickvals), f"{which}ticklabels": labels})
            self._axes.minorticks_off()

    def _shape(self, shape: Any) -> None:
        """Lines across the figure."""
        if shape.type != "line":
            return
        style = {"color": _colour(shape.line.color), "linewidth": 1, "linestyle": DASHES.get(shape.line.dash, "-")}
        if "domain" in str(shape.xref) or shape.xref == "paper":
            self._axes.axhline(float(shape.y0), **style)
        elif "domain" in str(shape.yref) or shape.yref == "paper":
            self._axes.axvline(float(shape.x0), **style)
        else:
            self._axes.plot([shape.x0, shape.x1], [shape.y0, shape.y1], **style)

    def _note(self, note: Any) -> None:
        if note.xref == "paper" or note.yref == "paper" or not note.text:
            return
        shift = (note.xshift or 0, 0.8 * (note.yshift or 0))
        if note.showarrow:
            shift = (POINTS_PER_PX * (note.ax or 0), -POINTS_PER_PX * (note.ay or 0))
        self._axes.annotate(
            plain_text(note.text), (self._x.at(note.x), self._y.at(note.y)), shift,
            textcoords="offset points", ha={"left": "left", "right": "right"}.get(note.xanchor, "center"), va="center",
            bbox={"facecolor": _colour(note.bgcolor), "linewidth": 0, "pad": 1} if note.bgcolor else None,
            fontsize=8, color=_colour(note.font.color) or REFERENCE_COLOUR, zorder=4,
            arrowprops={"arrowstyle": "-", "color": _colour(note.arrowcolor), "linewidth": 0.8,
                        "shrinkA": 0, "shrinkB": POINTS_PER_PX * (note.standoff or 0)} if note.showarrow else None,
        )  # fmt: skip

    def _legend(self) -> None:
        handles, labels = self._axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        if len(unique) > 1 and self._figure.layout.showlegend is not False:
            self._axes.figure.legend(
                unique.values(), unique.keys(), loc="outside lower left", ncols=4, frameon=False, fontsize=9
            )


def _label(trace: Any) -> str | None:
    return plain_text(trace.name) if trace.name and trace.showlegend is not False else None


def _first(value: Any) -> Any:
    """Of one value for all bars, or of a list, the first."""
    return value[0] if isinstance(value, (list, tuple)) else value


def _colours(value: Any, count: int) -> list[Any]:
    return [_colour(each) for each in value] if isinstance(value, (list, tuple)) else [_colour(value)] * count


def _colour(text: Any) -> Any:
    """A colour of plotly as one of matplotlib."""
    if isinstance(text, str) and text.startswith("rgb"):
        parts = [float(part) for part in re.findall(r"[\d.]+", text)]
        return (*(part / 255 for part in parts[:3]), *parts[3:4])
    return text
