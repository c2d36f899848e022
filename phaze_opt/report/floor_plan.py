"""A die drawn by component: every area to scale, HBM along the long sides, links at the short ones.

The cost model knows areas and edges, no places; what lies between the edges is cut in halves of like area.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from phaze_opt.hardware.silicon.die_report import ComponentFigure, DieReport
from phaze_opt.report.die import COMPONENTS, Dies, component_marker
from phaze_opt.report.style import LABEL_GROUND, LEGEND_ROW_PX, REFERENCE_COLOUR, apply_style
from phaze_opt.report.text import format_number, format_share

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GAP_MM = 3.0
"""Between two dies."""
LETTER_SHARE = 0.0075
"""Of the figure's width, for each letter of a label: what is wider than its component is left to the legend."""
ONE_LINE_SHARE = 0.014
TWO_LINES_SHARE = 0.036
"""Of the figure's width: least heights of components whose labels have one line or two."""
NARROW_PX = 300
"""Width of the drawing on a phone."""
ON_LONG_SIDES = ("hbm", "dram")
ON_SHORT_SIDES = ("links", "die_to_die")
MOST_DIES = 2


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle of a floor plan, in mm."""

    x: float
    y: float
    width: float
    height: float

    @property
    def outline(self) -> tuple[list[float], list[float]]:
        """Corners there and back."""
        right, top = self.x + self.width, self.y + self.height
        return [self.x, right, right, self.x, self.x], [self.y, self.y, top, top, self.y]


@dataclass(frozen=True, slots=True)
class Placed:
    """A component, or half of one, in its place."""

    part: ComponentFigure
    place: Rectangle


def floor_plan(die: DieReport) -> tuple[Placed, ...]:
    """Every component of a die, or of one of its chiplets, in a place of its own; areas add up to it."""
    count = die.num_chiplets
    parts = [replace(part, value=part.value / count) for part in die.areas if part.value > 0.0]
    area_mm2 = sum(part.value for part in parts)
    length = max(die.length_mm, die.width_mm)
    width = area_mm2 / length
    edges: list[Placed] = []
    inner = Rectangle(0.0, 0.0, length, width)
    for part in (each for each in parts if each.name in ON_LONG_SIDES):
        strip = part.value / 2 / inner.width
        edges += (
            Placed(part, Rectangle(inner.x, at, inner.width, strip)) for at in (inner.y, inner.y + inner.height - strip)
        )
        inner = Rectangle(inner.x, inner.y + strip, inner.width, inner.height - 2 * strip)
    for part in (each for each in parts if each.name in ON_SHORT_SIDES):
        strip = part.value / 2 / inner.height
        edges += (
            Placed(part, Rectangle(at, inner.y, strip, inner.height)) for at in (inner.x, inner.x + inner.width - strip)
        )
        inner = Rectangle(inner.x + strip, inner.y, inner.width - 2 * strip, inner.height)
    rest = sorted((part for part in parts if part.name not in ON_LONG_SIDES + ON_SHORT_SIDES), key=lambda p: -p.value)
    return (*edges, *_cut(rest, inner))


def _cut(parts: Sequence[ComponentFigure], place: Rectangle) -> Iterator[Placed]:
    """Cut a place across its longer side into two groups of parts, as near to halves as their order allows."""
    if len(parts) <= 1:
        yield from (Placed(part, place) for part in parts)
        return
    whole = sum(part.value for part in parts)
    sums = [sum(part.value for part in parts[:count]) for count in range(1, len(parts))]
    count = 1 + min(range(len(sums)), key=lambda index: abs(sums[index] - whole / 2))
    share = sums[count - 1] / whole
    x, y, width, height = place.x, place.y, place.width, place.height
    if width >= height:
        first, second = (
            Rectangle(x, y, share * width, height),
            Rectangle(x + share * width, y, width - share * width, height),
        )
    else:
        first, second = (
            Rectangle(x, y, width, share * height),
            Rectangle(x, y + share * height, width, height - share * height),
        )
    yield from _cut(parts[:count], first)
    yield from _cut(parts[count:], second)


def floor_plan_figure(dies: Dies) -> Figure:
    """The first die beside the next, to one scale."""
    import plotly.graph_objects as go

    figure, left, named, titles = go.Figure(), 0.0, set[str](), list[dict[str, Any]]()
    shown = list(dies.items())[:MOST_DIES]
    whole_mm = sum(max(die.length_mm, die.width_mm) for _, die in shown) + GAP_MM * (len(shown) - 1)
    tallest = max(max(each.place.y + each.place.height for each in floor_plan(die)) for _, die in shown)
    for name, die in shown:
        placed = floor_plan(die)
        whole = sum(each.place.width * each.place.height for each in placed)
        for each in placed:
            figure.add_trace(_trace(each, left, whole, is_named=each.part.name not in named))
            named.add(each.part.name)
        # Halves of a component share a label: it has the area of both.
        for each in {each.part.name: each for each in placed}.values():
            text = _text_within(each, whole_mm)
            if text:
                figure.add_annotation(**_label(each, left, text))
        length = max(die.length_mm, die.width_mm)
        each_of = f", one of {die.num_chiplets} chiplets" if die.num_chiplets > 1 else ""
        title = f"{name}{each_of}: {format_number(whole)} mm<sup>2</sup>"
        titles.append({"x": left + length / 2, "y": tallest + 1.2, "text": title, "showarrow": False})
        figure.add_annotation(**titles[-1])
        left += length + GAP_MM
    figure.update_xaxes(title="mm", range=[-0.5, left - GAP_MM + 0.5], constrain="domain", showgrid=False)
    figure.update_yaxes(title="mm", range=[-0.5, tallest + 2.4], scaleanchor="x", showgrid=False)
    apply_style(figure, "The die by component, areas to scale")
    below = {"y": 0, "yref": "container", "yanchor": "bottom", "x": 0.01, "xanchor": "left"}
    figure.update_layout(legend=below, height=520, margin={"t": 60, "b": 130})
    height_px = round(NARROW_PX * (tallest + 3.0) / whole_mm) + 60
    below_px = LEGEND_ROW_PX * len(named)
    # No letters fit into parts of a die on a phone; the legend has their names, and a touch their areas. Names of dies
    # side by side need two lines.
    short = [
        each | {"text": each["text"].replace(": ", "<br>"), "y": tallest + 0.4, "yanchor": "bottom"} for each in titles
    ]
    margins = {"margin.t": 28, "margin.b": 48 + below_px}
    figure.update_layout(meta={"narrow": {"annotations": short, "height": height_px + below_px + 20, **margins}})
    return figure


def _trace(each: Placed, left: float, whole: float, *, is_named: bool) -> Any:
    import plotly.graph_objects as go

    xs, ys = each.place.outline
    words = COMPONENTS[each.part.name]
    marker = component_marker(each.part.name)
    text = f"{words}: {format_number(each.part.value)} mm2, {format_share(each.part.value / whole)}"
    return go.Scatter(
        x=[left + x for x in xs], y=ys, mode="lines", fill="toself", fillcolor=marker["color"], name=words,
        fillpattern={"shape": marker["pattern"]["shape"]}, line={"color": "white", "width": 1}, legendgroup=words,
        showlegend=is_named, text=text, hoverinfo="text", hoveron="fills",
    )  # fmt: skip


def _text_within(each: Placed, whole_mm: float) -> str:
    """Name and area as they fit into a component's place, in a drawing of so many mm; empty if they do not."""
    name, area = COMPONENTS[each.part.name], format_number(each.part.value)
    widest, tallest = each.place.width / whole_mm, each.place.height / whole_mm
    if tallest >= TWO_LINES_SHARE and len(name) * LETTER_SHARE < widest:
        return f"{name}<br>{area}"
    if tallest >= ONE_LINE_SHARE and (len(name) + 1 + len(area)) * LETTER_SHARE < widest:
        return f"{name} {area}"
    return ""


def _label(each: Placed, left: float, text: str) -> dict[str, Any]:
    place = each.place
    return {
        "x": left + place.x + place.width / 2,
        "y": place.y + place.height / 2,
        "text": text,
        "showarrow": False,
        "font": {"size": 11, "color": REFERENCE_COLOUR},
        "bgcolor": LABEL_GROUND,
    }
