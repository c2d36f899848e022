"""Writes one search or proof into MLflow: its run, and a child run per trial of a search, never one twice.

Every write is idempotent: runs are found by the tags `ATTEMPT_TAG`, `ROLE_TAG` and `NUMBER_TAG` before they are made.
A child is ended only when the parent has its metrics too, so a child that has ended needs nothing more. One that has
not is written again with the time it was made with: the store drops exact duplicates of metrics.
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
    log_start,
    metric_entities,
    param_entities,
    tag_entities,
)
from phaze_opt.track.certificate_records import PROOF_FINISHED, PROOF_MOVED, PROOF_STARTED
from phaze_opt.track.destination import Destination
from phaze_opt.track.order import Record
from phaze_opt.track.records import FINISHED, STARTED, TRIAL

if TYPE_CHECKING:
    from mlflow import MlflowClient

SEARCH_TAG = "phaze_opt.search_id"
ATTEMPT_TAG = "phaze_opt.attempt"
ROLE_TAG = "phaze_opt.role"
NUMBER_TAG = "phaze_opt.trial"
PARENT_TAG = "mlflow.parentRunId"
ROLE_SEARCH = "search"
ROLE_PROOF = "proof"
ROLE_TRIAL = "trial"
RATES = ("throughput_samples_per_s", "throughput_per_tdp")


@dataclass(frozen=True, slots=True)
class Child:
    """A trial's run: when it was begun, and whether it has all that it is to have."""

    run_id: str
    start_ms: int
    is_done: bool


def find_children(client: MlflowClient, experiment_id: str, attempt: str, *, parent: str) -> dict[int, Child]:
    """Runs of trials that a store has below another run, by number."""
    query = f"tags.`{ATTEMPT_TAG}` = '{attempt}' AND tags.`{PARENT_TAG}` = '{parent}'"
    return {
        int(run.data.tags[NUMBER_TAG]): Child(run.info.run_id, run.info.start_time, run.info.status == "FINISHED")
        for run in find_runs(client, experiment_id, query)
    }


@final
@dataclass(slots=True)
class BestSoFar:
    """Running maxima over the trials seen, in the order they are given; a trial given twice counts once."""

    _best: dict[str, float] = field(default_factory=dict)
    _last: dict[str, float] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)
    _feasible: set[int] = field(default_factory=set)

    def update(self, record: Record) -> None:
        """Count one trial record."""
        number = record["number"]
        self._seen.add(number)
        metrics = record["metrics"]
        self._last = {name: metrics[name] for name in RATES if name in metrics}
        if self._last:
            self._feasible.add(number)
        for name, value in self._last.items():
            self._best[name] = max(value, self._best.get(name, value))

    def metrics(self) -> dict[str, float]:
        """``best_*`` so far, the ``trial_*`` just counted if it is feasible, and the number of feasible trials."""
        return {
            **{f"best_{name}": value for name, value in self._best.items()},
            **{f"trial_{name}": value for name, value in self._last.items()},
            "num_trials_finished": float(len(self._seen)),
            "num_trials_feasible": float(len(self._feasible)),
        }


