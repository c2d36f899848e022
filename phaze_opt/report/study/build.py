"""From a judged study to its document: sections in the order in which a reader asks."""

from __future__ import annotations

from collections.abc import Mapping

from phaze_opt import __version__
from phaze_opt.report.study.cards import cards_section
from phaze_opt.report.study.contenders import contenders_section
from phaze_opt.report.study.critical_difference import ranks_section
from phaze_opt.report.study.document import Document
from phaze_opt.report.study.drawings import Drawings
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.report.study.pareto import pareto_section
from phaze_opt.report.study.plan_section import describe_budget, notices, plan_section
from phaze_opt.report.study.price_matrix import price_section
from phaze_opt.report.study.regret_curves import curves_section


def build_document(inputs: ReportInputs, drawings: Mapping[str, Drawings] | None = None) -> Document:
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
    return Document(
        title=f"Study {config.name}",
        description=config.description,
        findings=inputs.findings,
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
