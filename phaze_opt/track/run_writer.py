"""Writes one search into MLflow through `MlflowClient`: a parent run, a child run per trial, never one twice.

Every write is idempotent: runs are found by the tags `ATTEMPT_TAG`, `ROLE_TAG` and `NUMBER_TAG` before they are made,
metrics carry the time of the event (the store drops exact duplicates), params are written only where absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, final

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
EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.experiment.primaryMetric.name": "throughput_samples_per_s",
    "mlflow.experiment.primaryMetric.greaterIsBetter": "True",
    "mlflow.note.content": "One run per search, one child run per trial, written by phaze-opt.",
}
"""The first makes MLflow open its view of runs and charts instead of the one for language-model traces."""
MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 5000
MAX_PARAMS_OR_TAGS = 100
MAX_METRICS = 800
PAGE = 1000
Batch = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]


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
        self.experiment_id = find_experiment(self.client, str(started["experiment"]), self.destination)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.journal.attempt}' AND tags.`{ROLE_TAG}` = '{ROLE_SEARCH}'"
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            self._children = dict(self._find_children())
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
                self._write_started(record)
            elif kind == TRIAL:
                self._write_trial(record)
                self._best.update(record)
                history += _metrics(self._best.metrics(), record["time_ms"], step=record["number"])
            elif kind == ARTIFACT:
                self._write_artifact(record)
            elif kind == FINISHED:
                self._log(self.run_id, (history, [], []))
                history = []
                self._write_finished(record)
        self._log(self.run_id, (history, [], []))

    def _write_started(self, record: Record) -> None:
        known = self.client.get_run(self.run_id).data.params
        params = {_key(key): str(value)[:MAX_PARAM_LENGTH] for key, value in record["params"].items()}
        changed = {f"resumed.{key}": value for key, value in params.items() if known.get(key, value) != value}
        missing = {key: value for key, value in params.items() if key not in known}
        self._log(self.run_id, ([], _params(missing), _tags({**record["tags"], **changed})))
        self.client.update_run(self.run_id, status="RUNNING")

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
        self._log(run_id, (_metrics(record["metrics"], time_ms, step=number), _params(record["params"]), []))
        self.client.set_terminated(run_id, "FINISHED", end_time=time_ms)
        self._children[number] = (run_id, True)

    def _write_artifact(self, record: Record) -> None:
        path = self.journal.directory / record["path"]
        if path.is_file():
            folder = str(PurePosixPath(record["name"]).parent)
            self.client.log_artifact(self.run_id, str(path), None if folder == "." else folder)

    def _write_finished(self, record: Record) -> None:
        tags = {**record["tags"]}
        if "best_architecture" in tags:
            tags["mlflow.note.content"] = f"Best design, trial {tags['best_trial']}: {tags['best_architecture']}"
        self._log(self.run_id, (_metrics(record["metrics"], record["time_ms"], step=0), [], _tags(tags)))
        status = "KILLED" if record["is_interrupted"] else "FINISHED"
        self.client.set_terminated(self.run_id, status, end_time=record["time_ms"])

    def _identity(self, record: Record) -> dict[str, str]:
        return {
            SEARCH_TAG: str(record["search_id"]),
            ATTEMPT_TAG: self.journal.attempt,
            "mlflow.source.name": "phaze-opt search",
            "mlflow.source.type": "LOCAL",
        }

    def _find_children(self) -> Iterator[tuple[int, tuple[str, bool]]]:
        query = f"tags.`{ATTEMPT_TAG}` = '{self.journal.attempt}' AND tags.`{PARENT_TAG}` = '{self.run_id}'"
        token: str | None = None
        while True:
            page = self.client.search_runs([self.experiment_id], query, max_results=PAGE, page_token=token)
            for run in page:
                yield int(run.data.tags[NUMBER_TAG]), (run.info.run_id, run.info.status == "FINISHED")
            token = page.token
            if not token:
                return

    def _log(self, run_id: str, batch: Batch) -> None:
        metrics, params, tags = batch
        size = MAX_PARAMS_OR_TAGS
        rounds = max(-(-len(metrics) // MAX_METRICS), -(-len(params) // size), -(-len(tags) // size))
        for index in range(rounds):
            self.client.log_batch(
                run_id,
                metrics=metrics[index * MAX_METRICS : (index + 1) * MAX_METRICS],
                params=params[index * size : (index + 1) * size],
                tags=tags[index * size : (index + 1) * size],
                synchronous=True,
            )


def find_experiment(client: MlflowClient, name: str, destination: Destination) -> str:
    """Identifier of an experiment, made if it is not there (another process may make it first)."""
    found = client.get_experiment_by_name(name)
    if found is None:
        location = None if destination.is_server else destination.artifact_root.as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=EXPERIMENT_TAGS))
        except Exception:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _metrics(values: Mapping[str, float], time_ms: int, *, step: int) -> list[Any]:
    from mlflow.entities import Metric

    return [Metric(_key(key), value, time_ms, step) for key, value in values.items()]


def _params(values: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(_key(key), str(value)[:MAX_PARAM_LENGTH]) for key, value in values.items()]


def _tags(values: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(_key(key), str(value)[:MAX_TAG_LENGTH]) for key, value in values.items()]


def _key(name: str) -> str:
    """A name with only characters that MLflow allows."""
    return re.sub(r"[^\w./ :-]", "_", name)[:250]
