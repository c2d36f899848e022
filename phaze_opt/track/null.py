"""The tracker that records nothing (``--no-tracking``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import final

from phaze_opt.certify.events import ProofEvent
from phaze_opt.search.events import SearchEvent
from phaze_opt.study.events import StudyEvent
from phaze_opt.track.protocol import Delivery, TrackerConfig


@final
class NullSession:
    """Receives every event and keeps none; counts them, so that tests can see what arrived."""

    tracking_uri = run_id = url_hint = ""

    def __init__(self) -> None:
        """Start at zero events."""
        self.num_events = 0

    def observe(self, event: SearchEvent | StudyEvent | ProofEvent) -> None:
        """Count one event."""
        self.num_events += 1

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Drop the files."""

    def close(self) -> Delivery:
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

    open_study = open_certificate = open
