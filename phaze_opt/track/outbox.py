"""What a session writes: one journal, filled line by line, emptied into the store by a process of its own."""

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
from phaze_opt.track.courier import Courier
from phaze_opt.track.deliver import deliver_once
from phaze_opt.track.destination import Destination
from phaze_opt.track.journal import Journal, JournalReader, JournalWriter, Record
from phaze_opt.track.protocol import Delivery, DeliveryProgress
from phaze_opt.track.records import ARTIFACT

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How delivery is done and waited for.

    Attributes:
        is_background: deliver from a process of its own; otherwise in this process at the end.
        stall_s: when closing, give up after so long without progress, s.
        total_s: when closing, give up after so long, s.
    """

    is_background: bool
    stall_s: float
    total_s: float


def check_writable(work_dir: Path) -> None:
    """See that journals can be written.

    Raises:
        InputError: they cannot.
    """
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"tracking needs the directory '{work_dir}', which cannot be made: {error.strerror}"
        raise InputError(message) from error
    if not os.access(work_dir, os.W_OK):
        message = f"tracking writes to '{work_dir}', which is not writable; go elsewhere or give --no-tracking"
        raise InputError(message)


@final
class Outbox:
    """Journals records and has them delivered; nothing is written before `begin`."""

    def __init__(self, destination: Destination, patience: Patience) -> None:
        """Remember where to."""
        self.destination = destination
        self._patience = patience
        self._journal: Journal | None = None
        self._writer: JournalWriter | None = None
        self._courier: Courier | None = None
        self._num_records = 0
        self._delivery: Delivery | None = None

    @property
    def run_id(self) -> str:
        """The top run's, once the store has given one."""
        return "" if self._journal is None else self._journal.state(self.destination.key).run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        destination = self.destination
        if not destination.is_server:
            is_here = destination.is_default and destination.work_dir == Path.cwd()
            return "phaze-opt ui" if is_here else f"phaze-opt ui --tracking-uri '{destination.shown}'"
        state = None if self._journal is None else self._journal.state(destination.key)
        base = destination.shown.rstrip("/")
        return (
            base if not (state and state.run_id) else f"{base}/#/experiments/{state.experiment_id}/runs/{state.run_id}"
        )

    def begin(self, journal: Journal) -> list[Record]:
        """Open a journal; the records that it holds already."""
        known = JournalReader(journal).read()
        self._num_records = len(known)
        self._journal = journal
        self._writer = JournalWriter(journal)
        return known

    def hire(self) -> None:
        """Start the process that delivers, unless delivery is for the end."""
        assert self._journal is not None
        if not self._patience.is_background or self._courier is not None:
            return
        try:
            self._courier = Courier(self.destination, journal=self._journal)
        except OSError as error:
            _logger.warning("events wait in %s: no process to deliver them: %s", self._journal.path, error)

    def append(self, record: Record) -> None:
        """Write one record.

        Raises:
            TrackingError: nothing was begun, or all is closed.
            OSError: the journal cannot be written.
        """
        if self._writer is None or self._delivery is not None:
            message = f"a '{record['kind']}' event came before the start or after tracking was closed"
            raise TrackingError(message)
        self._writer.append(record)
        self._num_records += 1

    def append_json(self, name: str, value: Mapping[str, object]) -> None:
        """Record a value as a JSON file."""
        assert self._journal is not None
        path = self._journal.artifacts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, default=str) + "\n", encoding="utf-8")
        self.append_files({name: path})

    def append_files(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the journal and record them.

        Raises:
            TrackingError: a name that leaves the run's directory, or nothing was begun.
            OSError: a file cannot be read or copied.
        """
        for name, path in files.items():
            relative = PurePosixPath(name)
            if self._journal is None or relative.is_absolute() or ".." in relative.parts:
                message = f"artifact '{name}' must have a relative name and come after the start"
                raise TrackingError(message)
            copy = self._journal.artifacts.joinpath(*relative.parts)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.absolute() != copy.absolute():
                shutil.copyfile(path, copy)
            stored = copy.relative_to(self._journal.directory).as_posix()
            self.append({"kind": ARTIFACT, "time_ms": round(1000 * time.time()), "name": name, "path": stored})

    def close(self, on_progress: DeliveryProgress | None) -> Delivery:
        """Deliver what is left, within the limits; later calls return the same answer."""
        if self._delivery is None:
            self._delivery = self._close(on_progress)
        return self._delivery

    def _close(self, on_progress: DeliveryProgress | None) -> Delivery:
        if self._journal is None or self._writer is None:
            return Delivery()
        self._writer.close()
        journal, key = self._journal, self.destination.key

        def progress() -> int:
            done = journal.state(key).num_acknowledged
            if on_progress is not None:
                on_progress(min(done, self._num_records), self._num_records)
            return done

        if self._courier is not None:
            patience = self._patience
            self._courier.finish(progress=progress, stall_s=patience.stall_s, total_s=patience.total_s)
        elif not self._patience.is_background:
            deliver_once(journal, self.destination, on_progress=on_progress)
        return self._tally(journal)

    def _tally(self, journal: Journal) -> Delivery:
        num_records = len(JournalReader(journal).read())
        state = journal.state(self.destination.key)
        done = min(state.num_acknowledged, num_records)
        left = num_records - done
        if not left:
            return Delivery(num_delivered=done)
        trouble = state.reason or "the store did not answer in time"
        reason = (
            f"{left} of {num_records} events are not in {self.destination.shown} yet ({trouble}); they wait in "
            f"{journal.path} and are delivered by the next search or `phaze-opt ui` on the same store"
        )
        return Delivery(num_delivered=done, num_pending=left, reason=reason)
