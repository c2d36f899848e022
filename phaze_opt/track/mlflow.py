"""MLflow: a parent run per search and a child run per trial, through a local journal.

``observe`` appends one line to the journal and nothing else. A process of its own (`track.deliver`) writes the lines
to the store while the search goes on; what the store does not take stays in the journal for later.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import final

from phaze_opt.errors import InputError, TrackingError
from phaze_opt.objective.serialize import evaluation_to_json
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.track.courier import Courier
from phaze_opt.track.deliver import deliver_once
from phaze_opt.track.destination import Destination, resolve_destination
from phaze_opt.track.journal import Journal, JournalReader, JournalWriter, Record
from phaze_opt.track.protocol import Delivery, DeliveryProgress, TrackerConfig
from phaze_opt.track.records import ARTIFACT, TRIAL, finished_record, started_record, trial_record

_logger = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class MLflowTracker:
    """Opens sessions that record in MLflow.

    Attributes:
        is_background: deliver from a process of its own during the search; otherwise in this process at the end.
        stall_s: when closing, give up after so long without progress, s.
        total_s: when closing, give up after so long, s.
    """

    is_background: bool = True
    stall_s: float = 20.0
    total_s: float = 60.0

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
        work_dir = destination.work_dir
        try:
            work_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"tracking needs the directory '{work_dir}', which cannot be made: {error.strerror}"
            raise InputError(message) from error
        if not os.access(work_dir, os.W_OK):
            message = f"tracking writes to '{work_dir}', which is not writable; go elsewhere or give --no-tracking"
            raise InputError(message)
        return MLflowSession(destination, config.experiment, tracker=self)


@final
class MLflowSession:
    """Journals the events of one search and has them delivered."""

    def __init__(self, destination: Destination, experiment: str, *, tracker: MLflowTracker) -> None:
        """Nothing is written before the first event."""
        self._destination = destination
        self._experiment = experiment
        self._tracker = tracker
        self._started: tuple[SearchStarted, int] | None = None
        self._journal: Journal | None = None
        self._writer: JournalWriter | None = None
        self._courier: Courier | None = None
        self._context: dict[str, str] = {}
        self._logged: set[int] = set()
        self._num_records = 0
        self._delivery: Delivery | None = None

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials."""
        return self._destination.shown

    @property
    def run_id(self) -> str:
        """The parent run's, once the store has given one."""
        return "" if self._journal is None else self._journal.state(self._destination.key).run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        destination = self._destination
        if not destination.is_server:
            is_here = destination.is_default and destination.work_dir == Path.cwd()
            return "phaze-opt ui" if is_here else f"phaze-opt ui --tracking-uri '{destination.shown}'"
        state = None if self._journal is None else self._journal.state(destination.key)
        base = destination.shown.rstrip("/")
        return (
            base if not (state and state.run_id) else f"{base}/#/experiments/{state.experiment_id}/runs/{state.run_id}"
        )

    def observe(self, event: SearchEvent) -> None:
        """Append one event to the journal; a trial that the journal already has (a resumed search) is left out.

        Only the first trial tells whether a search is resumed, so `SearchStarted` is held back until then.

        Raises:
            TrackingError: an event before `SearchStarted`, or after `close`.
            OSError: the journal cannot be written.
        """
        time_ms = round(1000 * time.time())
        if isinstance(event, SearchStarted):
            if self._journal is not None:
                message = f"a session records one search; open another session for {event.search_id}"
                raise TrackingError(message)
            self._started = (event, time_ms)
        elif isinstance(event, TrialFinished):
            self._begin(is_resumed=event.is_resumed)
            if event.number not in self._logged:
                self._append(trial_record(event, context=self._context, time_ms=time_ms))
                self._logged.add(event.number)
        elif isinstance(event, SearchFinished):
            self._begin(is_resumed=False)
            self._append(finished_record(event, time_ms=time_ms))
            if event.best is not None:
                self._log_json("best.json", evaluation_to_json(event.best))

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the journal and record them.

        Raises:
            TrackingError: a name that leaves the run's directory, or an event is missing (see `observe`).
            OSError: a file cannot be read or copied.
        """
        self._begin(is_resumed=False)
        for name, path in files.items():
            relative = PurePosixPath(name)
            if self._journal is None or relative.is_absolute() or ".." in relative.parts:
                message = f"artifact '{name}' must have a relative name and come after the search has started"
                raise TrackingError(message)
            copy = self._journal.artifacts.joinpath(*relative.parts)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.absolute() != copy.absolute():
                shutil.copyfile(path, copy)
            stored = copy.relative_to(self._journal.directory).as_posix()
            self._append({"kind": ARTIFACT, "time_ms": round(1000 * time.time()), "name": name, "path": stored})

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Deliver what is left, within the tracker's limits."""
        if self._delivery is None:
            self._delivery = self._close(on_progress)
        return self._delivery

    def _begin(self, *, is_resumed: bool) -> None:
        """Open the journal for the search announced last, if that has not been done."""
        if self._started is None:
            return
        (event, time_ms), self._started = self._started, None
        work_dir = self._destination.work_dir
        journal = Journal.latest(work_dir, event.search_id) if is_resumed else None
        journal = journal or Journal.begin(work_dir, event.search_id)
        known = JournalReader(journal).read()
        self._logged = {record["number"] for record in known if record.get("kind") == TRIAL}
        self._num_records = len(known)
        self._journal = journal
        self._writer = JournalWriter(journal)
        self._context = {"strategy": event.strategy, "goal": event.goal, "seed": str(event.seed)}
        target = self._destination.key
        self._append(started_record(event, target=target, experiment=self._experiment, time_ms=time_ms))
        self._log_json("config.json", event.config)
        if self._tracker.is_background:
            self._courier = self._hire(journal)

    def _log_json(self, name: str, value: Mapping[str, object]) -> None:
        assert self._journal is not None
        path = self._journal.artifacts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
        self.log_artifacts({name: path})

    def _hire(self, journal: Journal) -> Courier | None:
        try:
            return Courier(self._destination, journal=journal)
        except OSError as error:
            _logger.warning("events wait in %s: no process to deliver them: %s", journal.path, error)
            return None

    def _append(self, record: Record) -> None:
        if self._writer is None or self._delivery is not None:
            message = f"a '{record['kind']}' event came before the search started or after tracking was closed"
            raise TrackingError(message)
        self._writer.append(record)
        self._num_records += 1

    def _close(self, on_progress: DeliveryProgress | None) -> Delivery:
        if self._journal is None or self._writer is None:
            return Delivery()
        self._writer.close()
        journal, key = self._journal, self._destination.key

        def progress() -> int:
            done = journal.state(key).num_acknowledged
            if on_progress is not None:
                on_progress(min(done, self._num_records), self._num_records)
            return done

        if self._courier is not None:
            limits = (self._tracker.stall_s, self._tracker.total_s)
            self._courier.finish(progress=progress, stall_s=limits[0], total_s=limits[1])
        elif not self._tracker.is_background:
            deliver_once(journal, self._destination, on_progress=on_progress)
        return self._tally(journal)

    def _tally(self, journal: Journal) -> Delivery:
        num_records = len(JournalReader(journal).read())
        state = journal.state(self._destination.key)
        done = min(state.num_acknowledged, num_records)
        left = num_records - done
        if not left:
            return Delivery(num_delivered=done)
        trouble = state.reason or "the store did not answer in time"
        reason = (
            f"{left} of {num_records} events are not in {self._destination.shown} yet ({trouble}); they wait in "
            f"{journal.path} and are delivered by the next search or `phaze-opt ui` on the same store"
        )
        return Delivery(num_delivered=done, num_pending=left, reason=reason)
