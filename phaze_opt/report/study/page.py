"""Write the report of a study: one page, Markdown and CSV beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from phaze_opt.report.page import write_text
from phaze_opt.report.study.build import build_document
from phaze_opt.report.study.drawings import Drawings
from phaze_opt.report.study.exports import render_exports
from phaze_opt.report.study.html import render_html
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.markdown import render_markdown

PAGE_NAME = "report.html"
MARKDOWN_NAME = "report.md"


def write_study_report(
    inputs: ReportInputs, directory: Path, *, drawings: Mapping[str, Drawings] | None = None
) -> dict[str, Path]:
    """Write all files of the report, over those of an earlier one.

    Args:
        inputs: the judged study.
        directory: where to write; made if need be.
        drawings: of `draw_winners`; without it the page has no schedules and pipelines.

    Returns:
        Paths by file name, the page first.

    Raises:
        InputError: the directory cannot be written.
    """
    document = build_document(inputs, drawings)
    files = {
        PAGE_NAME: render_html(document),
        MARKDOWN_NAME: render_markdown(document),
        **render_exports(inputs),
    }
    return {name: write_text(directory / name, text) for name, text in files.items()}
