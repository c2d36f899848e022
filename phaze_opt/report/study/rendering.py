"""A document as one self-contained page that fetches nothing, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.resources import files

from phaze_opt.report.content import TableContent
from phaze_opt.report.page import CONTENT_POLICY, pack_text, packed_library
from phaze_opt.report.study.document import (
    Block,
    Choice,
    FigureBlock,
    Folded,
    Listing,
    Paragraph,
    ReportDocument,
    TableBlock,
)

TEMPLATE = "study.html.j2"


def render_html(document: ReportDocument) -> str:
    """The page as text; the plotting library is in it only if there are figures."""
    from jinja2 import Environment

    template = files("phaze_opt.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(kind_of=lambda block: type(block).__name__, pack=pack_text)
    blocks = [block for section in document.sections for block in section.blocks]
    has_figures = any(True for _ in figures_of(blocks))
    page = environment.from_string(template).render(
        document=document,
        policy=CONTENT_POLICY,
        description=render_prose(document.description) if document.description.strip() else "",
        library=packed_library() if has_figures else "",
    )
    return page.lstrip()


def figures_of(blocks: Iterable[Block]) -> Iterator[FigureBlock]:
    """All figures, also those inside choices and folds."""
    for block in blocks:
        if isinstance(block, FigureBlock):
            yield block
        elif isinstance(block, Folded):
            yield from figures_of(block.blocks)
        elif isinstance(block, Choice):
            for option in block.options:
                yield from figures_of(option.blocks)


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
    lines = [f"# {escape(document.title)}", ""]
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
            return [f"*Figure: {escape(block.title)}.* {escape(block.alternative)}", ""]
        case Folded():
            return [f"{heading} {escape(block.summary)}", "", *_blocks(block.blocks, level + 1)]
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