@final
@dataclass(slots=True)
class RunWriter:
    """Writes the records of one search or proof, in order.

    Attributes:
        client: talks to the store.
        destination: the store.
        attempt: names the run.
        experiment_id, run_id: set once `open_parent` has found or made them.
    """

    client: MlflowClient
    destination: Destination
    attempt: str
    experiment_id: str = ""
    run_id: str = ""
    _children: dict[int, Child] = field(default_factory=dict)
    _best: BestSoFar = field(default_factory=BestSoFar)
    _name: str = ""

    def open_parent(self, started: Record) -> None:
        """Find the run with its children, or make it."""
        self._name = str(started.get("name", ""))
        role = ROLE_PROOF if started["kind"] == PROOF_STARTED else ROLE_SEARCH
        self.experiment_id = find_experiment(self.client, str(started["experiment"]), destination=self.destination)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.attempt}' AND tags.`{ROLE_TAG}` = '{role}'"
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            self._children = find_children(self.client, self.experiment_id, self.attempt, parent=self.run_id)
            return
        tags = {**self._identity(started), ROLE_TAG: role}
        run = self.client.create_run(self.experiment_id, started["time_ms"], tags=tags, run_name=self._name)
        self.run_id = run.info.run_id

    def write(self, records: Sequence[Record]) -> None:
        """Write records in order; the parent gets the metrics of all trials in one batch."""
        self._write_trials([record for record in records if record.get("kind") == TRIAL])
        for record in records:
            kind = record.get("kind")
            if kind in (STARTED, PROOF_STARTED):
                log_start(self.client, self.run_id, record)
            elif kind == PROOF_MOVED:
                self._log(metric_entities(record["metrics"], record["time_ms"], step=record["step"]))
            elif kind in (FINISHED, PROOF_FINISHED):
                self._write_finished(record)

    def _write_trials(self, records: Sequence[Record]) -> None:
        """Write children, then what the parent shows of them, then their ends."""
        history: list[Any] = []
        ends: dict[int, int] = {}
        for record in records:
            self._best.update(record)
            number = record["number"]
            if number in self._children and self._children[number].is_done:
                continue
            ends[number] = self._write_child(record)
            history += metric_entities(self._best.metrics(), ends[number], step=number)
        self._log(history)
        for number, end_ms in ends.items():
            child = self._children[number]
            self.client.set_terminated(child.run_id, "FINISHED", end_time=end_ms)
            self._children[number] = Child(child.run_id, child.start_ms, is_done=True)

    def _write_child(self, record: Record) -> int:
        """Make a trial's run and fill it; the time of its end."""
        number: int = record["number"]
        took_ms: int = round(1000 * record["wall_s"])
        if number not in self._children:
            start_ms = record["time_ms"] - took_ms
            tags = {
                **self._identity(record),
                PARENT_TAG: self.run_id,
                ROLE_TAG: ROLE_TRIAL,
                NUMBER_TAG: str(number),
                **{key: str(value)[:MAX_TAG_LENGTH] for key, value in record["tags"].items()},
            }
            name = f"{self._name}-{number:04d}" if self._name else f"trial-{number:04d}"
            run = self.client.create_run(self.experiment_id, start_ms, tags=tags, run_name=name)
            self._children[number] = Child(run.info.run_id, start_ms, is_done=False)
        child = self._children[number]
        metrics = metric_entities(record["metrics"], child.start_ms + took_ms, step=number)
        log_batches(self.client, child.run_id, (metrics, param_entities(record["params"]), []))
        return child.start_ms + took_ms

    def _write_finished(self, record: Record) -> None:
        tags = {**record["tags"]}
        if "statement" in tags:
            tags[NOTE_TAG] = tags.pop("statement")
        elif "best_trial" in tags:
            tags[NOTE_TAG] = f"Best design, trial {tags['best_trial']}: {tags['best_architecture']}"
        self._log(
            metric_entities(record["metrics"], record["time_ms"], step=record.get("step", 0)), tags=tag_entities(tags)
        )
        status = "KILLED" if record["is_interrupted"] else "FINISHED"
        self.client.set_terminated(self.run_id, status, end_time=record["time_ms"])

    def _identity(self, record: Record) -> dict[str, str]:
        of_search = {SEARCH_TAG: str(record["search_id"])} if "search_id" in record else {}
        command = "phaze-opt search" if of_search else "phaze-opt certify"
        source = {"mlflow.source.name": command, "mlflow.source.type": "LOCAL"}
        return {**of_search, ATTEMPT_TAG: self.attempt, **source}

    def _log(self, metrics: Sequence[Any], params: Sequence[Any] = (), tags: Sequence[Any] = ()) -> None:
        log_batches(self.client, self.run_id, (metrics, params, tags))
