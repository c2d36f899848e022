"""The report of a study: its document, sections in the order in which a reader asks, and all files made of it."""

from collections.abc import Mapping
from pathlib import Path

from phaze_opt import __version__
from phaze_opt.report.document import ReportDocument
from phaze_opt.report.page import render_markdown, write_report, write_text
from phaze_opt.report.study.cards import Drawings, cards_section
from phaze_opt.report.study.contenders import contenders_section
from phaze_opt.report.study.critical_difference import ranks_section
from phaze_opt.report.study.exports import render_exports, render_latex
from phaze_opt.report.study.findings import describe_findings
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.pareto import pareto_section
from phaze_opt.report.study.plan_section import describe_budget, notices, plan_section
from phaze_opt.report.study.prices import price_section
from phaze_opt.report.study.regret_curves import curves_section, opening_panels


def build_document(inputs: ReportInputs, drawings: Mapping[str, Drawings] | None = None) -> ReportDocument:
    """The report of a study; what the study does not ask or cannot answer yet has no section, or says so.

    Args:
        inputs: the judged study.
        drawings: of `draw_winners`; none are shown without it.
    """
    config = inputs.result.config
    sections = (
        contenders_section(inputs),
        curves_section(inputs),
        ranks_section(inputs),
        price_section(inputs),
        pareto_section(inputs),
        cards_section(inputs, drawings or {}),
        plan_section(inputs),
    )
    opening = opening_panels(inputs)
    return ReportDocument(
        title=f"Study {config.name}",
        description=config.description,
        opening=() if opening is None else (opening,),
        findings=describe_findings(inputs.result, inputs.summary),
        notices=notices(inputs),
        sections=tuple(section for section in sections if section is not None),
        footer=provenance_rows(inputs),
    )


def provenance_rows(inputs: ReportInputs) -> tuple[tuple[str, str], ...]:
    """Where the figures come from, and the commands that make them again."""
    result = inputs.result
    config = result.config
    source = config.source or "FILE"
    return (
        ("study", result.study_id),
        ("made by", f"phaze-opt study run {source}"),
        ("reported by", f"phaze-opt report {config.name}, version {__version__}"),
        ("seeds", ", ".join(map(str, config.seeds))),
        ("budget of a search", describe_budget(config.budget)),
        *((name.replace("_", " "), value) for name, value in result.provenance.items()),
    )


PAGE_NAME = "report.html"
MARKDOWN_NAME = "report.md"
LATEX_NAME = "contenders.tex"


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
    files = {MARKDOWN_NAME: render_markdown(document), **render_exports(inputs), LATEX_NAME: render_latex(inputs)}
    return {
        **write_report(directory / PAGE_NAME, document),
        **{name: write_text(directory / name, text) for name, text in files.items()},
    }
