"""MLflow: a run per search (or study, strategy and seed) and a child run per trial, delivered from the records on disk.

A session writes down what the record of a search, study or proof does not say itself (`track.pending_delivery`) and
nothing else. A process of its own (`track.deliver`) follows the record and writes to the store while the search goes
on; what the store does not take is taken from the record later.
"""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import final

from phaze_opt.certify import events
from phaze_opt.certify.result import ProofMove
from phaze_opt.errors import InputError, TrackingError
from phaze_opt.objective.evaluation import evaluation_to_json
from phaze_opt.record.address import HIDDEN
from phaze_opt.record.input_files import shorten_path
from phaze_opt.record.journal import Journal, open_journal
from phaze_opt.record.lock import check_locks
from phaze_opt.record.whole_file import put_aside, replace_file, replacing
from phaze_opt.search.events import SearchEvent, SearchFinished, SearchStarted, TrialFinished
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.track import protocol, records
from phaze_opt.track.deliver import FIRST_ANSWER_S, DeliveryProcess, follow, open_clock
from phaze_opt.track.destination import Destination, resolve_destination
from phaze_opt.track.pending_delivery import DeliveryState, Order, OrderFile, Record, new_attempt, runs_directory
from phaze_opt.track.sources import count_lines, count_parts, count_pending, num_pending

_logger = logging.getLogger(__name__)
PAUSE_S = 0.5
"""Moves of incumbent or bound that follow each other faster are recorded as one."""


@final
@dataclass(frozen=True, slots=True)
class MLflowTracker:
    """Opens sessions that record in MLflow.

    Attributes:
        is_background: deliver from a process of its own during the search; otherwise in this process at the end.
        total_s: when closing a search, give up after so long, s.
        study_total_s: when closing a study, which may have thousands of trials to deliver, s.
        first_answer_s: give up a server or database that has not answered by then, s.
    """

    is_background: bool = True
    total_s: float = 60.0
    study_total_s: float = 600.0
    first_answer_s: float = FIRST_ANSWER_S

    @property
    def name(self) -> str:
        """``mlflow``."""
        return "mlflow"

    def open(self, config: protocol.TrackerConfig) -> "MLflowSession":
        """A session for a search or a proof; the store is not touched yet.

        Raises:
            InputError: unusable address or experiment, or a working directory that cannot be written.
        """
        destination = resolve_destination(config)
        check_writable(destination)
        return MLflowSession(destination, config.experiment, config.trials, self)

    open_certificate = open

    def open_study(self, config: protocol.TrackerConfig) -> "MLflowSession":
        """A session for a study, whose experiment bears its name unless one is given.

        Raises:
            InputError: as in `open`.
        """
        experiment = config.experiment.strip() or protocol.DEFAULT_EXPERIMENT
        destination = resolve_destination(replace(config, experiment=experiment))
        check_writable(destination)
        own_name = "" if experiment == protocol.DEFAULT_EXPERIMENT else experiment
        return MLflowSession(destination, own_name, config.trials, replace(self, total_s=self.study_total_s))


def check_writable(destination: Destination) -> None:
    """See that orders can be written, and a store in a file.

    Raises:
        InputError: they cannot.
    """
    work_dir, path = destination.work_dir, destination.sqlite_path
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"tracking needs the directory '{work_dir}', which cannot be made: {error.strerror}"
        raise InputError(message) from error
    if not os.access(work_dir, os.W_OK):
        message = f"tracking writes to '{work_dir}', which is not writable; go elsewhere or give --no-tracking"
        raise InputError(message)
    if path is not None:
        check_locks(path.parent)


