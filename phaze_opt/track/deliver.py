"""Delivery of journals to MLflow, and the process that does it beside a search or a study.

``python -m phaze_opt.track.deliver`` with `DIRECTORY_VARIABLE` set tails one journal until its standard input
ends, so a search never imports MLflow, never waits for it, and cannot be hurt by it. A process that dies half-way
leaves nothing half-known: see `run_writer`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from phaze_opt.track.certificate_records import PROOF_STARTED
from phaze_opt.track.certificate_writer import CertificateWriter
from phaze_opt.track.destination import URI_VARIABLE, Destination
from phaze_opt.track.journal import LOCK_NAME, Journal, JournalReader, Record, TargetState, exclusive, list_journals
from phaze_opt.track.protocol import DeliveryProgress
from phaze_opt.track.quiet import quiet_mlflow
from phaze_opt.track.records import ARTIFACT, STARTED
from phaze_opt.track.run_writer import RunWriter
from phaze_opt.track.study_records import STUDY_STARTED
from phaze_opt.track.study_writer import StudyWriter

if TYPE_CHECKING:
    from mlflow import MlflowClient

DIRECTORY_VARIABLE = "PHAZE_OPT_JOURNAL"
WORK_DIR_VARIABLE = "PHAZE_OPT_WORK_DIR"
STARTS = (STARTED, STUDY_STARTED, PROOF_STARTED)
"""Kinds of the record that says what a journal is about and which store it is for."""
Writer = RunWriter | StudyWriter | CertificateWriter
GROUP = 10
"""Records written between two acknowledgements."""
POLL_S = 0.25
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


def open_client(destination: Destination) -> MlflowClient:
    """A client of the store; a sqlite store is created here by one process at a time, else it is corrupted."""
    from mlflow import MlflowClient

    path = destination.sqlite_path
    if path is None:
        return MlflowClient(tracking_uri=destination.tracking_uri)
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    with exclusive(path.with_name(f"{path.name}.lock"), is_blocking=True):
        if not path.exists():
            _create_sqlite_store(path)
        client = MlflowClient(tracking_uri=destination.tracking_uri)
        client.get_experiment_by_name("Default")
    return client


def _create_sqlite_store(path: Path) -> None:
    """Create a store under another name and move it into place when it is complete.

    MLflow creates its tables step by step and cannot go on from the middle: interrupted there, the store would be
    unusable for ever.
    """
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.absolute().parent) as directory:
        new = Path(directory) / path.name
        MlflowClient(tracking_uri=f"sqlite:///{new}").get_experiment_by_name("Default")
        new.replace(path)


@final
@dataclass(slots=True)
class JournalDelivery:
    """Delivers one journal to one store; after a failure, make a new one."""

    journal: Journal
    destination: Destination
    _reader: JournalReader = field(init=False)
    _pending: list[Record] = field(default_factory=list)
    _past: list[Record] = field(default_factory=list)
    _writer: Writer | None = None

    def __post_init__(self) -> None:
        """Start at the journal's first line: what is acknowledged already is read, not written."""
        self._reader = JournalReader(self.journal)

    def deliver(self, on_progress: DeliveryProgress | None = None) -> None:
        """Write every complete record not yet acknowledged, in groups, acknowledging each.

        Raises:
            Exception: whatever MLflow raises; acknowledged groups stay acknowledged.
        """
        self._read()
        while self._pending:
            if self._writer is None and not self._connect():
                return
            group = self._pending[:GROUP]
            assert self._writer is not None
            self._writer.write(group)
            del self._pending[: len(group)]
            self._acknowledge(len(group))
            self._drop_copies(group)
            if on_progress is not None:
                done = self.journal.state(self.destination.key).num_acknowledged
                on_progress(done, self._reader.num_lines)
            self._read()

    def _read(self) -> None:
        known = self.journal.state(self.destination.key).num_acknowledged
        first = self._reader.num_lines
        for index, record in enumerate(self._reader.read(), start=first):
            (self._past if index < known else self._pending).append(record)

    def _connect(self) -> bool:
        starts = [record for record in (*self._past, *self._pending) if record.get("kind") in STARTS]
        if not starts:
            return False
        kinds: dict[str, type[Writer]] = {STUDY_STARTED: StudyWriter, PROOF_STARTED: CertificateWriter}
        kind = kinds.get(starts[-1]["kind"], RunWriter)
        writer = kind(open_client(self.destination), self.destination, self.journal)
        if not writer.open_parent(starts[-1]):
            # The store does not know this search (new, or its run was deleted): it gets everything.
            self._pending[:0] = self._past
            self._past = []
            self.journal.save_state(self.destination.key, TargetState())
        writer.remember(self._past)
        state = self.journal.state(self.destination.key)
        state = replace(state, run_id=writer.run_id, experiment_id=writer.experiment_id, reason="")
        self.journal.save_state(self.destination.key, state)
        self._writer = writer
        return True

    def _drop_copies(self, group: list[Record]) -> None:
        """Delete the journal's copies of files that the store has now; a page is megabytes."""
        for record in group:
            if record.get("kind") == ARTIFACT:
                (self.journal.directory / record["path"]).unlink(missing_ok=True)

    def _acknowledge(self, count: int) -> None:
        state = self.journal.state(self.destination.key)
        state = replace(state, num_acknowledged=state.num_acknowledged + count, reason="")
        self.journal.save_state(self.destination.key, state)


