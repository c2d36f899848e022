"""Writes one search into MLflow through `MlflowClient`: a parent run, a child run per trial, never one twice.

Every write is idempotent: runs are found by the tags `ATTEMPT_TAG`, `ROLE_TAG` and `NUMBER_TAG` before they are made,
metrics carry the time of the event (the store drops exact duplicates), params are written only where absent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from phaze_opt.track.batches import (
    MAX_TAG_LENGTH,
    NOTE_TAG,
    find_experiment,
    find_runs,
    log_batches,
    log_file,
    log_start,
    metric_entities,
    param_entities,
    tag_entities,
)
from phaze_opt.track.best import BestSoFar
from phaze_opt.track.destination import Destination
from phaze_opt.track.journal import Journal, Record
from phaze_opt.track.records import ARTIFACT, FINISHED, STARTED, TRIAL

if TYPE_CHECKING:
    from mlflow import MlflowClient

SEARCH_TAG = "phaze_opt.search_id"
ATTEMPT_TAG = "phaze_opt.attempt"
ROLE_TAG = "phaze_opt.role"
NUMBER_TAG = "phaze_opt.trial"
PARENT_TAG = "mlflow.parentRunId"
ROLE_SEARCH = "search"
ROLE_TRIAL = "trial"


@final
@dataclass(slots=True)
class RunWriter:
    """Writes the records of one journal, in order.

    Attributes:
        client: talks to the store.
        destination: the store.
        journal: where artifacts lie.
        experiment_id, run_id: set once `open_parent` has found or made them.
    """

    client: MlflowClient
    destination: Destination
    journal: Journal
    experiment_id: str = ""
    run_id: str = ""
    _children: dict[int, tuple[str, bool]] = field(default_factory=dict)
    _best: BestSoFar = field(default_factory=BestSoFar)
    _name: str = ""

    def open_parent(self, started: Record) -> bool:
        """Find the search's run, or make it; whether it was there already, with its children."""
        self._name = str(started.get("name", ""))
        self.experiment_id = find_experiment(self.client, str(started["experiment"]), destination=self.destination)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.journal.attempt}' AND tags.`{ROLE_TAG}` = '{ROLE_SEARCH}'"
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            self._children = self._find_children()
            return True
        tags = {**self._identity(started), ROLE_TAG: ROLE_SEARCH}
        run = self.client.create_run(self.experiment_id, started["time_ms"], tags=tags, run_name=self._name)
        self.run_id = run.info.run_id
        return False

    def remember(self, records: Sequence[Record]) -> None:
        """Take note of records that the store already has: best-so-far counts them too."""
        for record in records:
            if record.get("kind") == TRIAL:
                self._best.update(record)

    def write(self, records: Sequence[Record]) -> None:
        """Write records in order: children one by one, the parent's metrics of all of them in one batch."""
        history: list[Any] = []
        for record in records:
            kind = record.get("kind")
            if kind == STARTED:
                log_start(self.client, self.run_id, record)
            elif kind == TRIAL:
                self._write_trial(record)
                self._best.update(record)
                history += metric_entities(self._best.metrics(), record["time_ms"], step=record["number"])
            elif kind == ARTIFACT:
                log_file(self.client, self.run_id, journal=self.journal, record=record)
            elif kind == FINISHED:
                self._log(history)
                history = []
                self._write_finished(record)
        self._log(history)

    def _write_trial(self, record: Record) -> None:
        number = record["number"]
        run_id, is_done = self._children.get(number, ("", False))
        if is_done:
            return
        time_ms = record["time_ms"]
        if not run_id:
            start_ms = time_ms - round(1000 * record["wall_s"])
            tags = {
                **self._identity(record),
                PARENT_TAG: self.run_id,
                ROLE_TAG: ROLE_TRIAL,
                NUMBER_TAG: str(number),
                **{key: str(value)[:MAX_TAG_LENGTH] for key, value in record["tags"].items()},
            }
            name = f"{self._name}-{number:04d}" if self._name else f"trial-{number:04d}"
            run_id = self.client.create_run(self.experiment_id, start_ms, tags=tags, run_name=name).info.run_id
            self._children[number] = (run_id, False)
        metrics = metric_entities(record["metrics"], time_ms, step=number)
        log_batches(self.client, run_id, (metrics, param_entities(record["params"]), []))
        self.client.set_terminated(run_id, "FINISHED", end_time=time_ms)
        self._children[number] = (run_id, True)

    def _write_finished(self, record: Record) -> None:
        tags = {**record["tags"]}
        if "best_architecture" in tags:
            tags[NOTE_TAG] = f"Best design, trial {tags['best_trial']}: {tags['best_architecture']}"
        self._log(metric_entities(record["metrics"], record["time_ms"], step=0), tags=tag_entities(tags))
        status = "KILLED" if record["is_interrupted"] else "FINISHED"
        self.client.set_terminated(self.run_id, status, end_time=record["time_ms"])

    def _identity(self, record: Record) -> dict[str, str]:
        return {
            SEARCH_TAG: str(record["search_id"]),
            ATTEMPT_TAG: self.journal.attempt,
            "mlflow.source.name": "phaze-opt search",
            "mlflow.source.type": "LOCAL",
        }

    def _find_children(self) -> dict[int, tuple[str, bool]]:
        query = f"tags.`{ATTEMPT_TAG}` = '{self.journal.attempt}' AND tags.`{PARENT_TAG}` = '{self.run_id}'"
        runs = find_runs(self.client, self.experiment_id, query)
        return {int(run.data.tags[NUMBER_TAG]): (run.info.run_id, run.info.status == "FINISHED") for run in runs}

    def _log(self, metrics: Sequence[Any], params: Sequence[Any] = (), tags: Sequence[Any] = ()) -> None:
        log_batches(self.client, self.run_id, (metrics, params, tags))
