"""The shipped suite, applied to both built-in trackers."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from kits.recorded_store import AT_THE_END, rows

from phaze_opt.testing.events import example_search
from phaze_opt.testing.trackers import StudyTrackerConformance, TrackerConformance
from phaze_opt.track.protocol import NullTracker, StudyTracker, Tracker, TrackerConfig


def trial_throughputs(work_dir: Path) -> Mapping[int, float]:
    """Read straight from the database; a trial that is there twice fails."""
    query = """
        select cast(trial.value as integer), coalesce(metric.value, 0.0) from tags as trial
        left join latest_metrics as metric
            on metric.run_uuid = trial.run_uuid and metric.key = 'throughput_samples_per_s'
        where trial.key = 'phaze_opt.trial'
    """
    found = rows(work_dir, query)
    assert len({number for number, _ in found}) == len(found), "a trial was logged twice"
    return dict(found)


class TestNullTracker(TrackerConformance):
    @pytest.fixture
    def tracker(self) -> Tracker:
        return NullTracker()

    def test_it_counts_what_it_drops(self) -> None:
        session = NullTracker().open(TrackerConfig())
        for event in example_search(3):
            session.observe(event)
        assert session.num_events == 5


class Delivered:
    """MLflow in a store of its own, all of it delivered at the end."""

    @pytest.fixture
    def tracker(self) -> Tracker:
        return AT_THE_END

    @pytest.fixture
    def config(self, work_dir: Path) -> TrackerConfig:
        return TrackerConfig(work_dir=work_dir)


class TestMLflowTracker(Delivered, TrackerConformance):
    def recorded(self, config: TrackerConfig) -> Mapping[int, float]:
        return trial_throughputs(config.work_dir)


def study_throughputs(work_dir: Path) -> Mapping[tuple[str, int], float]:
    """Read straight from the database; a trial that is there twice fails."""
    query = """
        select cell.value, cast(trial.value as integer), coalesce(metric.value, 0.0) from tags as trial
        join tags as cell on cell.run_uuid = trial.run_uuid and cell.key = 'phaze_opt.cell'
        left join latest_metrics as metric
            on metric.run_uuid = trial.run_uuid and metric.key = 'throughput_samples_per_s'
        where trial.key = 'phaze_opt.trial'
    """
    found = rows(work_dir, query)
    assert len({(key, number) for key, number, _ in found}) == len(found), "a trial was logged twice"
    return {(key, number): value for key, number, value in found}


class TestNullStudyTracker(StudyTrackerConformance):
    @pytest.fixture
    def tracker(self) -> StudyTracker:
        return NullTracker()


class TestMLflowStudyTracker(Delivered, StudyTrackerConformance):
    def recorded(self, config: TrackerConfig) -> Mapping[tuple[str, int], float]:
        return study_throughputs(config.work_dir)
