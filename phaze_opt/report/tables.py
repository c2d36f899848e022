"""Tables for a terminal; made to fit 80 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.references import is_expert
from phaze_opt.record.printable import printable
from phaze_opt.report.content import TableContent
from phaze_opt.report.design import (
    design_table,
    experts_table,
    limits_sentence,
    members_table,
    performance_table,
    placement_table,
    schedule_table,
    time_table,
)
from phaze_opt.report.search import effort_table, runners_up_table, standing_table
from phaze_opt.report.sensitivity import sensitivity_content
from phaze_opt.search.result import SearchResult
from phaze_opt.study.result import Truth

if TYPE_CHECKING:
    from phaze_opt.objective.sensitivity import SensitivityRow

__all__ = [
    "draw_table",
    "evaluation_contents",
    "evaluation_tables",
    "limits_sentence",
    "search_contents",
    "search_tables",
    "sensitivity_table",
]


TERMINAL_WIDTH = 80
_PADDINGS = ((1, 1), (1, 0), (0, 0))
"""Blanks right and left of a cell, widest first."""


def evaluation_contents(evaluation: Evaluation, *, references: Mapping[str, Evaluation]) -> list[TableContent]:
    """Design, performance against references and hand placements, placement, time and schedules of one evaluation."""
    contents = [design_table(evaluation)]
    if not evaluation.is_feasible:
        return contents
    contents.append(performance_table(evaluation, references=references))
    experts = {name: other for name, other in references.items() if is_expert(name)}
    if experts:
        contents.append(experts_table(evaluation, experts=experts))
    if evaluation.members:
        contents.append(members_table(evaluation))
    if evaluation.placement is not None:
        contents.append(placement_table(evaluation.placement))
    if evaluation.schedules:
        contents += [time_table(evaluation), schedule_table(evaluation)]
    return contents


def search_contents(
    result: SearchResult,
    *,
    references: Mapping[str, Evaluation],
    space_size: int | None = None,
    optimum: Truth | None = None,
) -> list[TableContent]:
    """The best design as `evaluation_contents` has it, then the field it was chosen from and what is proven."""
    contents = [] if result.best is None else evaluation_contents(result.best, references=references)
    contents = [content for content in contents if not content.title.startswith("Operator schedules")]
    if any(record.values for record in result.trials):
        contents.append(runners_up_table(result))
    return [*contents, effort_table(result), standing_table(result, space_size=space_size, optimum=optimum)]


def evaluation_tables(evaluation: Evaluation, *, references: Mapping[str, Evaluation]) -> list[Table]:
    """`evaluation_contents`, drawn; only the design table if it is infeasible."""
    return [draw_table(content) for content in evaluation_contents(evaluation, references=references)]


def search_tables(
    result: SearchResult,
    *,
    references: Mapping[str, Evaluation],
    space_size: int | None = None,
    optimum: Truth | None = None,
) -> list[Table]:
    """`search_contents`, drawn.

    Args:
        result: of `search.run.run_search`.
        references: evaluations of the reference machines by name.
        space_size: points of the space, if known, for the statement on what was not looked at.
        optimum: the best value of the space, if a study or a certificate has it.
    """
    contents = search_contents(result, references=references, space_size=space_size, optimum=optimum)
    return [draw_table(content) for content in contents]


def sensitivity_table(rows: Sequence[SensitivityRow]) -> Table:
    """What each assumption is worth, most consequential first."""
    return draw_table(sensitivity_content(rows))


def draw_table(content: TableContent) -> Table:
    """A table for a terminal."""
    table = Table(
        title=Text(printable(f"\n{content.title}"), style="bold"),
        title_justify="left",
        caption=Text(printable(content.note), style="dim") if content.note else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(column.heading for column in content.columns),
        show_edge=False,
        pad_edge=False,
        padding=_padding(content),
    )
    for index, column in enumerate(content.columns):
        table.add_column(
            Text(printable(column.heading)),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            overflow="ellipsis" if column.is_number else "fold",
            style="cyan" if index == 0 else "",
        )
    for index, row in enumerate(content.rows):
        table.add_row(*(Text(printable(cell)) for cell in row), style="bold" if index in content.emphasised else "")
    return table


def _padding(content: TableContent) -> tuple[int, int, int, int]:
    """Blanks around cells (above, right, below, left): two, or as many as leave room for figures and whole words."""
    texts = ((column.heading, *(row[index] for row in content.rows)) for index, column in enumerate(content.columns))
    least = sum(
        max(len(part) for text in cells for part in ([text] if column.is_number else text.split() or [""]))
        for column, cells in zip(content.columns, texts, strict=True)
    )
    # Rich draws one blank between columns beside these.
    gaps = len(content.columns) - 1
    right, left = next((each for each in _PADDINGS if least + gaps * (1 + sum(each)) <= TERMINAL_WIDTH), _PADDINGS[-1])
    return (0, right, 0, left)
