"""Runs of MLflow: their tags, and a tree of runs that are found by them or made, written within MLflow's limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, final

from phaze_opt.objective.evaluation import THROUGHPUT
from phaze_opt.track.destination import Destination
from phaze_opt.track.pending_delivery import Record

if TYPE_CHECKING:
    from mlflow import MlflowClient

MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 5000
MAX_PARAMS_OR_TAGS = 100
MAX_METRICS = 800
PAGE = 1000


class Tag:
    """Tags of runs by which they are found again, and those that MLflow reads."""

    SEARCH = "phaze_opt.search_id"
    ATTEMPT = "phaze_opt.attempt"
    ROLE = "phaze_opt.role"
    NUMBER = "phaze_opt.trial"
    PARENT = "mlflow.parentRunId"
    CELL = "phaze_opt.cell"
    CONTENDER = "phaze_opt.contender"
    NOTE = "mlflow.note.content"
    """What MLflow shows as the description of a run or an experiment."""


class Role:
    """What a run is of, as its tag `Tag.ROLE`."""

    SEARCH = "search"
    PROOF = "proof"
    TRIAL = "trial"
    STUDY = "study"
    CONTENDER = "strategy"
    CELL = "seed"


EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.experiment.primaryMetric.name": THROUGHPUT,
    "mlflow.experiment.primaryMetric.greaterIsBetter": "True",
    Tag.NOTE: "One run per search with one child run per trial, and one run per proof (certify), written by phaze-opt.",
}
"""The first makes MLflow open its view of runs and charts instead of the one for language-model traces."""


def log_file(client: MlflowClient, run_id: str, *, name: str, path: Path) -> None:
    """Hand a file to the store under a name that may have folders."""
    folder = str(PurePosixPath(name).parent)
    client.log_artifact(run_id, str(path), None if folder == "." else folder)


def find_experiment(
    client: MlflowClient, name: str, *, destination: Destination, tags: Mapping[str, str] = EXPERIMENT_TAGS
) -> str:
    """Identifier of an experiment, made if it is not there (another process may make it first)."""
    found = client.get_experiment_by_name(name)
    if found is None:
        location = None if destination.is_server else destination.artifact_root.as_uri()
        try:
            return str(client.create_experiment(name, artifact_location=location, tags=dict(tags)))
        except Exception:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def find_runs(client: MlflowClient, experiment_id: str, query: str) -> Iterator[Any]:
    """Every run that a query matches, page by page."""
    token: str | None = None
    while True:
        page = client.search_runs([experiment_id], query, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def metric_entities(values: Mapping[str, float], time_ms: int, *, step: int) -> list[Any]:
    """Metrics at one time and step."""
    from mlflow.entities import Metric

    return [Metric(store_key(key), value, time_ms, step) for key, value in values.items()]


def store_key(name: str) -> str:
    """A name with only characters that MLflow allows."""
    return re.sub(r"[^\w./ :-]", "_", name)[:250]


@dataclass(frozen=True, slots=True)
class TrialRun:
    """A trial's run: when it was begun, and whether it has all that it is to have."""

    run_id: str
    start_ms: int
    is_done: bool = False


