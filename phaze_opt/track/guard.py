"""Isolation: a tracker that fails is silenced and reported once; it never changes or stops a search, study or proof."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, final

from phaze_opt.certify.events import ProofEvent
from phaze_opt.errors import InputError, PluginError, PluginFaultError
from phaze_opt.jobs.options import RecordOptions
from phaze_opt.plugins import PluginGroup, load_plugin, plugin_code
from phaze_opt.search.events import SearchEvent
from phaze_opt.study.events import StudyEvent
from phaze_opt.track.protocol import Delivery, Tracker, TrackerConfig, TrackingSession, TrialRuns

_logger = logging.getLogger(__name__)


@final
class GuardedSession:
    """Any session, with every exception of its own turned into a `Delivery.reason`.

    The first exception is logged, and the session is asked nothing more that writes.
    """

    def __init__(self, session: TrackingSession[Any], *, name: str, what: str = "search") -> None:
        """Wrap a session of the tracker of a name, which records ``what`` (search, study or proof)."""
        self._session = session
        self._name = name
        self._what = what
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

    def observe(self, event: SearchEvent | StudyEvent | ProofEvent) -> None:
        """Pass one event on."""
        self._write(lambda: self._session.observe(event))

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Pass files on."""
        self._write(lambda: self._session.log_artifacts(files), num_events=0)

    def close(self) -> Delivery:
        """Close the wrapped session; a failure counts the events it lost."""
        closed: list[Delivery] = []
        if not self._call(lambda: closed.append(self._session.close())):
            return Delivery(num_pending=self._num_dropped, reason=self._reason)
        delivery = closed[0]
        if not self._reason:
            return delivery
        return Delivery(delivery.num_delivered, delivery.num_pending + self._num_dropped, self._reason)

    def _text(self, name: str) -> str:
        found = [""]
        self._call(lambda: found.append(str(getattr(self._session, name))))
        return found[-1]

    def _write(self, call: Callable[[], object], *, num_events: int = 1) -> None:
        """Pass something on; after a failure it is only counted as dropped."""
        if self._reason or not self._call(call):
            self._num_dropped += num_events

    def _call(self, call: Callable[[], object]) -> bool:
        """Run code of the tracker; whether it went well. Whatever it raises must not reach the search."""
        try:
            with plugin_code(PluginGroup.TRACKERS, self._name):
                call()
        except (PluginFaultError, MemoryError) as error:
            if not self._reason:
                self._reason = f"tracking stopped: {error}"
                _logger.warning("%s; the %s goes on without it", self._reason, self._what)
            return False
        return True


def open_tracker(name: str, config: TrackerConfig) -> GuardedSession:
    """Load a tracker by its registered name and open a guarded session for a search.

    Raises:
        PluginError: unknown name, or what is registered is no tracker.
        InputError: the configuration cannot work.
    """
    return _open(name, config, "open", what="search")


def open_study_tracker(name: str, config: TrackerConfig) -> GuardedSession:
    """A guarded session for a study, as `open_tracker`; a tracker that records no studies is a `PluginError`."""
    return _open(name, config, "open_study", what="study", lack="records searches only")


def open_certificate_tracker(name: str, config: TrackerConfig) -> GuardedSession:
    """A guarded session for a proof, as `open_tracker`; a tracker that records no proofs is a `PluginError`."""
    return _open(name, config, "open_certificate", what="proof", lack="records no proofs")


def _open(name: str, config: TrackerConfig, method: str, *, what: str, lack: str = "") -> GuardedSession:
    group = PluginGroup.TRACKERS
    plugin = load_plugin(group, name)
    if not isinstance(plugin, Tracker):
        message = f"{group.value}: '{name}' is a {type(plugin).__name__}, which has no open(config)"
        raise PluginError(message)
    if not hasattr(plugin, method):
        why = f"{lack} (it has no {method}(config))"
        message = f"{group.value}: '{name}' {why}; choose another --tracker or give --no-tracking"
        raise PluginError(message)
    with plugin_code(group, name, passing=(InputError, PluginError)):
        return GuardedSession(getattr(plugin, method)(config), name=name, what=what)


def config_of(records: RecordOptions, trials: TrialRuns = TrialRuns.ALL) -> TrackerConfig:
    """Where the options of a command record."""
    return TrackerConfig(records.tracking_uri, records.experiment, records.work_dir, trials)