@final
class MLflowSession:
    """Has one search, study or proof delivered from its record."""

    def __init__(
        self, destination: Destination, experiment: str, trials: protocol.TrialRuns, patience: MLflowTracker
    ) -> None:
        """Nothing is written before the first event; of a study an empty experiment means its name."""
        self._destination = destination
        self._experiment = experiment
        self._trials = trials
        self._patience = patience
        self._place: OrderFile | None = None
        self._order: Order | None = None
        self._earlier: Order | None = None
        self._process: DeliveryProcess | None = None
        self._delivery: protocol.Delivery | None = None
        self._contenders: dict[str, str] = {}
        self._curve: ProofCurve | None = None

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials."""
        return self._destination.shown

    @property
    def run_id(self) -> str:
        """The top run's, once the store has given one."""
        return self._state.run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        if not self._destination.is_server:
            return self._destination.ui_command
        base, state = self._destination.shown.replace(f"{HIDDEN}@", "").rstrip("/"), self._state
        return base if not state.run_id else f"{base}/#/experiments/{state.experiment_id}/runs/{state.run_id}"

    def observe(self, event: SearchEvent | StudyEvent | events.ProofEvent) -> None:
        """Take note of a start, an end and the moves of a proof; trials and searches are in the record itself.

        Raises:
            TrackingError: an event before the start, after `close` or of another study; a start without a directory.
            InputError: the order cannot be written.
            OSError: a proof's moves cannot be written.
        """
        time_ms = round(1000 * time.time())
        match event:
            case SearchStarted():
                self._begin(event.search_id, event.directory, event, is_resumed=event.is_resumed)
            case StudyStarted():
                self._begin(event.study_id, event.directory, event, is_resumed=True)
            case events.ProofStarted():
                directory = runs_directory(self._destination.work_dir, event.proof_id)
                self._begin(event.proof_id, directory, event, is_resumed=event.is_resumed)
            case SearchFinished():
                self._finish(records.finished_record(event, time_ms=time_ms))
                if event.best is not None:
                    self._log_json("best.json", evaluation_to_json(event.best))
            case CellFinished():
                self._check_study(event.study_id)
                self._contenders[event.result.cell.key] = event.result.cell.contender.name
            case StudyFinished():
                self._check_study(event.study_id)
                self._finish(records.study_finished_record(event, self._contenders, time_ms=time_ms))
            case events.ProofMoved() if self._curve is not None:
                self._curve.move(event.progress, time_ms)
            case events.ProofFinished() if self._curve is not None:
                self._curve.close(time_ms)
                self._finish(records.proof_finished_record(event, step=self._curve.num_moves, time_ms=time_ms))
            case _:
                self._check_open("trial" if isinstance(event, TrialFinished) else "proof")

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the order, where they wait for the store.

        Raises:
            TrackingError: a name that leaves the run's directory, or nothing was begun.
            OSError: a file cannot be read.
            InputError: it cannot be copied.
        """
        for name, path in files.items():
            relative = PurePosixPath(name)
            if self._place is None or relative.is_absolute() or ".." in relative.parts:
                message = f"artifact '{name}' must have a relative name and come after the start"
                raise TrackingError(message)
            # A copy under its name is whole: the process of delivery takes whatever it finds.
            with path.open("rb") as source, replacing(self._place.files.joinpath(*relative.parts)) as copy:
                shutil.copyfileobj(source, copy)

    def close(self) -> protocol.Delivery:
        """Deliver what is left, within the tracker's limits; later calls return the same answer."""
        if self._delivery is None:
            self._delivery = self._close()
        return self._delivery

    @property
    def _state(self) -> DeliveryState:
        if self._place is None or self._order is None:
            return DeliveryState()
        return self._place.state(self._order)

    def _check_study(self, study_id: str) -> None:
        known = "" if self._order is None else self._order.started["study_id"]
        if study_id != known:
            message = f"a session records one study, '{known}'; got an event of '{study_id}'"
            raise TrackingError(message)

    def _begin(
        self,
        identity: str,
        directory: Path | None,
        event: SearchStarted | StudyStarted | events.ProofStarted,
        *,
        is_resumed: bool,
    ) -> None:
        """Write the order and have it delivered; a record that goes on keeps its attempt.

        Of a search or study that begins anew the last record was put aside already.
        """
        if self._place is not None:
            message = f"a session records one thing; open another session for '{identity}'"
            raise TrackingError(message)
        if directory is None:
            message = f"'{identity}' names no directory of its record, which MLflow is to be told from"
            raise TrackingError(message)
        place = OrderFile(directory)
        if not place.is_own:
            message = "is a link to another folder, or tracking-files in it is; remove the link"
            raise InputError(message, source=shorten_path(directory))
        where = {"target": self._destination.shown, "experiment": self._experiment}
        started = records.started_record(event, **where, time_ms=round(1000 * time.time()))
        if isinstance(event, events.ProofStarted):
            if not is_resumed and place.path.exists():
                put_aside(directory)
            self._curve = ProofCurve(place.moves, is_fresh=not is_resumed)
        earlier = place.read()
        if earlier is not None:
            is_same = earlier.trials == self._trials.value and _is_same(earlier.started, started)
            started = earlier.started if is_same else started
            order = replace(earlier, started=started, finished={}, trials=self._trials.value)
        else:
            num_earlier = count_parts(place, started) if is_resumed else 0
            order = Order(new_attempt(), started, trials=self._trials.value, num_earlier=num_earlier)
        self._order, self._earlier, self._place = order, earlier, place
        place.write(order)
        if earlier is None or earlier.started is not started:
            self._log_json("study.json" if "study_id" in started else "config.json", event.config)
        if self._patience.is_background:
            self._hire()

    def _finish(self, finished: Record) -> None:
        """Add the end to the order; one that says what an earlier one said keeps its time."""
        self._check_open(finished["kind"])
        assert self._place is not None
        assert self._order is not None
        earlier = self._earlier
        if earlier is not None and earlier.finished and _is_same(earlier.finished, finished):
            finished = earlier.finished
        self._order = replace(self._order, finished=finished)
        self._place.write(self._order)

    def _check_open(self, kind: str) -> None:
        if self._place is None or self._delivery is not None:
            message = f"a '{kind}' event came before the start or after tracking was closed"
            raise TrackingError(message)

    def _log_json(self, name: str, value: Mapping[str, object]) -> None:
        assert self._place is not None
        replace_file(self._place.files / name, json.dumps(value, indent=2, default=str) + "\n")

    def _hire(self) -> None:
        """Start the process that delivers."""
        assert self._place is not None
        try:
            self._process = DeliveryProcess(
                self._destination,
                place=self._place,
                first_answer_s=self._patience.first_answer_s,
                on_failure=lambda: _logger.warning("tracking: %s", self._describe_waiting("goes on untracked and is")),
            )
        except OSError as error:
            _logger.warning("tracking waits in %s: no process to deliver it: %s", self._place.directory, error)

    def _close(self) -> protocol.Delivery:
        if self._place is None or self._order is None:
            return protocol.Delivery()
        if self._curve is not None:
            self._curve.close(round(1000 * time.time()))
        if not self._patience.is_background:
            ended = threading.Event()
            ended.set()
            follow(self._place, self._destination, ended=ended, clock=open_clock(self._destination))
        elif self._process is not None:
            self._process.finish(self._patience.total_s)
        left = num_pending(self._place, self._destination.shown)
        if not left:
            self._place.remove_folders()
        waiting = max(left, count_pending(self._destination, on_broken=_logger.warning))
        reason = self._describe_waiting("is", is_own=left > 0, has_others=waiting > left) if waiting else ""
        return protocol.Delivery(self._state.num_done, waiting, reason)

    def _describe_waiting(self, how: str, *, is_own: bool = True, has_others: bool = False) -> str:
        """One sentence on what waits, why, and how it will be delivered.

        Args:
            how: ``is``, with what it means for a search that goes on.
            is_own: whether something of this record waits.
            has_others: whether something of earlier records does.
        """
        assert self._place is not None
        state, destination = self._state, self._destination
        recorded = "the rest of what is recorded" if state.num_done else "what is recorded"
        what = ", and ".join([recorded] * is_own + ["what earlier commands recorded"] * has_others)
        reason = state.reason or ("the store is slow" if state.run_id else "the store did not answer in time")
        where = destination.work_dir if has_others else self._place.directory
        return (
            f"{what}{',' * (is_own and has_others)} {how} not in {destination.shown} yet ({reason}); "
            f"it is kept in {where}, and the next search here or `{destination.ui_command}` delivers it"
        )


