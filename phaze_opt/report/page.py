"""Self-contained HTML: one page per search, and one per figure; nothing is fetched when they are opened.

The plotting library is embedded compressed (a third of its size); browsers of 2023 and later unpack it.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt import __version__
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.notes import Note
from phaze_opt.record.whole_file import replace_file
from phaze_opt.report.content import TableContent
from phaze_opt.report.design import limits_sentence
from phaze_opt.report.figures import search_figures
from phaze_opt.report.heterogeneous import heterogeneous_contents
from phaze_opt.report.tables import search_contents
from phaze_opt.search.result import SearchResult
from phaze_opt.study.result import Truth

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from phaze_opt.objective.heterogeneous import HeterogeneousEvaluation

TEMPLATE = "page.html.j2"
REPORT_NAME = "report.html"
FIGURES_FOLDER = "figures"
CONTENT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""What a page may load: nothing from anywhere. Its scripts stand inline, Plotly's parallel coordinates compile code of
their own (regl), and figures are saved as images."""


def render_page(
    title: str,
    *,
    figures: Mapping[str, Figure],
    tables: Sequence[TableContent] = (),
    lead: str = "",
    footer: str = "",
    has_heading: bool = True,
) -> str:
    """One page of tables and figures as HTML text; every line of ``lead`` is a paragraph above them."""
    return _render(
        title,
        figures=figures,
        library=packed_library(),
        tables=tables,
        lead=lead,
        footer=footer,
        has_heading=has_heading,
    )


def write_search_report(
    result: SearchResult,
    directory: Path,
    *,
    title: str,
    goal: str,
    references: Mapping[str, Evaluation],
    extra_figures: Mapping[str, Figure] | None = None,
    space_size: int | None = None,
    optimum: Truth | None = None,
    pipeline: HeterogeneousEvaluation | None = None,
    notes: Sequence[Note] = (),
) -> dict[str, Path]:
    """Write the page of a search and one page per figure.

    Args:
        result: the finished search.
        directory: where to write; made if need be.
        title: heading of the page.
        goal: of the search: throughput, throughput_per_tdp or pareto.
        references: evaluations of the reference machines by name.
        extra_figures: further figures by file name (schedule Gantt, pipeline timeline).
        space_size: points of the space, if known.
        optimum: the best value of the space, if a study or a certificate has it.
        pipeline: the best one of one design per stage, if asked for.
        notes: what the answer rests on.

    Returns:
        Paths by artifact name, for `TrackingSession.log_artifacts`.

    Raises:
        InputError: the directory cannot be written.
    """
    figures = search_figures(
        result.trials, goal=goal, references=references, front=result.pareto_front, best=result.best
    )
    figures |= extra_figures or {}
    library = packed_library()
    pages = {
        REPORT_NAME: _render(
            title,
            figures=figures,
            library=library,
            tables=[
                *search_contents(result, references=references, space_size=space_size, optimum=optimum),
                *([] if pipeline is None else heterogeneous_contents(pipeline)),
            ],
            lead="\n".join(
                [
                    "Nothing feasible was found." if result.best is None else limits_sentence(result.best),
                    *(note.sentence for note in notes),
                ]
            ),
            footer=f"phaze-opt {__version__}, search {result.search_id}",
        )
    }
    for name, figure in figures.items():
        pages[f"{FIGURES_FOLDER}/{name}.html"] = _render(
            f"{title}: {name.replace('_', ' ')}", figures={name: figure}, library=library, has_heading=False
        )
    return {name: write_text(directory / name, text) for name, text in pages.items()}


def write_text(path: Path, text: str) -> Path:
    """Write a file at once, and the directories above it: who reads finds the earlier one or the whole new one.

    Raises:
        InputError: it cannot be written.
    """
    replace_file(path, text)
    return path


def _render(
    title: str,
    *,
    figures: Mapping[str, Figure],
    library: str,
    tables: Sequence[TableContent] = (),
    lead: str = "",
    footer: str = "",
    has_heading: bool = True,
) -> str:
    from jinja2 import Environment

    template = files("phaze_opt.report").joinpath(TEMPLATE).read_text(encoding="utf-8")
    page = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
    # "</" would end the script element that carries the figure.
    data = [{"name": name, "data": figure.to_json().replace("</", "<\\/")} for name, figure in figures.items()]
    return page.render(
        policy=CONTENT_POLICY,
        title=title,
        heading=title if has_heading else "",
        lead=lead.splitlines(),
        tables=tables,
        figures=data,
        library=library if figures else "",
        footer=footer,
    )


@cache
def packed_library() -> str:
    """The plotting library as text that a page can carry: gzip in base64."""
    from plotly.offline import get_plotlyjs

    return pack_text(get_plotlyjs())


def pack_text(text: str) -> str:
    """Text compressed by gzip, in base64; equal texts give equal results."""
    packed = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return base64.b64encode(packed).decode("ascii")
