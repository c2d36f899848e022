"""The page of an evaluation: the answer, where time, watts and dollars go beside other machines, and all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phaze_opt import __version__
from phaze_opt.hardware.silicon.die_report import DieReport
from phaze_opt.objective.bill import Bill
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.report.answer import ShortAnswer
from phaze_opt.report.bill import bill_tables
from phaze_opt.report.design import evaluation_contents
from phaze_opt.report.die import area_table, limits_table, power_table
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.figures import breakdown_figure
from phaze_opt.report.pictures import amount_figures, in_reading_order, picture_sections

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
    figures: dict[str, Figure] = amount_figures(dies, bills)
    if not evaluation.members:
        shown = {each.name: each.evaluation for each in pictured}
        figures["breakdown"] = breakdown_figure(shown, needs_schedules=False)
    return ReportDocument(
        title,
        picture_sections(first.tables, in_reading_order(figures), [*tables, *bill_tables(bills)]),
        lead=tuple(filter(None, (*first.sentences, *first.notes))),
        footer=(("phaze-opt", __version__),),
    )
