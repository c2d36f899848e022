"""Tables of fits and measurements on a terminal: no lines, so that many columns fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from phaze_opt.cli.output import out

if TYPE_CHECKING:
    from phaze_opt.report.content import TableContent


def print_plain_table(content: TableContent, *, has_title: bool = True) -> None:
    """Print a table and its note on standard output; names too long for their column go on beneath, whole."""
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
        table.add_column(
            column.heading,
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number,
            overflow="fold",
        )
    for index, row in enumerate(content.rows):
        table.add_row(*row, style="bold" if index in content.emphasised else None)
    out().print(table)
    if content.note:
        out().print(f"\n{content.note}")
