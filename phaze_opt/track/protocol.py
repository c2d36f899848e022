"""The `Tracker` seam: a plug-in that opens one recording session per search or per study.

A tracker is registered under the entry-point group ``phaze_opt.trackers``. As with `search.strategy.Strategy`, the
registered object is cheap and stateless (it is instantiated without arguments, pickles, and constructing it touches
nothing); `Tracker.open` begins a `TrackingSession`, which holds whatever files, connections and processes it needs. One
that records studies too is a `StudyTracker`; a study that asks for one that does not is refused before it starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, runtime_checkable

from phaze_opt.certify.events import ProofEvent
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
