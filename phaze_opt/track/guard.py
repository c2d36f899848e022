"""Isolation: a tracker that fails is silenced and reported once; it never changes or stops a search, study or proof."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast, final

from phaze_opt.errors import PluginError
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.events import SearchEvent
from phaze_opt.study.events import StudyEvent
from phaze_opt.track.certificate_events import CertificateTracker, CertificateTrackingSession, ProofEvent
from phaze_opt.track.protocol import (
    Delivery,
    DeliveryProgress,
    StudyTracker,
    StudyTrackingSession,
    Tracker,
    TrackerConfig,
    TrackingSession,
)

_logger = logging.getLogger(__name__)
AnySession = TrackingSession | StudyTrackingSession | CertificateTrackingSession


@final
class Guard:
    """Catches every exception of one session, logs the first and asks the session nothing more that writes."""

    def __init__(self, session: AnySession, *, what: str) -> None:
        """Watch a session that records ``what`` (search, study or proof)."""
        self._session = session
        self._what = what
        self._num_dropped = 0
        self._reason = ""

    def text(self, name: str) -> str:
        """A property of the session, or empty if it fails to say."""
        try:
            return str(getattr(self._session, name))
        except Exception as error:  # whatever a tracker raises must not reach the search
            self._fail(name, error)
            return ""

    def write(self, name: str, call: Callable[[], None], *, num_events: int) -> None:
        """Pass something on; after a failure it is only counted as dropped."""
        if self._reason:
            self._num_dropped += num_events
            return
        try:
            call()
        except Exception as error:
            self._num_dropped += num_events
            self._fail(name, error)

    def close(self, on_progress: DeliveryProgress | None) -> Delivery:
        """Close the session; a failure counts the events it lost."""
        try:
            delivery = self._session.close(on_progress)
        except Exception as error:
            self._fail("close", error)
            return Delivery(num_pending=self._num_dropped, reason=self._reason)
        if not self._reason:
            return delivery
        return Delivery(delivery.num_delivered, delivery.num_pending + self._num_dropped, self._reason)

    def _fail(self, name: str, error: Exception) -> None:
        if not self._reason:
            self._reason = f"tracking stopped: {name} raised {type(error).__name__}: {error}"
            _logger.warning("%s; the %s goes on without it", self._reason, self._what)


class _GuardedRecording:
    """What guarded sessions of a search, a study and a proof share; they differ in the events that they take."""

    def __init__(self, session: AnySession, *, what: str) -> None:
        """Wrap a session."""
        self._session = session
        self._guard = Guard(session, what=what)

    @property
    def tracking_uri(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._guard.text("tracking_uri")

    @property
    def run_id(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._guard.text("run_id")

    @property
    def url_hint(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._guard.text("url_hint")

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Pass files on."""
        self._guard.write("log_artifacts", lambda: self._session.log_artifacts(files), num_events=0)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Close the wrapped session; a failure counts the events it lost."""
        return self._guard.close(on_progress)

    def _pass_on(self, name: str, write: Callable[[], None]) -> None:
        """Pass one event on; a session that failed before is not asked again."""
        self._guard.write(name, write, num_events=1)


@final
class GuardedSession(_GuardedRecording):
    """Any session of a search, with every exception of its own turned into a `Delivery.reason`."""

    def __init__(self, session: TrackingSession) -> None:
        """Wrap a session."""
        super().__init__(session, what="search")
        self._recording = session

    def observe(self, event: SearchEvent) -> None:
        """Pass one event on."""
        self._pass_on("observe", lambda: self._recording.observe(event))


@final
class GuardedStudySession(_GuardedRecording):
    """Any session of a study, guarded likewise."""

    def __init__(self, session: StudyTrackingSession) -> None:
        """Wrap a session."""
        super().__init__(session, what="study")
        self._recording = session

    def observe_study(self, event: StudyEvent) -> None:
        """Pass one event on."""
        self._pass_on("observe_study", lambda: self._recording.observe_study(event))


@final
class GuardedCertificateSession(_GuardedRecording):
    """Any session of a proof, guarded likewise."""

    def __init__(self, session: CertificateTrackingSession) -> None:
        """Wrap a session."""
        super().__init__(session, what="proof")
        self._recording = session

    def observe_proof(self, event: ProofEvent) -> None:
        """Pass one event on."""
        self._pass_on("observe_proof", lambda: self._recording.observe_proof(event))


def open_tracker(name: str, config: TrackerConfig) -> TrackingSession:
    """Load a tracker by its registered name and open a guarded session.

    Raises:
        PluginError: unknown name, or what is registered is no tracker.
        InputError: the configuration cannot work.
    """
    return cast("TrackingSession", GuardedSession(_load(name).open(config)))


def open_study_tracker(name: str, config: TrackerConfig) -> StudyTrackingSession:
    """Load a tracker by its registered name and open a guarded session for a study.

    Raises:
        PluginError: unknown name, what is registered is no tracker, or it records no studies.
        InputError: the configuration cannot work.
    """
    tracker = _load(name)
    if not isinstance(tracker, StudyTracker):
        message = (
            f"{PluginGroup.TRACKERS.value}: '{name}' records searches only (it has no open_study(config)); "
            f"choose another --tracker or give --no-tracking"
        )
        raise PluginError(message)
    return cast("StudyTrackingSession", GuardedStudySession(tracker.open_study(config)))


def open_certificate_tracker(name: str, config: TrackerConfig) -> CertificateTrackingSession:
    """Load a tracker by its registered name and open a guarded session for a proof.

    Raises:
        PluginError: unknown name, what is registered is no tracker, or it records no proofs.
        InputError: the configuration cannot work.
    """
    tracker = _load(name)
    if not isinstance(tracker, CertificateTracker):
        message = (
            f"{PluginGroup.TRACKERS.value}: '{name}' records no proofs (it has no open_certificate(config)); "
            f"choose another --tracker or give --no-tracking"
        )
        raise PluginError(message)
    return cast("CertificateTrackingSession", GuardedCertificateSession(tracker.open_certificate(config)))


def _load(name: str) -> Tracker:
    plugin = load_plugin(PluginGroup.TRACKERS, name)
    if not isinstance(plugin, Tracker):
        message = f"{PluginGroup.TRACKERS.value}: '{name}' is a {type(plugin).__name__}, which has no open(config)"
        raise PluginError(message)
    return plugin
