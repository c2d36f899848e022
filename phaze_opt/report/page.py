"""Self-contained HTML: a document as one page; nothing is fetched when it is opened, and its own policy forbids it.

The plotting library is embedded compressed (a third of its size); browsers of 2023 and later unpack it.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.record.printable import printable, printable_values
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.document import Block, ReportDocument, Section, TableBlock, all_blocks, figures_of, shown_figures
from phaze_opt.report.image_files import render_drawing, render_images
from phaze_opt.report.style import DARK_INKS, figure_block
from phaze_opt.report.table import TableContent

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TEMPLATE = "page.html.j2"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""What a page may load: nothing from anywhere. Its scripts stand inline, Plotly's parallel coordinates compile code of
their own (regl), and figures are saved as images."""


def render_html(document: ReportDocument) -> str:
    """The page as text; the plotting library is in it only if there are figures."""
    from jinja2 import Environment

    template = files("phaze_opt.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals.update(kind_of=lambda block: type(block).__name__, pack=pack_text, drawing=render_drawing)
    environment.globals.update(figure_json=figure_json)
    has_figures = any(True for _ in figures_of(all_blocks(document)))
    page = environment.from_string(template).render(
        document=document,
        policy=CONTENT_POLICY,
        inks=dict(DARK_INKS),
        has_figures=has_figures,
        description=render_prose(document.description) if document.description.strip() else "",
        library=packed_library() if has_figures and not document.is_drawn else "",
    )
    return page.lstrip()


def figure_json(figure: Figure) -> str:
    """A figure as plotly's script reads it, with nothing in its texts that steers."""
    text = str(figure.to_json())
    values = json.loads(text)
    plain = printable_values(values)
    return text if plain == values else json.dumps(plain)


def results_section(tables: Iterable[TableContent], figures: Mapping[str, Figure]) -> Section:
    """Figures by name, then tables beside each other."""
    blocks: list[Block] = [figure_block(name, figure) for name, figure in figures.items()]
    blocks += [TableBlock(table) for table in tables]
    return Section("results", "", tuple(blocks))


def render_figure(title: str, name: str, figure: Figure) -> str:
    """A page of one figure, whose own title is the only heading."""
    return render_html(ReportDocument(title, (results_section((), {name: figure}),), has_header=False))


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
        files |= render_images(block.name, block.figure, block.title)
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


@cache
def packed_library() -> str:
    """The plotting library as text that a page can carry: gzip in base64."""
    from plotly.offline import get_plotlyjs

    return pack_text(get_plotlyjs())


def pack_text(text: str) -> str:
    """Text compressed by gzip, in base64; equal texts give equal results."""
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")
