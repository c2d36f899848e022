"""What ``phaze-opt validate`` prints for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze_opt.cli.output import out

if TYPE_CHECKING:
    from phaze_opt.report.content import TableContent
    from phaze_opt.validation.result import Validation

NUM_WORST = 5
"""Rows of largest error on a terminal; the page has more."""


def print_validation(result: Validation) -> None:
    """The table of sets, why rows are unscored, and which goals are met; of a single set its regimes and worst rows."""
    from phaze_opt.report.validation_tables import (
        goals_sentence,
        group_table,
        overview_table,
        unscored_sentences,
        worst_table,
    )

    screen = out()
    _print_table(overview_table(result), has_title=False)
    for sentence in unscored_sentences(result):
        screen.print(sentence, markup=False)
    if len(result.sets) == 1 and result.sets[0].scores.num_rows:
        screen.print()
        _print_table(group_table("Error by regime", result.sets[0].regimes), has_title=True)
        screen.print()
        _print_table(worst_table(result.sets[0], limit=NUM_WORST), has_title=True)
    sentence = goals_sentence(result)
    if sentence:
        screen.print(sentence, markup=False)


def _print_table(content: TableContent, *, has_title: bool) -> None:
    from rich.table import Table

    table = Table(
        title=content.title if has_title else None,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for column in content.columns:
        table.add_column(column.heading, justify="right" if column.is_number else "left", no_wrap=column.is_number)
    for index, row in enumerate(content.rows):
        table.add_row(*row, style="bold" if index in content.emphasised else None)
    out().print(table)
    if content.note:
        out().print(f"\n{content.note}", markup=False)
