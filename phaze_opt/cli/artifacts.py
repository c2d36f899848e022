"""The page and the figures of a finished search, with the best design's schedule and pipeline drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.notes import Note
from phaze_opt.objective.scenario import Scenario
from phaze_opt.report.page import write_search_report
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.result import SearchResult
from phaze_opt.space.search_space import SearchSpace
from phaze_opt.study.result import Truth

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def write_artifacts(
    result: SearchResult,
    *,
    config: SearchConfig,
    scenario: Scenario,
    space: SearchSpace,
    references: Mapping[str, Evaluation],
    optimum: Truth | None = None,
    notes: Sequence[Note] = (),
) -> dict[str, Path]:
    """Write the artifacts of a search beside its journal.

    Returns:
        Paths by artifact name.

    Raises:
        InputError: the directory of the search cannot be written.
    """
    directory = config.work_dir / result.search_id / "report"
    return write_search_report(
        result,
        directory,
        title=f"{', '.join(model.name for model in scenario.models)} on {scenario.cluster.num_devices:,} accelerators",
        goal=config.goal.value,
        references=references,
        extra_figures=_best_figures(result, scenario),
        space_size=space.size,
        optimum=optimum,
        notes=notes,
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
