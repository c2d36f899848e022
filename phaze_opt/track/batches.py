"""MLflow's entities and limits: metrics, params and tags of one run, in as many batches as the store wants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from phaze_opt.track.destination import Destination
from phaze_opt.track.order import Record

if TYPE_CHECKING:
    from mlflow import MlflowClient

MAX_PARAM_LENGTH = 6000
MAX_TAG_LENGTH = 5000
MAX_PARAMS_OR_TAGS = 100
MAX_METRICS = 800
PAGE = 1000
NOTE_TAG = "mlflow.note.content"
"""What MLflow shows as the description of a run or an experiment."""
EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.experiment.primaryMetric.name": "throughput_samples_per_s",
    "mlflow.experiment.primaryMetric.greaterIsBetter": "True",
    NOTE_TAG: "One run per search with one child run per trial, and one run per proof (certify), written by phaze-opt.",
}
"""The first makes MLflow open its view of runs and charts instead of the one for language-model traces."""
Batch = tuple[Sequence[Any], Sequence[Any], Sequence[Any]]
"""Metrics, params and tags."""


def log_batches(client: MlflowClient, run_id: str, batch: Batch) -> None:
    """Write one run's metrics, params and tags."""
    metrics, params, tags = batch
    size = MAX_PARAMS_OR_TAGS
    rounds = max(-(-len(metrics) // MAX_METRICS), -(-len(params) // size), -(-len(tags) // size))
    for index in range(rounds):
        client.log_batch(
            run_id,
            metrics=metrics[index * MAX_METRICS : (index + 1) * MAX_METRICS],
            params=params[index * size : (index + 1) * size],
            tags=tags[index * size : (index + 1) * size],
            synchronous=True,
        )


def log_file(client: MlflowClient, run_id: str, *, name: str, path: Path) -> None:
    """Hand a file to the store under a name that may have folders."""
    folder = str(PurePosixPath(name).parent)
    client.log_artifact(run_id, str(path), None if folder == "." else folder)


def log_start(client: MlflowClient, run_id: str, record: Record) -> None:
    """Write params and tags of a record that begins a run, or goes on with one.

    Params cannot be written twice: those that differ from what the run began with become tags ``resumed.<name>``.
    """
    known = client.get_run(run_id).data.params
    params = {store_key(key): str(value)[:MAX_PARAM_LENGTH] for key, value in record["params"].items()}
    changed = {f"resumed.{key}": value for key, value in params.items() if known.get(key, value) != value}
    missing = {key: value for key, value in params.items() if key not in known}
    log_batches(client, run_id, ([], param_entities(missing), tag_entities({**record["tags"], **changed})))
    client.update_run(run_id, status="RUNNING")


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


def param_entities(values: Mapping[str, str]) -> list[Any]:
    """Params, cut to what the store takes."""
    from mlflow.entities import Param

    return [Param(store_key(key), str(value)[:MAX_PARAM_LENGTH]) for key, value in values.items()]


def tag_entities(values: Mapping[str, str]) -> list[Any]:
    """Tags, cut to what the store takes."""
    from mlflow.entities import RunTag

    return [RunTag(store_key(key), str(value)[:MAX_TAG_LENGTH]) for key, value in values.items()]


def store_key(name: str) -> str:
    """A name with only characters that MLflow allows."""
    return re.sub(r"[^\w./ :-]", "_", name)[:250]
