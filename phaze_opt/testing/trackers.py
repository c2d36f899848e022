"""Conformance suites of trackers: what any `track.protocol.Tracker`, and any `StudyTracker`, must satisfy.

Apply them by subclassing `TrackerConformance` (`StudyTrackerConformance`) in a test module, overriding the ``tracker``
fixture, and ``recorded`` if the tracker keeps what it gets. Events are told of searches and studies that are on disk
too, as real ones are: a tracker may read their journals (`SearchStarted.directory`), take the events, or both::

    class TestMyTracker(TrackerConformance):
        @pytest.fixture
        def tracker(self):
            return MyTracker()

        def recorded(self, config):
            return {...}
"""

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.config import SearchConfig
from phaze_opt.search.events import SearchEvent, SearchFinished, TrialFinished
from phaze_opt.search.result import SearchResult, Trial
from phaze_opt.search.run import run_search
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished
from phaze_opt.testing.events import example_search, example_study, record_search, record_study
from phaze_opt.testing.problems import ToyObjective, ToyScenario, tiny_space
from phaze_opt.track.guard import GuardedSession
from phaze_opt.track.protocol import StudyTracker, Tracker, TrackerConfig, TrackingSession

NUM_TRIALS = 7
NUM_BEFORE_INTERRUPTION = 4
NUM_CELLS_BEFORE_INTERRUPTION = 2
Recorded = Mapping[int, float]
"""Throughput in samples/s by trial number, 0 if infeasible."""
RecordedStudy = Mapping[tuple[str, int], float]
"""The same by key of the search and trial number."""


class BrokenSession:
    """Fails whatever it is asked, be it told of a search or of a study."""

    def __getattr__(self, name: str) -> Any:
        """Fail."""
        raise OSError


def resumed(events: Sequence[SearchEvent], *, num_known: int) -> tuple[SearchEvent, ...]:
    """The events of a search resumed after ``num_known`` trials."""
    return tuple(
        replace(event, trial=replace(event.trial, is_resumed=event.trial.number < num_known))
        if isinstance(event, TrialFinished)
        else event
        for event in events
    )


def expected(events: Sequence[SearchEvent]) -> Recorded:
    """What a tracker should have of a search."""
    trials = [event.trial for event in events if isinstance(event, TrialFinished)]
    return {trial.number: trial.evaluation.throughput_samples_per_s for trial in trials}


class _Recording:
    """What both suites ask of their author."""

    @pytest.fixture
    def tracker(self) -> Any:
        """The tracker under test."""
        raise NotImplementedError

    @pytest.fixture
    def config(self, tmp_path: Path) -> TrackerConfig:
        """A fresh working directory."""
        return TrackerConfig(work_dir=tmp_path)

    def recorded(self, config: TrackerConfig) -> Mapping[Any, float] | None:
        """What the store has of every trial; None if the tracker keeps nothing. A trial there twice must raise."""
        return None


