"""What ``phaze-opt validate`` prints for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze_opt.cli.output import out

if TYPE_CHECKING:
    from phaze_opt.validation.result import Validation


def print_validation(result: Validation) -> None:
    """The table of sets, why rows are unscored, and which goals are met."""
    from rich.table import Table

    from phaze_opt.report.validation_tables import goals_sentence, overview_table, unscored_sentences

    content = overview_table(result)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for column in content.columns:
        table.add_column(column.heading, justify="right" if column.is_number else "left", no_wrap=True)
    for index, row in enumerate(content.rows):
        table.add_row(*row, style="bold" if index in content.emphasised else None)
    screen = out()
    screen.print(table)
    screen.print(f"\n{content.note}", markup=False)
    for sentence in unscored_sentences(result):
        screen.print(sentence, markup=False)
    sentence = goals_sentence(result)
    if sentence:
        screen.print(sentence, markup=False)
