"""Writes one proof into MLflow: a single run with the curves of incumbent, bound and gap.

Every write is idempotent, as in `run_writer`: the run is found by tags before it is made, metrics carry fixed times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from phaze_opt.track.batches import (
    NOTE_TAG,
    find_experiment,
    log_batches,
    log_start,
    metric_entities,
    tag_entities,
)
from phaze_opt.track.certificate_records import PROOF_FINISHED, PROOF_MOVED, PROOF_STARTED
from phaze_opt.track.destination import Destination
from phaze_opt.track.order import Record
from phaze_opt.track.run_writer import ATTEMPT_TAG, ROLE_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

ROLE_PROOF = "proof"


@final
@dataclass(slots=True)
class CertificateWriter:
    """Writes the records of one proof, in order.

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

    def open_parent(self, started: Record) -> None:
        """Find the proof's run, or make it."""
        self.experiment_id = find_experiment(self.client, str(started["experiment"]), destination=self.destination)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.attempt}' AND tags.`{ROLE_TAG}` = '{ROLE_PROOF}'"
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            return
        tags = {
            ATTEMPT_TAG: self.attempt,
            ROLE_TAG: ROLE_PROOF,
            "mlflow.source.name": "phaze-opt certify",
            "mlflow.source.type": "LOCAL",
        }
        run = self.client.create_run(
            self.experiment_id, started["time_ms"], tags=tags, run_name=str(started.get("name", ""))
        )
        self.run_id = run.info.run_id

    def write(self, records: Sequence[Record]) -> None:
        """Write records in order."""
        for record in records:
            kind = record.get("kind")
            if kind == PROOF_STARTED:
                log_start(self.client, self.run_id, record)
            elif kind == PROOF_MOVED:
                self._log(metric_entities(record["metrics"], record["time_ms"], step=record["step"]))
            elif kind == PROOF_FINISHED:
                self._write_finished(record)

    def _write_finished(self, record: Record) -> None:
        tags = dict(record["tags"])
        if "statement" in tags:
            tags[NOTE_TAG] = tags.pop("statement")
        self._log(metric_entities(record["metrics"], record["time_ms"], step=record["step"]), tags=tag_entities(tags))
        status = "KILLED" if record["is_interrupted"] else "FINISHED"
        self.client.set_terminated(self.run_id, status, end_time=record["time_ms"])

    def _log(self, metrics: Sequence[Any], params: Sequence[Any] = (), tags: Sequence[Any] = ()) -> None:
        log_batches(self.client, self.run_id, (metrics, params, tags))
