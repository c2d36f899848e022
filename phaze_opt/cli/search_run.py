"""Running a search, and recording it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.output import spared, working
from phaze_opt.cli.progress import progress

if TYPE_CHECKING:
    from phaze_opt.cli.search_answer import SearchAnswer
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.search.config import SearchConfig
    from phaze_opt.search.result import SearchProgress, SearchResult
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.track.protocol import Delivery, TrackingSession


def open_session(tracker: str, tracking_uri: str, *, experiment: str, work_dir: Path) -> TrackingSession:
    """A guarded session of the tracker."""
    from phaze_opt.track.guard import open_tracker
    from phaze_opt.track.protocol import TrackerConfig

    return open_tracker(tracker, TrackerConfig(tracking_uri=tracking_uri, experiment=experiment, work_dir=work_dir))


def run_with_progress(
    config: SearchConfig, scenario: Scenario, space: SearchSpace, session: TrackingSession, *, is_quiet: bool
) -> SearchResult:
    """Run the search, showing how far it is on standard error."""
    from phaze_opt.search.run import run_search

    with progress(f"search with {config.strategy}", is_transient=is_quiet) as show:

        def tell(moved: SearchProgress) -> None:
            best = moved.best.evaluation if moved.best is not None else None
            text = (
                f"best {best.throughput_samples_per_s:,.1f} samples/s" if best is not None else "nothing feasible yet"
            )
            show("trials", moved.num_finished, config.num_trials, text)

        return run_search(config, scenario=scenario, space=space, observers=(session,), on_progress=tell)


def page_of(answer: SearchAnswer, config: SearchConfig) -> Path:
    """Where the page of a search is, once it is written."""
    from phaze_opt.report.page import REPORT_NAME

    return config.work_dir / answer.result.search_id / "report" / REPORT_NAME


def record_and_deliver(session: TrackingSession, answer: SearchAnswer, config: SearchConfig) -> Delivery:
    """Write the page, hand it to the tracker and deliver what waits for its store; a missing page is a warning."""
    from phaze_opt.cli.artifacts import write_artifacts

    with working("recording"):
        if session.tracking_uri and answer.result.trials:
            with spared("the page of this search"):
                session.log_artifacts(write_artifacts(answer, config))
        return session.close()
