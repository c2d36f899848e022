"""A study in MLflow: its events become lines of one journal; a cell is written whole, trial by trial."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

from phaze_opt.errors import TrackingError
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.track.journal import Journal, JournalReader, Record
from phaze_opt.track.outbox import Outbox
from phaze_opt.track.protocol import Delivery, DeliveryProgress, TrialRuns
from phaze_opt.track.study_records import (
    CELL,
    CELL_FINISHED,
    CELL_TRIAL,
    STUDY_FINISHED,
    STUDY_STARTED,
    cell_finished_record,
    cell_record,
    cell_trial_record,
    granted,
    study_finished_record,
    study_started_record,
    wanted_trials,
)


@final
class MLflowStudySession:
    """Journals the events of one study and has them delivered; what the journal holds already is not written again."""

    def __init__(self, outbox: Outbox, experiment: str, trials: TrialRuns) -> None:
        """Nothing is written before the first event; an empty experiment means the study's name."""
        self._outbox = outbox
        self._experiment = experiment
        self._trials = trials
        self._started: tuple[StudyStarted, int] | None = None
        self._is_begun = False
        self._budget = ""
        self._cells: set[str] = set()
        self._finished: set[str] = set()
        self._logged: set[tuple[str, int]] = set()
        self._contenders: dict[str, str] = {}
        self._last: Record = {}
        self._is_judged = False

    @property
    def tracking_uri(self) -> str:
        """The store, without credentials."""
        return self._outbox.destination.shown

    @property
    def run_id(self) -> str:
        """The study run's, once the store has given one."""
        return self._outbox.run_id

    @property
    def url_hint(self) -> str:
        """``phaze-opt ui ...`` for a database, the run's address for a server."""
        return self._outbox.url_hint

    def observe_study(self, event: StudyEvent) -> None:
        """Append what is new in one event to the journal; only the first search tells whether a study is resumed.

        Raises:
            TrackingError: an event before `StudyStarted`, of another study, or after `close`.
            OSError: the journal cannot be written.
        """
        time_ms = round(1000 * time.time())
        if isinstance(event, StudyStarted):
            self._announce(event, time_ms)
            return
        study_id = "" if self._started is None else self._started[0].study_id
        if event.study_id != study_id:
            message = f"a session records one study, '{study_id}'; got an event of '{event.study_id}'"
            raise TrackingError(message)
        self._begin(event if isinstance(event, CellFinished) else None)
        if isinstance(event, CellFinished):
            self._add_cell(event, time_ms)
        else:
            self._finish(event, time_ms)

    def log_artifacts(self, files: Mapping[str, Path]) -> None:
        """Copy files beside the journal and record them; see `Outbox.append_files` for errors."""
        self._begin(None)
        self._outbox.append_files(files)

    def close(self, on_progress: DeliveryProgress | None = None) -> Delivery:
        """Deliver what is left, within the tracker's limits."""
        return self._outbox.close(on_progress)

    def _announce(self, event: StudyStarted, time_ms: int) -> None:
        if self._started is not None:
            message = f"a session records one study; open another session for '{event.study_id}'"
            raise TrackingError(message)
        self._started = (event, time_ms)
        self._budget = granted(event.config)

    def _begin(self, first: CellFinished | None) -> None:
        """Open the journal, once.

        The study's last journal goes on unless it holds another outcome of the first search told of: then the study was
        begun afresh, and is a run of its own.
        """
        if self._started is None or self._is_begun:
            return
        self._is_begun = True
        event, time_ms = self._started
        work_dir = self._outbox.destination.work_dir
        journal = Journal.latest(work_dir, event.study_id)
        if journal is None or (first is not None and _is_other(JournalReader(journal).read(), first)):
            journal = Journal.begin(work_dir, event.study_id)
        known = self._outbox.begin(journal)
        self._remember(known)
        target = self._outbox.destination.key
        record = study_started_record(event, target=target, experiment=self._experiment, time_ms=time_ms)
        starts = [item for item in known if item.get("kind") == STUDY_STARTED]
        if not (self._last.get("kind") == STUDY_FINISHED and self._is_judged and _is_same(starts[-1], record)):
            self._append(record)
            self._outbox.append_json("study.json", event.config)
        self._outbox.hire()

    def _remember(self, known: list[Record]) -> None:
        kinds = (STUDY_STARTED, CELL, CELL_TRIAL, CELL_FINISHED, STUDY_FINISHED)
        for record in known:
            kind = record.get("kind")
            if kind in kinds:
                self._last = record
            if kind == CELL:
                self._cells.add(record["key"])
            elif kind == CELL_TRIAL:
                self._logged.add((record["key"], record["number"]))
            elif kind == CELL_FINISHED:
                self._finished.add(record["key"])
            elif kind == STUDY_FINISHED:
                self._is_judged |= record["is_complete"]

    def _add_cell(self, event: CellFinished, time_ms: int) -> None:
        key, budget = event.result.cell.key, self._budget
        self._contenders[key] = event.result.cell.contender.name
        if key not in self._cells:
            self._append(cell_record(event, budget=budget, index=len(self._cells), time_ms=time_ms))
            self._cells.add(key)
        for trial in wanted_trials(event, is_best_only=self._trials is TrialRuns.BEST):
            if (key, trial.number) not in self._logged:
                self._append(cell_trial_record(event, trial, budget=budget, time_ms=time_ms))
                self._logged.add((key, trial.number))
        if key not in self._finished:
            self._append(cell_finished_record(event, time_ms=time_ms))
            self._finished.add(key)

    def _finish(self, event: StudyFinished, time_ms: int) -> None:
        """Record the judgement; curves once, when every search is there: a store cannot replace points."""
        is_first = event.is_complete and not self._is_judged
        record = study_finished_record(event, self._contenders, has_curves=is_first, time_ms=time_ms)
        if not _is_same(self._last, record):
            self._append(record)
            self._is_judged |= event.is_complete

    def _append(self, record: Record) -> None:
        self._outbox.append(record)
        self._last = record


def _is_same(first: Record, second: Record) -> bool:
    """Whether two records say the same, curves and time apart (as JSON, where tuples are lists)."""

    def rest(record: Record) -> str:
        same = {**record, "time_ms": 0, "cell_curves": {}, "contender_curves": {}}
        return json.dumps(same, sort_keys=True, default=str)

    return rest(first) == rest(second)


def _is_other(known: Sequence[Record], event: CellFinished) -> bool:
    """Whether a journal holds a finished search of the same key that was charged another time."""
    key, charged_s = event.result.cell.key, event.result.charged_s
    found = [item for item in known if item.get("kind") == CELL_FINISHED and item["key"] == key]
    return bool(found) and found[-1]["charged_s"] != charged_s
