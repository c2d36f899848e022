"""A die drawn by component: every area to scale, HBM along the long sides, links at the short ones.

The cost model knows areas and edges, no places; what lies between the edges is cut in halves of like area.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from phaze_opt.hardware.silicon.die_report import ComponentFigure, DieReport
from phaze_opt.report.die import COMPONENTS, Dies, component_look
from phaze_opt.report.picture import Boxes, Layer, Picture, PlotAxis, Words
from phaze_opt.report.text import format_number, format_share

GAP_MM = 3.0
"""Between two dies."""
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


def floor_plan_picture(dies: Dies) -> Picture:
    """The first die beside the next, to one scale."""
    left, layers = 0.0, list[Layer]()
    shown = list(dies.items())[:MOST_DIES]
    tallest = max(max(each.place.y + each.place.height for each in floor_plan(die)) for _, die in shown)
    for name, die in shown:
        placed = floor_plan(die)
        whole = sum(each.place.width * each.place.height for each in placed)
        for component in dict.fromkeys(each.part.name for each in placed):
            layers.append(_component([each for each in placed if each.part.name == component], left, whole))
        length = max(die.length_mm, die.width_mm)
        each_of = f", one of {die.num_chiplets} chiplets" if die.num_chiplets > 1 else ""
        title = f"{name}{each_of}:\n{format_number(whole)} mm\N{SUPERSCRIPT TWO}"
        layers.append(Words(left + length / 2, tallest, title, lift_px=16))
        left += length + GAP_MM
    return Picture(
        "The die by component, areas to scale",
        tuple(layers),
        PlotAxis("mm", span=(-0.5, left - GAP_MM + 0.5)),
        PlotAxis("mm", span=(-0.5, tallest * 1.25 + 0.5)),
        height_px=420,
        is_to_scale=True,
    )


def _component(halves: Sequence[Placed], left: float, whole: float) -> Boxes:
    """A component, whole or in halves, which share one label: it has the area of both."""
    words = COMPONENTS[halves[0].part.name]
    places = [each.place for each in halves]
    area = format_number(halves[0].part.value)
    hover = f"{words}: {area} mm2, {format_share(halves[0].part.value / whole)}"
    colour, is_hatched = component_look(halves[0].part.name)
    is_flat = places[-1].width > 4 * places[-1].height
    return Boxes(
        [left + place.x for place in places], [place.y for place in places], [place.width for place in places],
        [place.height for place in places], words, colour, is_hatched, [hover] * len(places),
        [*[""] * (len(places) - 1), f"{words} {area}" if is_flat else f"{words}\n{area}"],
    )  # fmt: skip
