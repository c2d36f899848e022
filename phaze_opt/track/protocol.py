"""The `Tracker` seam: a plug-in that opens one recording session per search, study or proof, and its guard.

A tracker is registered under the entry-point group ``phaze_opt.trackers``. As with `search.strategy.Strategy`, the
registered object is cheap and stateless (it is instantiated without arguments, pickles, and constructing it touches
nothing); `Tracker.open` begins a `TrackingSession`, which holds whatever files, connections and processes it needs. One
that records studies too is a `StudyTracker`; a study that asks for one that does not is refused before it starts.
A tracker that fails is silenced and reported once; it never changes or stops a search, study or proof.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, final, runtime_checkable

from phaze_opt.certify.events import ProofEvent
from phaze_opt.errors import InputError, PluginError, PluginFaultError
from phaze_opt.jobs.options import RecordOptions
from phaze_opt.plugins import PluginGroup, load_plugin, plugin_code
from phaze_opt.search.events import Event_contra, Observer, SearchEvent
from phaze_opt.study.events import StudyEvent

DEFAULT_EXPERIMENT = "phaze-opt"
"""Experiment that runs go to unless the user names one."""


class TrialRuns(StrEnum):
    """Which trials of a study's searches are recorded as runs of their own."""

    ALL = "all"
    BEST = "best"


@dataclass(frozen=True, slots=True)
class TrackerConfig:
    """Where to record.

    Attributes:
        tracking_uri: the store; empty means the tracker's own default (for MLflow the variable
            MLFLOW_TRACKING_URI, and without it a sqlite file in ``work_dir``).
        experiment: name of the group of runs; a study that is given none, or this default, uses its own name.
        work_dir: directory that holds local stores and journals.
        trials: of a study: every trial, or the best one of each search.
    """

    tracking_uri: str = ""
    experiment: str = DEFAULT_EXPERIMENT
    work_dir: Path = field(default_factory=Path)
    trials: TrialRuns = TrialRuns.ALL


@dataclass(frozen=True, slots=True)
class Delivery:
    """How much of what was observed has reached the store.

    Attributes:
        num_delivered: events that the store has acknowledged.
        num_pending: events that wait in the local journal.
        reason: one sentence on why they wait and how they will be delivered; empty if none do.
    """

    num_delivered: int = 0
    num_pending: int = 0
    reason: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether nothing waits."""
        return self.num_pending == 0


@runtime_checkable
class TrackingSession(Observer[Event_contra], Protocol[Event_contra]):
    """One search, study or proof being recorded: no method may stop, slow noticeably or change it.

    A resumed study tells its events again: an event seen before, in this session or an earlier one, adds nothing.
    """

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials; empty if nothing is recorded."""
        ...

    @property
    def run_id(self) -> str:
        """Identifier of the run in the store; empty as long as the store has not given one."""
        ...

    @property
    def url_hint(self) -> str:
        """The one line that opens the run: a command or an address; empty if nothing is recorded."""
        ...

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Record files under the given names (relative, with ``/``); their content is taken at once."""
        ...

    def close(self) -> Delivery:
        """Deliver what is left, within bounded time; later calls return the same answer."""
        ...


@runtime_checkable
class Tracker(Protocol):
    """A tracker, registered under the entry-point group ``phaze_opt.trackers``."""

    @property
    def name(self) -> str:
        """Name it is registered under."""
        ...

    def open(self, config: TrackerConfig) -> TrackingSession[SearchEvent]:
        """Begin recording one search.

        Raises:
            InputError: the configuration cannot work (malformed address, unwritable directory). A store that is
                merely unreachable is no error.
        """
        ...


@runtime_checkable
class StudyTracker(Tracker, Protocol):
    """A tracker that records studies too."""

    def open_study(self, config: TrackerConfig) -> TrackingSession[StudyEvent]:
        """Begin recording one study.

        Raises:
            InputError: as in `Tracker.open`.
        """
        ...


@runtime_checkable
class CertificateTracker(Tracker, Protocol):
    """A tracker that records proofs too."""

    def open_certificate(self, config: TrackerConfig) -> TrackingSession[ProofEvent]:
        """Begin recording one proof.

        Raises:
            InputError: as in `Tracker.open`.
        """
        ...


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


_OPENERS = {
    "search": ("open", "no searches"),
    "study": ("open_study", "searches only"),
    "proof": ("open_certificate", "no proofs"),
}
"""What opens a session of each kind, and what a tracker without it records."""


def open_tracker(name: str, config: TrackerConfig, what: str = "search") -> GuardedSession:
    """Load a tracker by its registered name and open a guarded session for a search, a study or a proof (``what``).

    Raises:
        PluginError: unknown name, what is registered is no tracker, or it does not record this.
        InputError: the configuration cannot work.
    """
    group, (method, lack) = PluginGroup.TRACKERS, _OPENERS[what]
    plugin = load_plugin(group, name)
    if not isinstance(plugin, Tracker):
        message = f"{group.value}: '{name}' is a {type(plugin).__name__}, which has no open(config)"
        raise PluginError(message)
    if not hasattr(plugin, method):
        why = f"records {lack} (it has no {method}(config))"
        message = f"{group.value}: '{name}' {why}; choose another --tracker or give --no-tracking"
        raise PluginError(message)
    with plugin_code(group, name, passing=(InputError, PluginError)):
        return GuardedSession(getattr(plugin, method)(config), name=name, what=what)


def config_of(records: RecordOptions, trials: TrialRuns = TrialRuns.ALL) -> TrackerConfig:
    """Where the options of a command record."""
    return TrackerConfig(records.tracking_uri, records.experiment, records.work_dir, trials)