@final
class ProofCurve:
    """The moves of a proof on disk, where no other file of it says them."""

    def __init__(self, path: Path, *, is_fresh: bool) -> None:
        """Open the journal of moves.

        Raises:
            OSError: it cannot be written.
        """
        self._writer: Journal = open_journal(path, is_fresh=is_fresh)
        self.num_moves = 0 if is_fresh else count_lines(path)
        self._last: ProofMove | None = None
        self._unwritten: ProofMove | None = None
        self._written_s = 0.0

    def move(self, progress: ProofMove, time_ms: int) -> None:
        """Write a move if it changes incumbent or bound, and if the last one is some time ago."""
        last = self._last
        if last is not None and (progress.value, progress.value_upper) == (last.value, last.value_upper):
            return
        self._last = self._unwritten = progress
        if last is None or time.monotonic() - self._written_s >= PAUSE_S:
            self._write(progress, time_ms)

    def close(self, time_ms: int) -> None:
        """Write the last move, and close."""
        if self._unwritten is not None:
            self._write(self._unwritten, time_ms)
        self._writer.close()

    def _write(self, progress: ProofMove, time_ms: int) -> None:
        self._writer.append(records.proof_moved_record(progress, step=self.num_moves, time_ms=time_ms))
        self.num_moves += 1
        self._written_s = time.monotonic()
        self._unwritten = None


def _is_same(first: Record, second: Record) -> bool:
    """Whether two records say the same, time apart (as JSON, where tuples are lists)."""
    one, other = (json.dumps({**record, "time_ms": 0}, sort_keys=True, default=str) for record in (first, second))
    return one == other
