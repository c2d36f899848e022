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
    log_file,
    log_start,
    metric_entities,
    tag_entities,
)
from phaze_opt.track.certificate_records import PROOF_FINISHED, PROOF_MOVED, PROOF_STARTED
from phaze_opt.track.destination import Destination
from phaze_opt.track.journal import Journal, Record
from phaze_opt.track.records import ARTIFACT
from phaze_opt.track.run_writer import ATTEMPT_TAG, ROLE_TAG

if TYPE_CHECKING:
    from mlflow import MlflowClient

ROLE_PROOF = "proof"


@final
@dataclass(slots=True)
class CertificateWriter:
    """Writes the records of one proof's journal, in order.

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

    def open_parent(self, started: Record) -> bool:
        """Find the proof's run, or make it; whether it was there already."""
        self.experiment_id = find_experiment(self.client, str(started["experiment"]), destination=self.destination)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.journal.attempt}' AND tags.`{ROLE_TAG}` = '{ROLE_PROOF}'"
        found = self.client.search_runs([self.experiment_id], query, max_results=1)
        if found:
            self.run_id = found[0].info.run_id
            return True
        tags = {
            ATTEMPT_TAG: self.journal.attempt,
            ROLE_TAG: ROLE_PROOF,
            "mlflow.source.name": "phaze-opt certify",
            "mlflow.source.type": "LOCAL",
        }
        run = self.client.create_run(
            self.experiment_id, started["time_ms"], tags=tags, run_name=str(started.get("name", ""))
        )
        self.run_id = run.info.run_id
        return False

    def remember(self, records: Sequence[Record]) -> None:
        """Nothing that the store already has matters to what follows."""

    def write(self, records: Sequence[Record]) -> None:
        """Write records in order."""
        for record in records:
            kind = record.get("kind")
            if kind == PROOF_STARTED:
                log_start(self.client, self.run_id, record)
            elif kind == PROOF_MOVED:
                self._log(metric_entities(record["metrics"], record["time_ms"], step=record["step"]))
            elif kind == ARTIFACT:
                log_file(self.client, self.run_id, journal=self.journal, record=record)
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
