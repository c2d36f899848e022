"""A proof in MLflow: its events become lines of one journal, and one run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import final

from phaze_opt.certify.result import CertifyProgress
from phaze_opt.errors import TrackingError
from phaze_opt.track.certificate_events import ProofEvent, ProofFinished, ProofMoved, ProofStarted
from phaze_opt.track.certificate_records import (
    PROOF_MOVED,
    proof_finished_record,
    proof_moved_record,
    proof_started_record,
)
from phaze_opt.track.journal import Journal
from phaze_opt.track.outbox import Outbox
from phaze_opt.track.protocol import Delivery, DeliveryProgress

PAUSE_S = 0.5
"""Moves of incumbent or bound that follow each other faster are recorded as one."""


@final
class MLflowCertificateSession:
    """Journals the events of one proof and has them delivered; a resumed proof goes on in its last run."""

    def __init__(self, outbox: Outbox, experiment: str) -> None:
        """Nothing is written before the first event."""
        self._outbox = outbox
        self._experiment = experiment
        self._is_begun = False
        self._num_moves = 0
        self._last: CertifyProgress | None = None
        self._unwritten: CertifyProgress | None = None
        self._written_s = 0.0

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials."""
        return self._outbox.destination.shown

    @property
    def run_id(self) -> str:
        """The run's, once the store has given one."""
        return self._outbox.run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        return self._outbox.url_hint

    def observe_proof(self, event: ProofEvent) -> None:
        """Append one event to the journal; of moves those that change incumbent or bound.

        Raises:
            TrackingError: a second start, an event before the start, or one after `close`.
            OSError: the journal cannot be written.
        """
        time_ms = round(1000 * time.time())
        if isinstance(event, ProofStarted):
            self._begin(event, time_ms)
        elif isinstance(event, ProofMoved):
            self._move(event.progress, time_ms)
        elif isinstance(event, ProofFinished):
            if self._unwritten is not None:
                self._write(self._unwritten, time_ms)
            self._outbox.append(proof_finished_record(event, step=self._num_moves, time_ms=time_ms))

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the journal and record them; see `Outbox.append_files` for errors."""
        self._outbox.append_files(files)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Deliver what is left, within the tracker's limits."""
        return self._outbox.close(on_progress)

    def _begin(self, event: ProofStarted, time_ms: int) -> None:
        if self._is_begun:
            message = f"a session records one proof; open another session for {event.proof_id}"
            raise TrackingError(message)
        self._is_begun = True
        work_dir = self._outbox.destination.work_dir
        journal = Journal.latest(work_dir, event.proof_id) if event.is_resumed else None
        known = self._outbox.begin(journal or Journal.begin(work_dir, event.proof_id))
        self._num_moves = sum(record.get("kind") == PROOF_MOVED for record in known)
        target = self._outbox.destination.key
        self._outbox.append(proof_started_record(event, target=target, experiment=self._experiment, time_ms=time_ms))
        self._outbox.append_json("config.json", event.config)
        self._outbox.hire()

    def _move(self, progress: CertifyProgress, time_ms: int) -> None:
        last = self._last
        if last is not None and (progress.value, progress.value_upper) == (last.value, last.value_upper):
            return
        self._last = self._unwritten = progress
        if last is None or time.monotonic() - self._written_s >= PAUSE_S:
            self._write(progress, time_ms)

    def _write(self, progress: CertifyProgress, time_ms: int) -> None:
        self._outbox.append(proof_moved_record(progress, step=self._num_moves, time_ms=time_ms))
        self._num_moves += 1
        self._written_s = time.monotonic()
        self._unwritten = None
