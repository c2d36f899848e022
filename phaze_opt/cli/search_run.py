"""Running a search, and recording it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.cli.output import spared, working
from phaze_opt.cli.progress import progress

if TYPE_CHECKING:
    from phaze_opt.hardware.constants import Constants
    from phaze_opt.objective.evaluation import Evaluation
    from phaze_opt.objective.notes import Note
    from phaze_opt.objective.scenario import Scenario
    from phaze_opt.search.config import SearchConfig
    from phaze_opt.search.result import SearchProgress, SearchResult
    from phaze_opt.space.search_space import SearchSpace
    from phaze_opt.study.result import Truth
    from phaze_opt.track.protocol import Delivery, TrackingSession


def evaluate_space_references(scenario: Scenario, space: SearchSpace, constants: Constants) -> Mapping[str, Evaluation]:
    """The reference machines on the same scenario, at the space's micro-batches."""
    from phaze_opt.objective.references import evaluate_references

    return evaluate_references(scenario, space.axes.micro_batch, constants=constants)


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


def record_and_deliver(
    session: TrackingSession,
    result: SearchResult,
    *,
    config: SearchConfig,
    scenario: Scenario,
    space: SearchSpace,
    references: Mapping[str, Evaluation],
    optimum: Truth | None,
    notes: Sequence[Note],
) -> Delivery:
    """Write the page, hand it to the tracker and deliver what waits for its store; a missing page is a warning."""
    from phaze_opt.cli.artifacts import write_artifacts

    with working("recording"):
        if session.tracking_uri and result.trials:
            with spared("the page of this search"):
                artifacts = write_artifacts(
                    result,
                    config=config,
                    scenario=scenario,
                    space=space,
                    references=references,
                    optimum=optimum,
                    notes=notes,
                )
                session.log_artifacts(artifacts)
        return session.close()
