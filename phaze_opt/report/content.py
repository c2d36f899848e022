"""A table as plain text cells, before it is drawn on a terminal or a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """A column's heading, and whether it holds figures (right-aligned)."""

    heading: str
    is_number: bool = False


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


def pairs_table(title: str, rows: tuple[tuple[str, str], ...], *, note: str = "") -> TableContent:
    """A list of names and values."""
    return TableContent(title, (Column(""), Column("")), rows, note)
