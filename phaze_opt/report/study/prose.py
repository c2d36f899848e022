"""Markdown of a study's author as HTML that can neither run nor fetch anything."""

from __future__ import annotations


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
