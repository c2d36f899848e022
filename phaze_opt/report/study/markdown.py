"""A document as Markdown: the same tables, and figures in words."""

import re
from collections.abc import Iterable

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
)
from phaze_opt.report.table import TableContent

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
            return [f"*Figure: {escape(block.title)}.* {escape(block.alternative)}", ""]
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