@final
@dataclass(frozen=True, slots=True)
class RunTree:
    """The runs of one search, proof or study: found by their tags before they are made, so that no run is made twice.

    Attributes:
        client: talks to the store.
        experiment_id: where the runs are.
        attempt: that all of them bear.
        command: that they are named to come from.
        tags: further tags that all bear.
    """

    client: MlflowClient
    experiment_id: str
    attempt: str
    command: str
    tags: Mapping[str, str] = field(default_factory=dict)

    def find(self, tag: str, value: str) -> list[Any]:
        """Runs of the attempt with a tag."""
        query = f"tags.`{Tag.ATTEMPT}` = '{self.attempt}' AND tags.`{tag}` = '{value}'"
        return list(find_runs(self.client, self.experiment_id, query))

    def trials(self, parent: str) -> dict[int, TrialRun]:
        """Runs of trials that the store has below another run, by number."""
        return {
            int(run.data.tags[Tag.NUMBER]): TrialRun(
                run.info.run_id, run.info.start_time, is_done=run.info.status == "FINISHED"
            )
            for run in self.find(Tag.PARENT, parent)
        }

    def create(self, name: str, start_ms: int, tags: Mapping[str, str]) -> str:
        """Make a run."""
        source = {"mlflow.source.name": self.command, "mlflow.source.type": "LOCAL"}
        every = {**self.tags, Tag.ATTEMPT: self.attempt, **source, **tags}
        cut = {key: str(value)[:MAX_TAG_LENGTH] for key, value in every.items()}
        return str(self.client.create_run(self.experiment_id, start_ms, tags=cut, run_name=name).info.run_id)

    def log(
        self,
        run_id: str,
        metrics: Sequence[Any] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Write one run's metrics, params and tags, in as many batches as the store wants."""
        from mlflow.entities import Param, RunTag

        # Cut to what the store takes.
        known = [Param(store_key(key), str(value)[:MAX_PARAM_LENGTH]) for key, value in (params or {}).items()]
        marks = [RunTag(store_key(key), str(value)[:MAX_TAG_LENGTH]) for key, value in (tags or {}).items()]
        size = MAX_PARAMS_OR_TAGS
        rounds = max(-(-len(metrics) // MAX_METRICS), -(-len(known) // size), -(-len(marks) // size))
        for index in range(rounds):
            self.client.log_batch(
                run_id,
                metrics=metrics[index * MAX_METRICS : (index + 1) * MAX_METRICS],
                params=known[index * size : (index + 1) * size],
                tags=marks[index * size : (index + 1) * size],
                synchronous=True,
            )

    def begin(self, run_id: str, record: Record) -> None:
        """Write params and tags of a record that begins a run, or goes on with one.

        Params cannot be written twice: those that differ from what the run began with become tags ``resumed.<name>``.
        """
        known = self.client.get_run(run_id).data
        params = {store_key(key): str(value)[:MAX_PARAM_LENGTH] for key, value in record["params"].items()}
        tags = {f"resumed.{key}": text for key, text in params.items() if known.params.get(key, text) != text}
        if "description" in record and Tag.NOTE not in known.tags:
            tags[Tag.NOTE] = record["description"]
        missing = {key: value for key, value in params.items() if key not in known.params}
        self.log(run_id, params=missing, tags={**record["tags"], **tags})
        self.client.update_run(run_id, status="RUNNING")

    def fill_trial(
        self, record: Record, known: dict[int, TrialRun], *, name: str, start_ms: int, tags: Mapping[str, str]
    ) -> int:
        """Make a trial's run unless it is among the known, and fill it.

        Returns:
            The time of its end, which is yet to be written (`end_trial`).
        """
        number: int = record["number"]
        if number not in known:
            own = {**tags, Tag.ROLE: Role.TRIAL, Tag.NUMBER: str(number), **record["tags"]}
            known[number] = TrialRun(self.create(name, start_ms, own), start_ms)
        run = known[number]
        end_ms: int = run.start_ms + round(1000 * record["wall_s"])
        self.log(run.run_id, metric_entities(record["metrics"], end_ms, step=number), record["params"])
        return end_ms

    def end_trial(self, known: dict[int, TrialRun], number: int, end_ms: int) -> None:
        """A trial's run needs nothing more."""
        self.end(known[number].run_id, end_ms)
        known[number] = replace(known[number], is_done=True)

    def end(self, run_id: str, end_ms: int, *, is_whole: bool = True) -> None:
        """End a run; what was interrupted is shown as killed."""
        self.client.set_terminated(run_id, "FINISHED" if is_whole else "KILLED", end_time=end_ms)