def deliver_once(
    journal: Journal, destination: Destination, *, on_progress: DeliveryProgress | None = None
) -> TargetState:
    """Deliver what a journal holds for a store now; trouble is noted in the state, not raised."""
    with exclusive(journal.directory / LOCK_NAME, is_blocking=False) as is_held:
        if is_held:
            _attempt(JournalDelivery(journal, destination), on_progress)
    return journal.state(destination.key)


def _attempt(delivery: JournalDelivery, on_progress: DeliveryProgress | None = None) -> bool:
    try:
        with quiet_mlflow():
            delivery.deliver(on_progress)
    except Exception as error:  # the store's trouble, of any kind, is a reason to wait
        key = delivery.destination.key
        with contextlib.suppress(OSError):
            delivery.journal.save_state(key, replace(delivery.journal.state(key), reason=describe_trouble(error)))
        return False
    return True


def describe_trouble(error: Exception) -> str:
    """The first line of an error, short enough for one sentence."""
    whole = str(error)
    if "Max retries exceeded" in whole or "Read timed out" in whole:
        return "no server answers there"
    if "database is locked" in whole:
        return "the database is locked"
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    return f"{type(error).__name__}: {text}"[:200]


def num_pending(journal: Journal, destination: Destination) -> int:
    """Complete records that a store has not acknowledged; 0 if the journal is meant for another store."""
    reader = JournalReader(journal)
    starts = [record for record in reader.read() if record.get("kind") in STARTS]
    if not starts or starts[-1].get("target") != destination.key:
        return 0
    return max(0, reader.num_lines - journal.state(destination.key).num_acknowledged)


def deliver_waiting(destination: Destination, *, except_for: Journal | None = None) -> int:
    """Deliver every journal under the working directory that waits for this store; the records still waiting."""
    left = 0
    for journal in list_journals(destination.work_dir):
        if journal != except_for and num_pending(journal, destination):
            deliver_once(journal, destination)
            left += num_pending(journal, destination)
            if left:
                break  # the store is down: do not wait for it once per journal
    return left


def tail(journal: Journal, destination: Destination, *, ended: threading.Event) -> bool:
    """Deliver a growing journal until ``ended`` is set, then what is left, once; whether all is delivered."""
    with exclusive(journal.directory / LOCK_NAME, is_blocking=True):
        delivery, pause_s = JournalDelivery(journal, destination), FIRST_PAUSE_S
        while True:
            is_closing = ended.is_set()
            is_fine = _attempt(delivery)
            if is_closing:
                return is_fine
            if is_fine:
                pause_s = FIRST_PAUSE_S
                ended.wait(POLL_S)
            elif ended.is_set():
                return False
            else:
                delivery = JournalDelivery(journal, destination)
                ended.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _watch_stdin() -> threading.Event:
    """An event set when standard input ends: the search has closed it, or is no more."""
    ended = threading.Event()

    def watch() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, name="stdin", daemon=True).start()
    return ended


def main() -> int:
    """Entry point of the delivering process; 0 if everything has been delivered."""
    if hasattr(os, "nice"):
        os.nice(5)  # the search comes first
    destination = Destination(os.environ[URI_VARIABLE], Path(os.environ[WORK_DIR_VARIABLE]))
    directory = os.environ.get(DIRECTORY_VARIABLE, "")
    own = Journal(Path(directory)) if directory else None
    if own is not None and not tail(own, destination, ended=_watch_stdin()):
        return 1
    return 1 if deliver_waiting(destination, except_for=own) else 0


if __name__ == "__main__":
    sys.exit(main())
