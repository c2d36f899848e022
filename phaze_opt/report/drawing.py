"""Pictures drawn by matplotlib: as elements of a page, light and dark, wide and narrow, and as SVG and PNG files."""

from __future__ import annotations

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final
from xml.etree import ElementTree

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.record.input_files import outside_working_folder
from phaze_opt.record.printable import printable
from phaze_opt.report.picture import (
    BEST_COLOUR,
    DARK_INKS,
    GRID_COLOUR,
    GROUND_COLOUR,
    MUTED_COLOUR,
    REFERENCE_COLOUR,
    Band,
    Boxes,
    Curve,
    Layer,
    Marks,
    Picture,
    PlotAxis,
    Rule,
    Words,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

WIDE_PX, NARROW_PX = 900, 390
PX_PER_INCH = 100.0
POINTS_PER_PX = 72.0 / PX_PER_INCH
PNG_DPI, CROWD_DPI = 160, 110
LEGEND_ROW_PX = 22
LETTER_PX, LINE_PX = 6.4, 15.0
MOST_MARKERS = 8
CROWD = 600
"""Marks of a picture from which on a page has them as an image, without words under a pointer."""
DASHES = MappingProxyType({"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3))})
SYMBOLS = MappingProxyType(
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
        "text.color": REFERENCE_COLOUR,
        "axes.labelcolor": REFERENCE_COLOUR,
        "axes.edgecolor": MUTED_COLOUR,
        "xtick.color": MUTED_COLOUR,
        "ytick.color": MUTED_COLOUR,
        "xtick.labelcolor": REFERENCE_COLOUR,
        "ytick.labelcolor": REFERENCE_COLOUR,
        "legend.labelcolor": REFERENCE_COLOUR,
        "hatch.linewidth": 0.8,
    }
)
INKS = MappingProxyType({ink.lower(): f"var(--ink{place})" for place, ink in enumerate(DARK_INKS)})
"""Variables of a page's style by the ink on white."""


def image_files(name: str, picture: Picture) -> dict[str, bytes]:
    """A picture as files by name, ``NAME.svg`` and ``NAME.png``."""
    with _settings(name):
        drawn = _Drawing(picture, WIDE_PX, picture.title)
        return {f"{name}.{ending}": _saved(drawn.sheet, ending) for ending in ("svg", "png")}


def picture_file(picture: Picture, path: Path) -> bytes:
    """A picture as the ending of a file's name says: ``.svg``, ``.png``, or another that matplotlib draws.

    Raises:
        InputError: the ending is of no kind of picture.
    """
    with _settings(path.stem):
        sheet = _Drawing(picture, WIDE_PX, picture.title).sheet
        ending = path.suffix.removeprefix(".").lower()
        if ending not in sheet.canvas.get_supported_filetypes():
            message = (
                f"{path}: no picture is drawn as {path.suffix or 'a file without an ending'}; name it .svg or .png"
            )
            raise InputError(message)
        return _saved(sheet, ending)


def svg_element(name: str, picture: Picture, *, is_narrow: bool = False, is_on_page: bool = True) -> str:
    """A picture as an SVG element, without a title.

    Args:
        name: unique in the page.
        picture: to be drawn.
        is_narrow: for a page as narrow as a phone, instead of one of `WIDE_PX`.
        is_on_page: in inks that the style of the page sets, with what a pointer shows (``data-tip``) and the number of
            each layer (``data-layer``).
    """
    name = f"{name}-narrow" if is_narrow else name
    with _settings(name):
        drawn = _Drawing(picture, NARROW_PX if is_narrow else WIDE_PX, "", is_on_page=is_on_page)
        file = _saved(drawn.sheet, "svg", is_transparent=is_on_page).decode()
    # Within HTML no names of formats are needed.
    plain = re.sub(r' xmlns(:xlink)?="[^"]*"', "", file[file.index("<svg") :]).replace("xlink:href", "href")
    root = ElementTree.fromstring(plain)
    if is_on_page:
        _mark_up(root, drawn)
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    text = ElementTree.tostring(root, encoding="unicode")
    if is_on_page:
        text = re.sub("|".join(INKS), lambda found: INKS[found[0]], text)
        text = re.sub(r" font-family: [^;\"]*(;|(?=\"))", "", text)  # that of the page
    return re.sub(r"\s*\n\s*", "\n", text)


def short_number(value: float) -> str:
    """A label of a tick: thousands and more by their prefix."""
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and abs(value) >= 1e4:
            return f"{value / size:.6g}{prefix}"
    return f"{value:,.6g}"


def _saved(sheet: Sheet, ending: str, *, is_transparent: bool = False) -> bytes:
    stream = io.BytesIO()
    options: dict[str, Any] = {"dpi": PNG_DPI} if ending == "png" else {"dpi": CROWD_DPI}
    if ending == "svg":
        options["metadata"] = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    sheet.savefig(stream, format=ending, transparent=is_transparent, **options)
    return stream.getvalue()


def _mark_up(root: ElementTree.Element, drawn: _Drawing) -> None:
    """Say of every element which layer it is of and what a pointer over it shows; drop names that nothing refers to."""
    used = set(re.findall(r"(?:#)([\w-]+)", " ".join(value for each in root.iter() for value in each.attrib.values())))
    for element in root.iter():
        key = element.get("id", "")
        if key in drawn.layer_of:
            element.set("data-layer", str(drawn.layer_of[key]))
            if drawn.is_hidden(drawn.layer_of[key]):
                element.set("style", "display: none")
            for shape, words in zip(_shapes(element), drawn.hovers.get(key, ()), strict=False):
                shape.set("data-tip", printable_lines(words))
        if key and key not in used:
            del element.attrib["id"]


def _shapes(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Shapes within an element in order, but for definitions."""
    for child in element:
        if child.tag == "defs":
            continue
        if child.tag in ("use", "path"):
            yield child
        else:
            yield from _shapes(child)


def printable_lines(text: str) -> str:
    """Text of several lines with nothing in it that steers."""
    return "\n".join(printable(line) for line in text.split("\n"))


@contextmanager
def _settings(name: str) -> Iterator[None]:
    """Letters stay letters in SVG, equal pictures give equal files, and names within drawings of a page differ.

    Letters that the font of pictures has not are boxes in them, of which nobody is warned. The user's own settings of
    matplotlib change nothing.
    """
    with outside_working_folder():
        from matplotlib import rc_context, style

    own = {**SETTINGS, "svg.hashsalt": name}
    with style.context("default", after_reset=True), rc_context(own), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from|constrained_layout not applied")
        yield


@final
class _Drawing:
    """A picture drawn at one width.

    Attributes:
        sheet: of matplotlib.
        layer_of, hovers: number of the layer, and words of its shapes, by the name of a group in SVG.
    """

    def __init__(self, picture: Picture, width_px: int, title: str, *, is_on_page: bool = False) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Sheet

        self.layer_of: dict[str, int] = {}
        self.hovers: dict[str, Sequence[str]] = {}
        self._picture = picture
        self._is_narrow = width_px < WIDE_PX
        self._has_crowd = is_on_page and sum(len(each.x) for each in picture.layers if isinstance(each, Marks)) > CROWD
        names = [layer.name for layer in picture.layers if isinstance(layer, Curve | Marks | Boxes) and layer.name]
        longest = max(map(len, names), default=0)
        self._columns = max(1, min(4, int(width_px / (LETTER_PX * longest + 60.0))))
        rows = -(-len(dict.fromkeys(names)) // self._columns) if len(set(names)) > 1 else 0
        height_px = picture.height_px
        if picture.is_to_scale and picture.x.span and picture.y.span:
            share = (picture.y.span[1] - picture.y.span[0]) / (picture.x.span[1] - picture.x.span[0])
            height_px = min(height_px, round(share * (width_px - 70.0)) + 50)
        height_px += LEGEND_ROW_PX * rows + (26 if title else 0)
        self.sheet = Sheet(figsize=(width_px / PX_PER_INCH, height_px / PX_PER_INCH), dpi=100, layout="constrained")
        FigureCanvasAgg(self.sheet)
        self._axes: Axes = self.sheet.add_subplot()
        for number, layer in enumerate(picture.layers):
            if is_on_page or not self.is_hidden(number):
                self._draw(number, layer)
        for which, axis in (("x", picture.x), ("y", picture.y)):
            self._finish(which, axis)
        if title:
            self._axes.set_title(printable(title), loc="left", fontsize=12)
        if rows:
            self._legend()
        self.sheet.draw_without_rendering()
        self.sheet.set_layout_engine(None)  # positions are found once, and are the same for all files
        self._write_within()
        self._write_labels()

    def is_hidden(self, number: int) -> bool:
        """Whether a layer is drawn on a page alone, when asked for."""
        layer = self._picture.layers[number]
        return isinstance(layer, Band) and layer.is_hidden

    def _own(self, artist: Artist, number: int, hovers: Sequence[str] = ()) -> None:
        """Make the artist a group of SVG that is found again."""
        key = f"layer{number}x{len(self.layer_of)}"
        artist.set_gid(key)
        self.layer_of[key] = number
        self.hovers[key] = hovers

    def _draw(self, number: int, layer: Layer) -> None:
        match layer:
            case Curve():
                self._line(number, layer)
            case Band():
                step: Literal["post"] | None = "post" if layer.is_step else None
                band = self._axes.fill_between(layer.x, layer.low, layer.high, color=layer.colour, step=step, lw=0)
                self._own(band, number)
            case Marks():
                self._marks(number, layer)
            case Boxes():
                self._boxes(number, layer)
            case Rule():
                across = self._axes.axhline if layer.x is None else self._axes.axvline
                at = (layer.y if layer.x is None else layer.x) or 0.0
                self._own(across(at, color=MUTED_COLOUR, linewidth=1, linestyle=DASHES[layer.dash]), number)
                if layer.words:
                    self._axes.annotate(
                        printable(layer.words), (at, 0.0), (-4, 4), xycoords=("data", "axes fraction"),
                        textcoords="offset points", ha="right", fontsize=8, color=MUTED_COLOUR,
                    )  # fmt: skip
            case Words():
                words = self._axes.annotate(
                    printable_lines(layer.text), (layer.x, layer.y), (0, layer.lift_px * POINTS_PER_PX),
                    textcoords="offset points", ha=layer.side, va="center", fontsize=8.5, color=REFERENCE_COLOUR,
                    weight="bold" if layer.is_bold else "normal", annotation_clip=False,
                )  # fmt: skip
                words.set_in_layout(False)

    def _line(self, number: int, layer: Curve) -> None:
        (line,) = self._axes.plot(
            layer.x, layer.y, color=layer.colour, linewidth=0.8 * layer.width, linestyle=DASHES[layer.dash],
            label=printable(layer.name) or None, drawstyle="steps-post" if layer.is_step else "default",
        )  # fmt: skip
        of_line = layer.hovers[:1] if not layer.marker else ()
        self._own(line, number, of_line or ([layer.name] if layer.name else ()))
        if layer.marker and len(layer.x):
            count = len(layer.x)
            shown = sorted({round(place) for place in np.linspace(0, count - 1, min(count, MOST_MARKERS))})
            x, y = ([values[place] for place in shown] for values in (layer.x, layer.y))
            size = (POINTS_PER_PX * layer.marker_px) ** 2
            shape = SYMBOLS[layer.marker]
            marks = self._axes.scatter(x, y, s=size, marker=shape, color=layer.colour, zorder=3)
            self._own(marks, number, [layer.hovers[place] for place in shown] if layer.hovers else [layer.name] * count)
            line.set_marker(shape)  # of the legend alone
            line.set_markevery([])
            line.set_markersize(POINTS_PER_PX * layer.marker_px)

    def _marks(self, number: int, layer: Marks) -> None:
        is_crowd = self._has_crowd
        size = (POINTS_PER_PX * layer.px) ** 2
        label = printable(layer.name) or None
        if layer.scale is not None:
            low, high = layer.scale.span or (None, None)
            drawn = self._axes.scatter(
                layer.x, layer.y, s=size, c=layer.scale.values, cmap="viridis", vmin=low, vmax=high, label=label,
                marker=SYMBOLS[str(layer.symbol)], alpha=layer.opacity, rasterized=is_crowd,
                edgecolors=[BEST_COLOUR if place in layer.ringed else MUTED_COLOUR for place in range(len(layer.x))],
                linewidths=[1.8 if place in layer.ringed else 0.4 for place in range(len(layer.x))], zorder=2.5,
            )  # fmt: skip
            self._own(drawn, number, layer.hovers)
            if layer.scale.label:
                bar = self.sheet.colorbar(drawn, ax=self._axes, pad=0.02, fraction=0.06, aspect=30)
                bar.set_label(printable(layer.scale.label), fontsize=9)
                bar.ax.yaxis.set_major_formatter(lambda value, _: short_number(value))
            return
        for symbol, places in _places_by(layer.symbol, len(layer.x)).items():
            shape, is_open = SYMBOLS[symbol.removesuffix("-open")], symbol.endswith("-open")
            colours = [layer.colour if isinstance(layer.colour, str) else layer.colour[place] for place in places]
            rims = [
                BEST_COLOUR if place in layer.ringed else colour for place, colour in zip(places, colours, strict=True)
            ]
            style: dict[str, Any] = {"facecolors": "none", "edgecolors": rims, "linewidths": 1.8}
            if shape in "x|":
                style = {"c": colours, "linewidths": 1.8}
            elif not is_open:
                widths = [1.8 if place in layer.ringed else 0.0 for place in places]
                style = {"facecolors": colours, "edgecolors": rims, "linewidths": widths}
            drawn = self._axes.scatter(
                [layer.x[place] for place in places], [layer.y[place] for place in places], s=size, marker=shape,
                label=label, alpha=layer.opacity, zorder=3, rasterized=is_crowd, clip_on=is_crowd, **style,
            )  # fmt: skip
            self._own(drawn, number, [layer.hovers[place] for place in places] if layer.hovers else ())

    def _boxes(self, number: int, layer: Boxes) -> None:
        from matplotlib.collections import PolyCollection

        corners = [
            ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
            for x, y, width, height in zip(layer.left, layer.bottom, layer.width, layer.height, strict=True)
        ]
        boxes = PolyCollection(
            corners, facecolors=layer.colour, edgecolors=GROUND_COLOUR, linewidths=0.5,
            hatch="//" if layer.is_hatched else None, label=printable(layer.name) or None, zorder=2,
        )  # fmt: skip
        self._axes.add_collection(boxes)
        self._own(boxes, number, layer.hovers)

    def _finish(self, which: str, axis: PlotAxis) -> None:
        self._axes.set(**{f"{which}label": printable(axis.label)})
        if axis.is_log:
            self._axes.set(**{f"{which}scale": "log"})
        if axis.span is not None:
            self._axes.set(**{f"{which}lim": axis.span})
        elif axis.is_from_zero and not axis.is_log:
            self._axes.set(**{f"{which}lim": (0, None)})
        drawn = self._axes.xaxis if which == "x" else self._axes.yaxis
        if axis.is_bare:
            self._axes.set(**{f"{which}ticks": []})
            self._axes.spines["left" if which == "y" else "bottom"].set_visible(False)
        elif axis.ticks:
            self._set_ticks(which, axis)
        else:
            drawn.set_major_formatter(lambda value, _: f"{100 * value:.4g} %" if axis.is_share else short_number(value))
            if axis.is_log:
                drawn.set_minor_formatter(lambda value, _: "")
            elif self._is_narrow and which == "x":
                self._axes.locator_params("x", nbins=5)
        drawn.set_inverted(axis.is_flipped)
        if which == "y":
            self._axes.grid(visible=True, color=GRID_COLOUR, linewidth=0.6)
            if axis.ticks or axis.is_bare:
                self._axes.grid(visible=False, axis="y")
            if self._picture.x.is_bare or self._picture.x.ticks:
                self._axes.grid(visible=False, axis="x")
            self._axes.set_axisbelow(True)
            self._axes.spines[["top", "right"]].set_visible(False)
            if self._picture.is_to_scale:
                self._axes.set_aspect("equal", adjustable="box")

    def _set_ticks(self, which: str, axis: PlotAxis) -> None:
        """Ticks as stated: long words broken on the left, or written aslant below, as there is room."""
        wide = 16 if self._is_narrow else 34
        words = [printable(text) for _, text in axis.ticks]
        if which == "y":
            words = ["\n".join(textwrap.wrap(text, wide)) for text in words]
        self._axes.set(**{f"{which}ticks": [at for at, _ in axis.ticks], f"{which}ticklabels": words})
        self._axes.minorticks_off()
        if which == "x":
            room_px = self.sheet.get_figwidth() * PX_PER_INCH * 0.8
            if sum(len(text) + 2 for text in words) * LETTER_PX > room_px:
                aslant = (
                    {"rotation": 90} if self._is_narrow else {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
                )
                self._axes.set_xticks([at for at, _ in axis.ticks], labels=words, **aslant)

    def _legend(self) -> None:
        handles, labels = self._axes.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        if len(unique) > 1:
            self.sheet.legend(
                unique.values(), unique.keys(), loc="outside lower left", ncols=self._columns, frameon=False, fontsize=9
            )

    def _px(self, x: float, y: float) -> tuple[float, float]:
        at = self._axes.transData.transform((x, y))
        return float(at[0]), float(at[1])

    def _write_within(self) -> None:
        """Words in those boxes that have room for them."""
        for layer in self._picture.layers:
            if not isinstance(layer, Boxes) or not layer.words:
                continue
            for place, text in enumerate(layer.words):
                x, y, width, height = (
                    values[place] for values in (layer.left, layer.bottom, layer.width, layer.height)
                )
                (left, low), (right, high) = self._px(x, y), self._px(x + width, y + height)
                lines = text.split("\n")
                needed = max(map(len, lines)) * LETTER_PX + 2, len(lines) * (LINE_PX - 3)
                if not text or abs(right - left) < needed[0] or abs(high - low) < needed[1]:
                    continue
                colour = layer.colour if isinstance(layer.colour, str) else layer.colour[place]
                ground = None
                if layer.is_hatched:
                    ground = {"facecolor": colour, "linewidth": 0, "pad": 0.5}
                self._axes.text(
                    x + width / 2, y + height / 2, printable_lines(text), ha="center", va="center", fontsize=7.5,
                    color="#FEFEFE" if _is_dark(colour) else "#212121", bbox=ground, zorder=4,
                )  # fmt: skip

    def _write_labels(self) -> None:
        """Names of marks, each where it covers least, the nearest such place."""
        named, crowd = [], []
        for layer in self._picture.layers:
            if isinstance(layer, Marks):
                at = [self._px(x, y) for x, y in zip(layer.x, layer.y, strict=True)]
                crowd += at
                colours = [layer.colour] * len(at) if isinstance(layer.colour, str) else layer.colour
                named += [one for one in zip(layer.labels, at, layer.x, layer.y, colours, strict=False) if one[0]]
        box = self._axes.get_window_extent()
        frame = (box.x0, box.x1, box.y0, box.y1)
        taken: list[_Box] = []
        for text, (left, up), x, y, colour in named:
            shifts = list(_shifts(len(text)))
            boxes = [_box_at(left + right, up + over, len(text)) for right, over in shifts]
            covers = [_cover(each, crowd, taken, frame) for each in boxes]
            place = min(range(len(boxes)), key=covers.__getitem__)
            taken.append(boxes[place])
            self._axes.annotate(
                printable(text), (x, y), (POINTS_PER_PX * shifts[place][0], POINTS_PER_PX * shifts[place][1]),
                textcoords="offset points", ha="center", va="center", fontsize=8.5, color=colour, zorder=5,
                bbox={"facecolor": GROUND_COLOUR, "linewidth": 0, "pad": 0.8, "alpha": 0.85},
                arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 5},
            )  # fmt: skip


_Box = tuple[float, float, float, float]
DIRECTIONS = ((0, 1), (1, 1), (-1, 1), (1, 0), (-1, 0), (1, -1), (-1, -1), (0, -1))
DISTANCES_PX = (14.0, 30.0, 50.0, 75.0)


def _shifts(letters: int) -> Iterator[tuple[float, float]]:
    """Where the middle of a name may lie from its mark, px; the nearest first."""
    half = letters * LETTER_PX / 2
    for distance in DISTANCES_PX:
        for across, up in DIRECTIONS:
            yield across * (distance + half), up * (distance + (0.0 if across else LINE_PX / 2))


def _box_at(x: float, y: float, letters: int) -> _Box:
    half = letters * LETTER_PX / 2
    return x - half, x + half, y - LINE_PX / 2, y + LINE_PX / 2


def _cover(box: _Box, crowd: Sequence[tuple[float, float]], taken: Sequence[_Box], frame: _Box) -> int:
    """How much a name would cover: points, with room around them; other names and the edge count for many."""
    left, right, low, high = box
    room = 7.0
    points = sum(left - room < x < right + room and low - room < y < high + room for x, y in crowd)
    names = sum(left < end and begin < right and low < top and bottom < high for begin, end, bottom, top in taken)
    is_outside = left < frame[0] or low < frame[2] or right > frame[1] or high > frame[3]
    return points + 100 * names + 100 * is_outside


def _places_by(symbol: str | Sequence[str], count: int) -> dict[str, list[int]]:
    """Indices of marks by their symbol."""
    if isinstance(symbol, str):
        return {symbol: list(range(count))}
    places: dict[str, list[int]] = {}
    for place, each in enumerate(symbol):
        places.setdefault(each, []).append(place)
    return places


def _is_dark(colour: str) -> bool:
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return 0.3 * red + 0.59 * green + 0.11 * blue < 150
