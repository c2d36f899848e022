"""A report as values, before it is written as a page or as Markdown: all pages are drawn from the same blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from phaze_opt.report.picture import Picture
from phaze_opt.report.table import TableContent


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of plain text; a warning is set apart."""

    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences or items in order."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table; the first column of a headed table names its rows.

    Attributes:
        content: what is in it.
        export: name of the CSV file that holds its figures in full; may be empty.
    """

    content: TableContent
    export: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a picture: which of its layers are shown."""

    label: str
    shown: tuple[bool, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FigureBlock:
    """A picture with what it says in words, for those who cannot see it.

    Attributes:
        name: unique in the document: letters, digits and dashes.
        picture: its title is a heading of the page.
        alternative: what it shows, in a sentence or two; may be empty where tables beside it say the same.
        export: name of the CSV file that holds its figures; may be empty.
        views: to choose from; the picture itself is in the state of the first.
    """

    name: str
    picture: Picture
    alternative: str = ""
    export: str = ""
    views: tuple[View, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Alternative:
    """One of the alternatives of a `Choice`."""

    label: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Alternatives of which a page shows one at a time, by a list to choose from; the first is shown first.

    Attributes:
        name: unique in the document.
        label: what is chosen.
        options: at least one.
    """

    name: str
    label: str
    options: tuple[Alternative, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Folded:
    """Blocks that a page shows when asked to."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """Figures that a page shows side by side where it is wide enough, and below each other where it is not."""

    blocks: tuple[FigureBlock, ...]


Block = Paragraph | Listing | TableBlock | FigureBlock | Choice | Folded | Beside


@dataclass(frozen=True, slots=True, eq=False)
class Section:
    """A part of the document.

    Attributes:
        anchor: name of its place in the page.
        title: heading; without one, tables stand beside each other.
        blocks: in order.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReportDocument:
    """A report.

    Attributes:
        title: of the page.
        sections: in order.
        opening: what stands below the title, before any sentence.
        findings: sentences, the most important first.
        lead: paragraphs, in place of findings.
        notices: what a reader must know before believing anything: what is missing, what is not for claims.
        description: Markdown of the study's author, not to be trusted.
        footer: provenance as names and values.
    """

    title: str
    sections: tuple[Section, ...]
    opening: tuple[Block, ...] = ()
    findings: tuple[str, ...] = ()
    lead: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    description: str = ""
    footer: tuple[tuple[str, str], ...] = ()


def all_blocks(document: ReportDocument) -> tuple[Block, ...]:
    """Blocks of a document in order, the opening first."""
    return (*document.opening, *(block for section in document.sections for block in section.blocks))


def figures_of(blocks: Iterable[Block]) -> Iterator[FigureBlock]:
    """All figures, also those inside choices and folds."""
    for block in blocks:
        if isinstance(block, FigureBlock):
            yield block
        elif isinstance(block, Folded | Beside):
            yield from figures_of(block.blocks)
        elif isinstance(block, Choice):
            for option in block.options:
                yield from figures_of(option.blocks)


def shown_figures(blocks: Iterable[Block]) -> Iterator[FigureBlock]:
    """Figures that a page shows before anything is chosen or unfolded."""
    for block in blocks:
        if isinstance(block, FigureBlock):
            yield block
        elif isinstance(block, Beside):
            yield from block.blocks
        elif isinstance(block, Choice):
            yield from shown_figures(block.options[0].blocks)
