"""A document as one self-contained page: nothing is fetched when it is opened, and its own policy forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files

from phaze_opt.report.page import CONTENT_POLICY, pack_text, packed_library
from phaze_opt.report.study.document import Block, Choice, Document, FigureBlock, Folded
from phaze_opt.report.study.prose import render_prose

TEMPLATE = "study.html.j2"


def render_html(document: Document) -> str:
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
