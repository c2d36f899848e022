"""Pages of designs: their pictures in the order in which they are asked for, and the page of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from phaze_opt import __version__
from phaze_opt.hardware.silicon.die_report import ComponentFigure, DieReport
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.report.answer import ShortAnswer
from phaze_opt.report.bill import bill_tables, dollars_picture
from phaze_opt.report.design import evaluation_contents
from phaze_opt.report.die import COMPONENTS, Dies, area_table, component_look, die_pictures, limits_table, power_table
from phaze_opt.report.document import Block, FigureBlock, Folded, Listing, ReportDocument, Section, TableBlock
from phaze_opt.report.figures import breakdown_picture
from phaze_opt.report.picture import Boxes, Layer, Picture, PlotAxis, Words
from phaze_opt.report.table import TableContent
from phaze_opt.report.text import format_number, format_share

READING_ORDER = ("pareto", "area_throughput", "front", "floor_plan", "breakdown", "die_powers", "dollars")
"""The trade-off, the chip, and where time, watts and dollars go; what else there is follows."""


def amount_pictures(dies: Mapping[str, DieReport], bills: Mapping[str, Bill]) -> dict[str, Picture]:
    """The die, its areas and watts, and its dollars, beside those of machines; empty where they are not known."""
    figures = {"floor_plan": floor_plan_picture(dies), **die_pictures(dies)} if dies else {}
    return {**figures, **({"dollars": dollars_picture(bills)} if bills else {})}


def in_reading_order(figures: Mapping[str, Picture]) -> dict[str, Picture]:
    """The same figures, those that are asked for first at the front."""
    names = [name for name in READING_ORDER if name in figures]
    return {name: figures[name] for name in (*names, *(name for name in figures if name not in names))}


def picture_sections(
    first: Iterable[TableContent],
    figures: Mapping[str, Picture],
    tables: Sequence[TableContent],
    details: Iterable[str] = (),
) -> tuple[Section, ...]:
    """The tables of the answer, the pictures, then all other tables, folded where an answer stands above them.

    Args:
        first: tables of the answer.
        figures: by name, in order.
        tables: all that the answer comes from.
        details: sentences that the answer rests on, folded.
    """
    answer = tuple(TableBlock(table) for table in first)
    pictures: tuple[Block, ...] = tuple(FigureBlock(name, picture) for name, picture in figures.items())
    rest = tuple(TableBlock(table) for table in tables)
    said = tuple(dict.fromkeys(filter(None, details)))
    resting = (Folded("What this rests on", (Listing(said),)),) if said else ()
    if answer and rest:
        return (
            Section("answer", "", (*answer, *resting)),
            Section("pictures", "", pictures),
            Section("tables", "", (Folded("All tables", rest),)),
        )
    pictures = (*resting, *pictures)
    return (Section("pictures", "", pictures), Section("tables", "", rest))


@dataclass(frozen=True, slots=True)
class Pictured:
    """A machine with the job on it; no die and no bill where they are not known."""

    name: str
    evaluation: Evaluation
    die: DieReport | None = None
    bill: Bill | None = None


def evaluation_document(
    title: str, first: ShortAnswer, pictured: Sequence[Pictured], references: Mapping[str, Evaluation]
) -> ReportDocument:
    """The page as values.

    Args:
        title: of the page.
        first: what is printed of the answer.
        pictured: the machine asked for, then those that it stands beside.
        references: for the tables of a placement.
    """
    evaluation = pictured[0].evaluation
    dies = {each.name: each.die for each in pictured if each.die is not None}
    bills = {each.name: each.bill for each in pictured if each.bill is not None}
    tables = list(evaluation_contents(evaluation, references=references))
    tables += [area_table(dies), power_table(dies), limits_table(dies)] if dies else []
    figures: dict[str, Picture] = amount_pictures(dies, bills)
    if not evaluation.members:
        shown = {each.name: each.evaluation for each in pictured}
        figures["breakdown"] = breakdown_picture(shown, needs_schedules=False)
    return ReportDocument(
        title,
        picture_sections(first.tables, in_reading_order(figures), [*tables, *bill_tables(bills)]),
        lead=tuple(filter(None, (*first.sentences, *first.notes))),
        footer=(("phaze-opt", __version__),),
    )


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
