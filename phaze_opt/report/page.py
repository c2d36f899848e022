"""A document as a self-contained page, as Markdown, and its pictures as files.

Nothing is fetched when a page is opened, and its own policy forbids it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from phaze_opt.record.printable import printable
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.document import (
    Beside,
    Block,
    Choice,
    FigureBlock,
    Folded,
    Listing,
    Paragraph,
    ReportDocument,
    TableBlock,
    all_blocks,
    shown_figures,
)
from phaze_opt.report.drawing import image_files, svg_element
from phaze_opt.report.picture import DARK_INKS
from phaze_opt.report.table import TableContent

TEMPLATE = "page.html.j2"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""What a page may load: nothing from anywhere. Its script stands inline, and crowds of marks are images within."""


def render_html(document: ReportDocument) -> str:
    """The page as text."""
    from jinja2 import Environment

    template = files("phaze_opt.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(kind_of=lambda block: type(block).__name__, drawing=svg_element)
    page = environment.from_string(template).render(
        document=document,
        policy=CONTENT_POLICY,
        inks=dict(DARK_INKS),
        description=render_prose(document.description) if document.description.strip() else "",
    )
    return page.lstrip()


def write_text(path: Path, text: str) -> Path:
    """Write a file for people at once: who reads finds the earlier one or the whole new one; nothing in it steers.

    Raises:
        InputError: it cannot be written.
    """
    replace_file(path, printable(text))
    return path


def write_page(path: Path, document: ReportDocument) -> Path:
    """Write a document as a page.

    Raises:
        InputError: the file cannot be written.
    """
    return write_text(path, render_html(document))


def write_report(path: Path, document: ReportDocument) -> dict[str, Path]:
    """Write a document as a page, and its figures as SVG and PNG files in the folder ``STEM-figures`` beside it.

    Returns:
        Paths by their names from the page's directory on, the page first.

    Raises:
        InputError: a file cannot be written.
    """
    written = {path.name: write_page(path, document)}
    for name, content in render_figures(document).items():
        place = f"{path.stem}-figures/{name}"
        replace_file(path.parent / place, content)
        written[place] = path.parent / place
    return written


def render_figures(document: ReportDocument) -> dict[str, bytes]:
    """Files of the figures that a page shows at first, by name; those behind a choice or a fold have none."""
    files: dict[str, bytes] = {}
    for block in shown_figures(all_blocks(document)):
        files |= image_files(block.name, block.picture)
    return files


def render_prose(markdown: str) -> str:
    """HTML of a description: paragraphs, lists, emphasis, code, tables and links.

    HTML in it is shown as text, pictures are left as they are written, links to anything but pages and mail are not
    made, and headings become bold paragraphs so that the page's own outline stays whole.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
    tokens = parser.parse(markdown)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = "p"
        if token.type == "heading_open":
            token.attrSet("class", "subheading")
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noopener noreferrer")
    return str(parser.renderer.render(tokens, parser.options, {}))


SPECIAL = "\\`*_{}[]<>#|&~"


def render_markdown(document: ReportDocument) -> str:
    """The document as text."""
    lines = [f"# {escape(document.title)}", "", *_blocks(document.opening, 2)]
    lines += [f"- {escape(finding)}" for finding in document.findings] or ["Nothing can be said yet."]
    lines.append("")
    for notice in document.notices:
        lines += [f"> {escape(notice)}", ""]
    if document.description.strip():
        # Quoted code keeps the author's text apart from the report's own and inert.
        lines += ["Description:", "", *(f"    {line}" for line in document.description.strip().splitlines()), ""]
    for section in document.sections:
        lines += [f"## {escape(section.title)}", "", *_blocks(section.blocks, 3)]
    lines += ["## Provenance", "", *(f"- {escape(name)}: {escape(value)}" for name, value in document.footer), ""]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    flat = re.sub(r"[\r\n\t ]+", " ", text)
    return "".join(f"\\{character}" if character in SPECIAL else character for character in flat)


def _blocks(blocks: Iterable[Block], level: int) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        lines += _block(block, level)
    return lines


def _block(block: Block, level: int) -> list[str]:
    heading = "#" * min(level, 6)
    match block:
        case Paragraph():
            return [f"{'> ' if block.is_warning else ''}{escape(block.text)}", ""]
        case Listing():
            return [*(f"- {escape(item)}" for item in block.items), ""]
        case TableBlock():
            return _table(block.content, heading)
        case FigureBlock():
            return [f"*Figure: {escape(block.picture.title)}.* {escape(block.alternative)}", ""]
        case Folded() | Beside():
            head = [f"{heading} {escape(block.summary)}", ""] if isinstance(block, Folded) else []
            return [*head, *_blocks(block.blocks, level + 1)]
        case Choice():
            lines = []
            for option in block.options:
                if len(block.options) > 1:
                    lines += [f"{heading} {escape(block.label)}: {escape(option.label)}", ""]
                lines += _blocks(option.blocks, level + 1)
            return lines


def _table(table: TableContent, heading: str) -> list[str]:
    headings = [escape(column.heading) or " " for column in table.columns]
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [f"{heading} {escape(table.title)}", "", _row(headings), _row(rule)]
    for index, row in enumerate(table.rows):
        cells = [escape(cell) for cell in row]
        if index in table.emphasised:
            cells = [f"**{cell}**" if cell else cell for cell in cells]
        lines.append(_row(cells))
    return [*lines, "", *([escape(table.note), ""] if table.note else [])]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
