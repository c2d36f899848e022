"""Pages of designs: their pictures in the order in which they are asked for, and the page of an evaluation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from phaze_opt import __version__
from phaze_opt.hardware.silicon.die_report import DieReport
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.report.answer import ShortAnswer
from phaze_opt.report.bill import bill_tables, dollars_picture
from phaze_opt.report.design import evaluation_contents
from phaze_opt.report.die import area_table, die_pictures, limits_table, power_table
from phaze_opt.report.document import Block, FigureBlock, Folded, Listing, ReportDocument, Section, TableBlock
from phaze_opt.report.figures import breakdown_picture
from phaze_opt.report.floor_plan import floor_plan_picture
from phaze_opt.report.picture import Picture
from phaze_opt.report.table import TableContent

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
