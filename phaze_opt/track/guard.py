"""Isolation: a tracker that fails is silenced and reported once; it never changes or stops a search."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import cast, final

from phaze_opt.errors import PluginError
from phaze_opt.plugins import PluginGroup, load_plugin
from phaze_opt.search.events import SearchEvent
from phaze_opt.track.protocol import Delivery, DeliveryProgress, Tracker, TrackerConfig, TrackingSession

_logger = logging.getLogger(__name__)


@final
class GuardedSession:
    """Any session, with every exception of its own caught, logged once and turned into a `Delivery.reason`."""

    def __init__(self, session: TrackingSession) -> None:
        """Wrap a session."""
        self._session = session
        self._num_dropped = 0
        self._reason = ""

    @property
    def tracking_uri(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._text("tracking_uri")

    @property
    def run_id(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._text("run_id")

    @property
    def url_hint(self) -> str:
        """The wrapped session's, or empty if it fails to say."""
        return self._text("url_hint")

    def observe(self, event: SearchEvent) -> None:
        """Pass one event on; a session that failed before is not asked again."""
        if self._reason:
            self._num_dropped += 1
            return
        try:
            self._session.observe(event)
        except Exception as error:  # whatever a tracker raises must not reach the search
            self._num_dropped += 1
            self._fail("observe", error)

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Pass files on."""
        if self._reason:
            return
        try:
            self._session.log_artifacts(files)
        except Exception as error:
            self._fail("log_artifacts", error)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Close the wrapped session; a failure counts the events it lost."""
        try:
            delivery = self._session.close(on_progress)
        except Exception as error:
            self._fail("close", error)
            return Delivery(num_pending=self._num_dropped, reason=self._reason)
        if not self._reason:
            return delivery
        return Delivery(delivery.num_delivered, delivery.num_pending + self._num_dropped, self._reason)

    def _text(self, name: str) -> str:
        try:
            return str(getattr(self._session, name))
        except Exception as error:
            self._fail(name, error)
            return ""

    def _fail(self, what: str, error: Exception) -> None:
        if not self._reason:
            self._reason = f"tracking stopped: {what} raised {type(error).__name__}: {error}"
            _logger.warning("%s; the search goes on without it", self._reason)


def open_tracker(name: str, config: TrackerConfig) -> TrackingSession:
    """Load a tracker by its registered name and open a guarded session.

    Raises:
        PluginError: unknown name, or what is registered is no tracker.
        InputError: the configuration cannot work.
    """
    plugin = load_plugin(PluginGroup.TRACKERS, name)
    if not isinstance(plugin, Tracker):
        message = f"{PluginGroup.TRACKERS.value}: '{name}' is a {type(plugin).__name__}, which has no open(config)"
        raise PluginError(message)
    return cast("TrackingSession", GuardedSession(plugin.open(config)))