class TrackerConformance(_Recording):
    """Subclass, override ``tracker``; pytest collects the rest."""

    def test_plugin_is_a_tracker_that_pickles(self, tracker: Tracker) -> None:
        """A tracker travels to other processes."""
        assert isinstance(tracker, Tracker)
        assert pickle.loads(pickle.dumps(tracker)).name == tracker.name  # noqa: S301 - our own bytes

    def test_constructing_and_opening_write_nothing(
        self, tracker: Tracker, config: TrackerConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Files appear with the first event, not before."""
        monkeypatch.chdir(config.work_dir)
        type(tracker)()
        before = sorted(config.work_dir.iterdir())
        session = tracker.open(config)
        assert isinstance(session, TrackingSession)
        assert session.close().is_complete
        assert sorted(config.work_dir.iterdir()) == before

    def test_every_event_arrives_unchanged(self, tracker: Tracker, config: TrackerConfig) -> None:
        """Null and MLflow are told the same; what is kept is what was sent, and events are not mutated."""
        events = record_search(config.work_dir, example_search(NUM_TRIALS))
        before = copy.deepcopy(events)
        session = tracker.open(config)
        _observe(session, events)
        delivery = session.close()
        assert delivery.is_complete, delivery.reason
        assert session.close() == delivery
        assert events == before
        assert self.recorded(config) in (None, expected(events))

    def test_resume_is_idempotent(self, tracker: Tracker, config: TrackerConfig) -> None:
        """An interrupted and resumed search leaves what an uninterrupted one leaves."""
        events = example_search(NUM_TRIALS)
        first = tracker.open(config)
        _observe(first, record_search(config.work_dir, events[: 1 + NUM_BEFORE_INTERRUPTION]))
        first.observe(SearchFinished(events[0].search_id, None, -1, is_interrupted=True, wall_s=1.0))
        first.close()
        second = tracker.open(config)
        again = resumed(events, num_known=NUM_BEFORE_INTERRUPTION)
        _observe(second, record_search(config.work_dir, again, is_resumed=True))
        assert second.close().is_complete
        assert second.run_id == first.run_id
        assert self.recorded(config) in (None, expected(events))

    def test_artifacts_are_taken_at_once(self, tracker: Tracker, config: TrackerConfig, tmp_path: Path) -> None:
        """A file may vanish after it was logged."""
        session = tracker.open(config)
        _observe(session, record_search(config.work_dir, example_search(1)))
        path = tmp_path / "figure.html"
        path.write_text("<p>a figure</p>")
        session.log_artifacts({"figures/figure.html": path})
        path.unlink()
        assert session.close().is_complete

    def test_recording_never_changes_a_search(
        self, tracker: Tracker, config: TrackerConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nobody watching, this tracker watching, a broken one watching: the same trials."""
        session = GuardedSession(tracker.open(config), name=tracker.name)
        broken = _broken_session()
        alone = _toy_trials(tmp_path / "alone")
        assert _toy_trials(tmp_path / "tracked", session) == alone
        assert _toy_trials(tmp_path / "broken", broken) == alone
        assert session.close().is_complete
        assert "raised OSError" in broken.close().reason
        assert [record.levelname for record in caplog.records if "tracking stopped" in record.message] == ["WARNING"]


def _observe(session: TrackingSession[Any], events: Sequence[object]) -> None:
    for event in events:
        session.observe(event)


def _broken_session(what: str = "search") -> GuardedSession:
    session: Any = BrokenSession()
    return GuardedSession(session, name="broken", what=what)


def _toy_trials(work_dir: Path, *observers: GuardedSession) -> tuple[Trial[Evaluation], ...]:
    config = SearchConfig("random", num_trials=8, work_dir=work_dir)
    result: SearchResult = run_search(
        config,
        scenario=ToyScenario(),  # type: ignore[arg-type]
        space=tiny_space(),
        observers=observers,
        objective_factory=ToyObjective,
    )
    return tuple(replace(trial, wall_s=0.0) for trial in result.trials)


def small_study() -> tuple[StudyEvent, ...]:
    """Four searches of two trials."""
    return example_study(2, num_seeds=1, strategies=("tpe", "random"))


def expected_study(events: Sequence[StudyEvent]) -> RecordedStudy:
    """What a tracker should have of a study."""
    return {
        (event.result.cell.key, number): evaluation.throughput_samples_per_s
        for event in events
        if isinstance(event, CellFinished)
        for number, evaluation in enumerate(event.evaluations)
    }


def interrupted(events: Sequence[StudyEvent], *, num_cells: int) -> tuple[StudyEvent, ...]:
    """The events of a study that was interrupted after some searches."""
    last = events[-1]
    return (*events[: 1 + num_cells], StudyFinished(last.study_id, False))


class StudyTrackerConformance(_Recording):
    """Subclass, override ``tracker``; pytest collects the rest."""

    def test_opening_a_study_writes_nothing(self, tracker: StudyTracker, config: TrackerConfig) -> None:
        """Files appear with the first event, not before."""
        assert isinstance(tracker, StudyTracker)
        before = sorted(config.work_dir.iterdir())
        session = tracker.open_study(config)
        assert isinstance(session, TrackingSession)
        assert session.close().is_complete
        assert sorted(config.work_dir.iterdir()) == before

    def test_every_trial_of_a_study_arrives_unchanged(self, tracker: StudyTracker, config: TrackerConfig) -> None:
        """Every tracker is told the same; what is kept is what was sent, and events are not mutated."""
        events = record_study(config.work_dir, small_study())
        before = copy.deepcopy(events)
        session = tracker.open_study(config)
        _observe(session, events)
        delivery = session.close()
        assert delivery.is_complete, delivery.reason
        assert session.close() == delivery
        assert events == before
        assert self.recorded(config) in (None, expected_study(events))

    def test_a_resumed_study_leaves_what_an_undisturbed_one_leaves(
        self, tracker: StudyTracker, config: TrackerConfig
    ) -> None:
        """Events told again, in another session and within one, add nothing."""
        events = small_study()
        first = tracker.open_study(config)
        _observe(first, record_study(config.work_dir, interrupted(events, num_cells=NUM_CELLS_BEFORE_INTERRUPTION)))
        first.close()
        whole = record_study(config.work_dir, events)
        for _ in range(2):
            again = tracker.open_study(config)
            _observe(again, (*whole[:3], *whole[1:]))
            assert again.close().is_complete
            assert again.run_id == first.run_id
        assert self.recorded(config) in (None, expected_study(events))

    def test_files_of_a_study_are_taken_at_once(
        self, tracker: StudyTracker, config: TrackerConfig, tmp_path: Path
    ) -> None:
        """A file may vanish after it was logged."""
        session = tracker.open_study(config)
        _observe(session, record_study(config.work_dir, small_study()[:2]))
        path = tmp_path / "report.html"
        path.write_text("<p>a report</p>")
        session.log_artifacts({"report/report.html": path})
        path.unlink()
        assert session.close().is_complete

    def test_a_failing_tracker_is_silenced_and_reported_once(self, caplog: pytest.LogCaptureFixture) -> None:
        """Nothing that a tracker raises reaches the study."""
        session = _broken_session("study")
        told: Sequence[Callable[[], object]] = (
            *(lambda event=event: session.observe(event) for event in small_study()),
            lambda: session.log_artifacts({}),
            lambda: session.tracking_uri,
            lambda: session.url_hint,
            lambda: session.run_id,
        )
        for tell in told:
            tell()
        delivery = session.close()
        assert "raised OSError" in delivery.reason
        assert delivery.num_pending == len(small_study())
        assert [record.levelname for record in caplog.records if "the study goes on" in record.message] == ["WARNING"]
