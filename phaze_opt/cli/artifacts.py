"""The page and the figures of a finished search, with the best design's schedule and pipeline drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.search_answer import SearchAnswer
from phaze_opt.cli.search_run import page_of
from phaze_opt.objective.scenario import Scenario
from phaze_opt.report.page import write_search_report
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import SearchResult

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def write_artifacts(answer: SearchAnswer, config: SearchConfig) -> dict[str, Path]:
    """Write the artifacts of a search beside its journal.

    Returns:
        Paths by artifact name.

    Raises:
        InputError: the directory of the search cannot be written.
    """
    result, scenario = answer.result, answer.scenario
    return write_search_report(
        result,
        page_of(answer, config).parent,
        title=f"{', '.join(model.name for model in scenario.models)} on {scenario.cluster.num_devices:,} accelerators",
        goal=config.goal.value,
        references=answer.references,
        extra_figures=_best_figures(result, scenario),
        space_size=answer.space.size,
        optimum=answer.optimum,
        pipeline=answer.pipeline,
        notes=answer.notes,
    )


def _best_figures(result: SearchResult, scenario: Scenario) -> dict[str, Figure]:
    """Gantt charts of the best design's layers and its pipeline over time; for one model only."""
    if result.best is None or len(scenario.models) != 1:
        return {}
    from phaze_opt.objective.design_detail import detail_design
    from phaze_opt.report.gantt import gantt_figure
    from phaze_opt.report.pipeline import pipeline_figure

    detail = detail_design(result.best, scenario=scenario)
    charts = {
        f"schedule_{phase.name}": gantt_figure(
            phase.problem, phase.result, labels=phase.labels, title=f"Schedule: {phase.name.replace('_', ' ')}"
        )
        for phase in detail.phases
        if phase.name.startswith("block_")
    }
    return {
        **charts,
        "pipeline": pipeline_figure(detail.placement, forward_s=detail.forward_s, backward_s=detail.backward_s),
    }
