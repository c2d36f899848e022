"""A table as plain text cells, and its drawing on a terminal; `page` and `study.markdown` draw the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from phaze_opt.record.printable import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")
TERMINAL_WIDTH = 80
_PADDINGS = ((1, 1), (1, 0), (0, 0))
"""Blanks right and left of a cell, widest first."""
MOST_UNBROKEN = 12
"""Letters of a word that are not parted."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, whether it holds figures (right-aligned), and whether lines of its cells stay whole."""

    heading: str
    is_number: bool = False
    has_lines: bool = False


@dataclass(frozen=True, slots=True)
class TableContent:
    """A table.

    Attributes:
        title: what it shows.
        columns: from the left; without any heading the table is a list of names and values.
        rows: as many cells each as there are columns.
        note: one sentence below it; may be empty.
        emphasised: indices of the rows that matter most.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    emphasised: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Field(Generic[T]):
    """A column, and what stands in it for an item."""

    column: Column
    cell: Callable[[T], str]


Fields = tuple[Field[T], ...]
"""A table stated once: its columns from the left with their cells."""


def words(heading: str, cell: Callable[[T], str]) -> Field[T]:
    """A column of words."""
    return Field(Column(heading), cell)


def lines(heading: str, cell: Callable[[T], Sequence[str]]) -> Field[T]:
    """A column of words, several lines a cell."""
    return Field(Column(heading, has_lines=True), lambda item: "\n".join(cell(item)))


def number(heading: str, cell: Callable[[T], str]) -> Field[T]:
    """A column of figures."""
    return Field(Column(heading, is_number=True), cell)


def numbers(*headings: str) -> tuple[Column, ...]:
    """Columns of figures whose cells are given row by row."""
    return tuple(Column(heading, is_number=True) for heading in headings)


def table_of(
    title: str,
    fields: Sequence[Field[T]],
    items: Iterable[T],
    note: str = "",
    *,
    emphasis: Callable[[T], bool] = lambda _: False,
) -> TableContent:
    """A row for every item; those of ``emphasis`` matter most."""
    shown = tuple(items)
    rows = tuple(tuple(field.cell(item) for field in fields) for item in shown)
    emphasised = frozenset(row for row, item in enumerate(shown) if emphasis(item))
    return TableContent(title, tuple(field.column for field in fields), rows, note, emphasised)


def pairs_table(title: str, rows: tuple[tuple[str, str], ...], *, note: str = "") -> TableContent:
    """A list of names and values."""
    return TableContent(title, (Column(""), Column("")), rows, note)


@dataclass(frozen=True, slots=True)
class DrawnTable:
    """A table for a terminal, made to fit 80 columns; where figures would be cut a paragraph a row."""

    content: TableContent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """The table or its paragraphs."""
        content, padding = self.content, _padding(self.content)
        gaps = (len(content.columns) - 1) * (1 + sum(padding))
        if _least_width(content, MOST_UNBROKEN) + gaps <= options.max_width:
            yield _drawn(content, padding)
            return
        headings = [column.heading for column in content.columns]
        yield _cell_text(f"\n{content.title}" if content.title else "")
        for row in content.rows:
            named = (f"{name} {cell}".strip() for name, cell in zip(headings, row, strict=True) if cell.strip())
            yield _cell_text("; ".join(named))
        if content.note:
            yield _cell_text(content.note)


def _drawn(content: TableContent, padding: tuple[int, int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(f"\n{content.title}"), style="bold") if content.title else None,
        title_justify="left",
        caption=Text(printable(content.note), style="dim") if content.note else None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_header=any(column.heading for column in content.columns),
        show_edge=False,
        pad_edge=False,
        padding=(0, padding[0], 0, padding[1]),
    )
    for index, column in enumerate(content.columns):
        table.add_column(
            Text(printable(column.heading)),
            justify="right" if column.is_number else "left",
            no_wrap=column.is_number or column.has_lines,
            overflow="fold",
            style="cyan" if index == 0 else "",
        )
    for index, row in enumerate(content.rows):
        table.add_row(*map(_cell_text, row), style="bold" if index in content.emphasised else "")
    return table


def _cell_text(cell: str) -> Text:
    """A cell; of its control characters line feeds alone have a meaning."""
    from rich.text import Text

    return Text("\n".join(printable(line) for line in cell.split("\n")))


def _least_width(content: TableContent, longest_word: int) -> int:
    """Letters of a row that stand side by side whatever the room: figures, lines, and words up to some length."""
    widths = []
    for index, column in enumerate(content.columns):
        cells = (column.heading, *(row[index] for row in content.rows))
        if column.has_lines or column.is_number:
            widths.append(max(len(line) for text in cells for line in text.split("\n")))
        else:
            widths.append(max(min(len(word), longest_word) for text in cells for word in text.split() or [""]))
    return sum(widths)


def _padding(content: TableContent) -> tuple[int, int]:
    """Blanks right and left of a cell: two, or as many as leave room for figures and whole words."""
    # Rich draws one blank between columns beside these.
    least, gaps = _least_width(content, TERMINAL_WIDTH), len(content.columns) - 1
    return next((each for each in _PADDINGS if least + gaps * (1 + sum(each)) <= TERMINAL_WIDTH), _PADDINGS[-1])
