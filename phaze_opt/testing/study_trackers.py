"""Conformance suite of trackers that record studies: what any `track.protocol.StudyTracker` must satisfy.

Apply it by subclassing `StudyTrackerConformance` in a test module, overriding the ``tracker`` fixture, and ``recorded``
if the tracker keeps what it gets, as with `testing.trackers.TrackerConformance`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished
from phaze_opt.testing.events import example_study
from phaze_opt.testing.records import record_study
from phaze_opt.track.guard import GuardedSession
from phaze_opt.track.protocol import (
    Delivery,
    DeliveryProgress,
    StudyTracker,
    StudyTrackingSession,
    TrackerConfig,
)

NUM_BEFORE_INTERRUPTION = 2
RecordedStudy = Mapping[tuple[str, int], float]
"""Throughput in samples/s by key of the search and trial number, 0 if infeasible."""


class BrokenStudySession:
    """Fails whatever it is asked."""

    @property
    def tracking_uri(self) -> str:
        """Fails."""
        raise OSError

    @property
    def run_id(self) -> str:
        """Fails."""
        raise OSError

    @property
    def url_hint(self) -> str:
        """Fails."""
        raise OSError

    def observe_study(self, event: StudyEvent) -> None:
        """Fail."""
        raise OSError

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Fail."""
        raise OSError

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Fail."""
        raise OSError


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


class StudyTrackerConformance:
    """Subclass, override ``tracker``; pytest collects the rest."""

    @pytest.fixture
    def tracker(self) -> StudyTracker:
        """The tracker under test."""
        raise NotImplementedError

    @pytest.fixture
    def config(self, tmp_path: Path) -> TrackerConfig:
        """A fresh working directory."""
        return TrackerConfig(work_dir=tmp_path)

    def recorded(self, config: TrackerConfig) -> RecordedStudy | None:
        """What the store has of every trial; None if the tracker keeps nothing. A trial there twice must raise."""
        return None

    def test_opening_a_study_writes_nothing(self, tracker: StudyTracker, config: TrackerConfig) -> None:
        """Files appear with the first event, not before."""
        assert isinstance(tracker, StudyTracker)
        before = sorted(config.work_dir.iterdir())
        session = tracker.open_study(config)
        assert isinstance(session, StudyTrackingSession)
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
        _observe(first, record_study(config.work_dir, interrupted(events, num_cells=NUM_BEFORE_INTERRUPTION)))
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
        session = GuardedSession(BrokenStudySession(), what="study")
        told: Sequence[Callable[[], object]] = (
            *(lambda event=event: session.observe_study(event) for event in small_study()),
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


def _observe(session: StudyTrackingSession, events: Sequence[StudyEvent]) -> None:
    for event in events:
        session.observe_study(event)
