"""The tracker that records nothing (``--no-tracking``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import final

from phaze_opt.search.events import SearchEvent
from phaze_opt.study.events import StudyEvent
from phaze_opt.track.certificate_events import ProofEvent
from phaze_opt.track.protocol import Delivery, DeliveryProgress, TrackerConfig


@final
class NullSession:
    """Receives every event and keeps none; counts them, so that tests can see what arrived."""

    def __init__(self) -> None:
        """Start at zero events."""
        self.num_events = 0

    @property
    def tracking_uri(self) -> str:
        """Nothing is recorded."""
        return ""

    @property
    def run_id(self) -> str:
        """Nothing is recorded."""
        return ""

    @property
    def url_hint(self) -> str:
        """Nothing is recorded."""
        return ""

    def observe(self, event: SearchEvent) -> None:
        """Count one event."""
        self.num_events += 1

    def observe_study(self, event: StudyEvent) -> None:
        """Count one event."""
        self.num_events += 1

    def observe_proof(self, event: ProofEvent) -> None:
        """Count one event."""
        self.num_events += 1

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Drop the files."""

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Nothing waits, ever."""
        return Delivery()


@final
class NullTracker:
    """Opens sessions that record nothing."""

    @property
    def name(self) -> str:
        """``null``."""
        return "null"

    def open(self, config: TrackerConfig) -> NullSession:
        """A session that drops everything."""
        return NullSession()

    def open_study(self, config: TrackerConfig) -> NullSession:
        """A session that drops everything."""
        return NullSession()

    def open_certificate(self, config: TrackerConfig) -> NullSession:
        """A session that drops everything."""
        return NullSession()
