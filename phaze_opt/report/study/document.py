"""What a study leaves: its one line of JSON, and its report with the tracker."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from phaze_opt.jobs.watch import Watch
from phaze_opt.objective.evaluation import evaluation_to_json
from phaze_opt.report.study.findings import describe_findings
from phaze_opt.search.result import SEARCH_COUNTS
from phaze_opt.study.directory import StudyDirectory
from phaze_opt.study.events import StudyEvent
from phaze_opt.study.load import best_evaluation
from phaze_opt.study.result import FailedSearch, StudyResult
from phaze_opt.study.scores import StudySummary
from phaze_opt.study.summary import summarise
from phaze_opt.track.protocol import TrackingSession


def study_to_json(result: StudyResult, session: TrackingSession[StudyEvent], *, wall_s: float) -> dict[str, Any]:
    """The line that ``--json`` prints; ``best`` is that of the first condition, counts are of all searches together."""
    found = {condition.key: best_evaluation(result, condition) for condition in result.conditions}
    best = {key: None if value is None else evaluation_to_json(value) for key, value in found.items()}
    summary = summarise(result) if result.cells else None
    return {
        "study_id": result.study_id,
        "directory": str(result.directory),
        "is_complete": result.is_complete,
        "is_interrupted": result.is_interrupted,
        "finished_searches": len(result.cells),
        "planned_searches": result.num_cells,
        "failed_searches": [_failure_to_json(failure) for failure in result.failures],
        "best": next(iter(best.values())),
        "best_by_condition": best,
        **{name: sum(getattr(cell, name) for cell in result.cells) for name in SEARCH_COUNTS},
        "wall_s": wall_s,
        "charged_s": sum(cell.charged_s for cell in result.cells),
        "regret": _regret(summary),
        "regret_reference": {} if summary is None else {key: value.kind for key, value in summary.truths.items()},
        "contenders": [] if summary is None else [asdict(score) for score in summary.contenders],
        "findings": [] if summary is None else list(describe_findings(result, summary)),
        "claims": [] if summary is None else [asdict(found) for found in summary.claims],
        "tracking_uri": session.tracking_uri,
        "run_id": session.run_id,
    }


def _failure_to_json(failure: FailedSearch) -> dict[str, Any]:
    """A search that failed."""
    cell = failure.cell
    names = {"search": cell.key, "strategy": cell.contender.name, "seed": cell.seed}
    return {**names, "error": failure.error, "file": str(failure.file)}


def _regret(summary: StudySummary | None) -> dict[str, float] | None:
    """Mean regret of every contender; None where nothing was feasible to be judged against."""
    if summary is None or not summary.contenders:
        return None
    return {score.contender: score.mean_regret for score in summary.contenders}


def report_folder(result: StudyResult) -> Path:
    """Where the report of a study lies unless it is asked for elsewhere."""
    return StudyDirectory(result.directory).report


def write_report(result: StudyResult, session: TrackingSession[StudyEvent], watch: Watch) -> dict[str, Path]:
    """Write the report and hand it to the tracker; of a study that was interrupted there is none."""
    from phaze_opt.report.study.cards import draw_winners  # noqa: PLC0415 - pulls in the report
    from phaze_opt.report.study.inputs import read_inputs  # noqa: PLC0415 - likewise
    from phaze_opt.report.study.page import write_study_report  # noqa: PLC0415 - likewise

    if not result.cells or result.is_interrupted:
        return {}
    with watch.working("writing the report"):
        inputs = read_inputs(result)
        files = write_study_report(inputs, report_folder(result), drawings=draw_winners(inputs))
        session.log_artifacts(files)
        return files
