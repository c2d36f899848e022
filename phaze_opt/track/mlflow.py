"""MLflow: a run per search (or study, strategy and seed) and a child run per trial, through a local journal.

Sessions append lines to the journal and nothing else. A process of its own (`track.deliver`) writes the lines to the
store while the search goes on; what the store does not take stays in the journal for later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import final

from phaze_opt.errors import TrackingError
from phaze_opt.objective.serialize import evaluation_to_json
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.track.destination import resolve_destination
from phaze_opt.track.journal import Journal
from phaze_opt.track.mlflow_certificate import MLflowCertificateSession
from phaze_opt.track.mlflow_study import MLflowStudySession
from phaze_opt.track.outbox import Outbox, Patience, check_writable
from phaze_opt.track.protocol import DEFAULT_EXPERIMENT, Delivery, DeliveryProgress, TrackerConfig
from phaze_opt.track.records import TRIAL, finished_record, started_record, trial_record


@final
@dataclass(frozen=True, slots=True)
class MLflowTracker:
    """Opens sessions that record in MLflow.

    Attributes:
        is_background: deliver from a process of its own during the search; otherwise in this process at the end.
        stall_s: when closing, give up after so long without progress, s.
        total_s: when closing a search, give up after so long, s.
        study_total_s: when closing a study, which may have thousands of trials to deliver, s.
    """

    is_background: bool = True
    stall_s: float = 20.0
    total_s: float = 60.0
    study_total_s: float = 600.0

    @property
    def name(self) -> str:
        """``mlflow``."""
        return "mlflow"

    def open(self, config: TrackerConfig) -> MLflowSession:
        """A session; the store is not touched yet.

        Raises:
            InputError: unusable address or experiment, or a working directory that cannot be written.
        """
        destination = resolve_destination(config)
        check_writable(destination.work_dir)
        patience = Patience(self.is_background, self.stall_s, self.total_s)
        return MLflowSession(Outbox(destination, patience), config.experiment)

    def open_study(self, config: TrackerConfig) -> MLflowStudySession:
        """A session for a study; the store is not touched yet.

        Raises:
            InputError: as in `open`.
        """
        experiment = config.experiment.strip() or DEFAULT_EXPERIMENT
        destination = resolve_destination(replace(config, experiment=experiment))
        check_writable(destination.work_dir)
        patience = Patience(self.is_background, self.stall_s, self.study_total_s)
        own_name = "" if experiment == DEFAULT_EXPERIMENT else experiment
        return MLflowStudySession(Outbox(destination, patience), own_name, config.trials)

    def open_certificate(self, config: TrackerConfig) -> MLflowCertificateSession:
        """A session for a proof; the store is not touched yet.

        Raises:
            InputError: as in `open`.
        """
        destination = resolve_destination(config)
        check_writable(destination.work_dir)
        patience = Patience(self.is_background, self.stall_s, self.total_s)
        return MLflowCertificateSession(Outbox(destination, patience), config.experiment)


@final
class MLflowSession:
    """Journals the events of one search and has them delivered."""

    def __init__(self, outbox: Outbox, experiment: str) -> None:
        """Nothing is written before the first event."""
        self._outbox = outbox
        self._experiment = experiment
        self._started: tuple[SearchStarted, int] | None = None
        self._is_begun = False
        self._context: dict[str, str] = {}
        self._logged: set[int] = set()

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials."""
        return self._outbox.destination.shown

    @property
    def run_id(self) -> str:
        """The parent run's, once the store has given one."""
        return self._outbox.run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        return self._outbox.url_hint

    def observe(self, event: SearchEvent) -> None:
        """Append one event to the journal; a trial that the journal already has (a resumed search) is left out.

        Only the first trial tells whether a search is resumed, so `SearchStarted` is held back until then.

        Raises:
            TrackingError: an event before `SearchStarted`, or after `close`.
            OSError: the journal cannot be written.
        """
        time_ms = round(1000 * time.time())
        if isinstance(event, SearchStarted):
            if self._is_begun:
                message = f"a session records one search; open another session for {event.search_id}"
                raise TrackingError(message)
            self._started = (event, time_ms)
        elif isinstance(event, TrialFinished):
            self._begin(is_resumed=event.is_resumed)
            if event.number not in self._logged:
                self._outbox.append(trial_record(event, context=self._context, time_ms=time_ms))
                self._logged.add(event.number)
        elif isinstance(event, SearchFinished):
            self._begin(is_resumed=False)
            self._outbox.append(finished_record(event, time_ms=time_ms))
            if event.best is not None:
                self._outbox.append_json("best.json", evaluation_to_json(event.best))

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the journal and record them; see `Outbox.append_files` for errors."""
        self._begin(is_resumed=False)
        self._outbox.append_files(files)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Deliver what is left, within the tracker's limits."""
        return self._outbox.close(on_progress)

    def _begin(self, *, is_resumed: bool) -> None:
        """Open the journal for the search announced last, if that has not been done."""
        if self._started is None:
            return
        (event, time_ms), self._started = self._started, None
        self._is_begun = True
        work_dir = self._outbox.destination.work_dir
        journal = Journal.latest(work_dir, event.search_id) if is_resumed else None
        known = self._outbox.begin(journal or Journal.begin(work_dir, event.search_id))
        self._logged = {record["number"] for record in known if record.get("kind") == TRIAL}
        self._context = {"strategy": event.strategy, "goal": event.goal, "seed": str(event.seed)}
        target = self._outbox.destination.key
        self._outbox.append(started_record(event, target=target, experiment=self._experiment, time_ms=time_ms))
        self._outbox.append_json("config.json", event.config)
        self._outbox.hire()
