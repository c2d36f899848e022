"""Writes one study into MLflow: study > strategy > search > trial, never one run twice.

Every write is idempotent, as in `run_writer`: runs are found by tags before they are made, metrics carry fixed times.

MLflow lists a page of a hundred runs, latest start first, and shows a run below its parent only if both are on the
page. So runs are given starts that list the study first, then its strategies, its searches and its trials; a start is
the study's, less milliseconds. Ends give the duration that a search is charged, as if it had run alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from phaze_opt.track.batches import (
    MAX_TAG_LENGTH,
    NOTE_TAG,
    find_runs,
    log_batches,
    metric_entities,
    param_entities,
    store_key,
    tag_entities,
)
from phaze_opt.track.destination import Destination
from phaze_opt.track.order import Record
from phaze_opt.track.run_writer import ATTEMPT_TAG, NUMBER_TAG, PARENT_TAG, ROLE_TAG, ROLE_TRIAL, Child, find_children
from phaze_opt.track.study_experiment import StudyExperiment
from phaze_opt.track.study_records import CELL, CELL_FINISHED, CELL_TRIAL, STUDY_FINISHED, STUDY_STARTED
from phaze_opt.track.study_views import CURVE, ROLE_CELL, ROLE_CONTENDER, ROLE_STUDY

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

CELL_TAG = "phaze_opt.cell"
CONTENDER_TAG = "phaze_opt.contender"
EXPANDED = {"mlflow.runType": "evaluation"}
"""MLflow's list opens the parent of runs of this type."""
COLOUR_TAG = "mlflow.runColor"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#332288", "#882255", "#999933")
"""One for each strategy and all its runs, in the order of the study; Okabe and Ito's, then Tol's."""
FIRST_CELL_MS = 1000


@final
@dataclass(slots=True)
class StudyWriter:
    """Writes the records of one study, in order.

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
    _started: Record = field(default_factory=dict)
    _start_ms: int = 0
    _is_known: bool = False
    _have_curves: set[str] = field(default_factory=set)
    _contenders: dict[str, str] = field(default_factory=dict)
    _colours: dict[str, str] = field(default_factory=dict)
    _cells: dict[str, str] = field(default_factory=dict)
    _indices: dict[str, int] = field(default_factory=dict)
    _seconds: dict[str, Sequence[float]] = field(default_factory=dict)
    _charged_s: dict[str, dict[str, float]] = field(default_factory=dict)
    _trials: dict[str, dict[int, Child]] = field(default_factory=dict)

    def open_parent(self, started: Record) -> None:
        """Find the study's run with what is below it, or make it."""
        self._started = started
        self.experiment_id = StudyExperiment(self.client, self.destination).open(started)
        query = f"tags.`{ATTEMPT_TAG}` = '{self.attempt}' AND tags.`{ROLE_TAG}`"
        found = list(find_runs(self.client, self.experiment_id, f"{query} = '{ROLE_STUDY}'"))
        if found:
            self._is_known = True
            self.run_id, self._start_ms = found[0].info.run_id, found[0].info.start_time
            for run in find_runs(self.client, self.experiment_id, f"{query} = '{ROLE_CONTENDER}'"):
                self._contenders[run.data.tags[CONTENDER_TAG]] = run.info.run_id
                self._note_curve(run)
            for run in find_runs(self.client, self.experiment_id, f"{query} = '{ROLE_CELL}'"):
                self._cells[run.data.tags[CELL_TAG]] = run.info.run_id
                self._note_curve(run)
            return
        self._start_ms = started["time_ms"]
        self.run_id = self._create(started["name"], self._start_ms, {ROLE_TAG: ROLE_STUDY, **started["tags"]})

    def _note_curve(self, run: Run) -> None:
        """Take note of a run whose curve the store has: it cannot replace points, so a curve is written once."""
        if CURVE in run.data.metrics:
            self._have_curves.add(run.info.run_id)

    def write(self, records: Sequence[Record]) -> None:
        """Write records in order."""
        for record in records:
            kind = record.get("kind")
            if kind == STUDY_STARTED:
                self._write_started(record)
            elif kind == CELL:
                self._write_cell(record)
            elif kind == CELL_TRIAL:
                self._write_trial(record)
            elif kind == CELL_FINISHED:
                self._write_cell_finished(record)
            elif kind == STUDY_FINISHED:
                self._write_finished(record)

    def _write_started(self, record: Record) -> None:
        known = self.client.get_run(self.run_id).data
        params = {key: value for key, value in record["params"].items() if store_key(key) not in known.params}
        note = {} if NOTE_TAG in known.tags else {NOTE_TAG: record["description"]}
        self._log(self.run_id, params=params, tags={**record["tags"], **note})
        for run_id in (self.run_id, *self._contenders.values()):
            self.client.update_run(run_id, status="RUNNING")

    def _write_cell(self, record: Record) -> None:
        key, contender = record["key"], record["contender"]
        self._note_cell(record)
        name = contender["name"]
        colour = {COLOUR_TAG: self._colours[key]}
        if name not in self._contenders:
            start_ms = self._start_ms - 1 - len(self._contenders)
            tags = {PARENT_TAG: self.run_id, ROLE_TAG: ROLE_CONTENDER, CONTENDER_TAG: name, **EXPANDED}
            self._contenders[name] = self._create(name, start_ms, {**tags, **contender["tags"], **colour})
        self._log(self._contenders[name], params=contender["params"])
        if key not in self._cells:
            tags = {PARENT_TAG: self._contenders[name], ROLE_TAG: ROLE_CELL, CELL_TAG: key, **record["tags"], **colour}
            self._cells[key] = self._create(record["name"], self._cell_start_ms(key), tags)
        self._log(self._cells[key], params=record["params"])

    def _note_cell(self, record: Record) -> None:
        key = record["key"]
        self._indices[key] = record["index"]
        contender = record["contender"]["name"]
        self._charged_s.setdefault(contender, {})[key] = record["charged_s"]
        place = list(self._charged_s).index(contender)
        self._colours[key] = COLOURS[place % len(COLOURS)]

    def _write_trial(self, record: Record) -> None:
        key, number = record["key"], record["number"]
        trials = self._trials_of(key)
        child = trials.get(number)
        if child is not None and child.is_done:
            return
        start_ms = self._start_ms - FIRST_CELL_MS - self._started["num_cells"] - 1 - number
        end_ms = start_ms + round(1000 * record["wall_s"])
        if child is None:
            tags = {PARENT_TAG: self._cells[key], ROLE_TAG: ROLE_TRIAL, CELL_TAG: key, NUMBER_TAG: str(number)}
            run_id = self._create(
                f"trial {number:04d}", start_ms, {**tags, **record["tags"], COLOUR_TAG: self._colours[key]}
            )
            child = trials[number] = Child(run_id, start_ms, is_done=False)
        self._log(child.run_id, metric_entities(record["metrics"], end_ms, step=number), record["params"])
        self.client.set_terminated(child.run_id, "FINISHED", end_time=end_ms)
        trials[number] = replace(child, is_done=True)

    def _trials_of(self, key: str) -> dict[int, Child]:
        """Trials of one search; those that the store has are looked up once, if it can have any."""
        if key not in self._trials:
            search = (self.client, self.experiment_id, self.attempt)
            self._trials[key] = find_children(*search, parent=self._cells[key]) if self._is_known else {}
        return self._trials[key]

    def _write_cell_finished(self, record: Record) -> None:
        key = record["key"]
        self._seconds[key] = record["seconds"]
        run_id, end_ms = self._cells[key], self._cell_start_ms(key) + round(1000 * record["charged_s"])
        metrics = [*metric_entities(record["metrics"], end_ms, step=0)]
        for name, points in record["curves"].items():
            metrics += self._curve(key, name, points)
        self._log(run_id, metrics, tags=record["tags"])
        self.client.set_terminated(run_id, "FINISHED", end_time=end_ms)

    def _write_finished(self, record: Record) -> None:
        time_ms = record["time_ms"]
        for key, metrics in record["cells"].items():
            if key in self._cells:
                run_id = self._cells[key]
                points = () if run_id in self._have_curves else record["cell_curves"].get(key, ())
                self._log(run_id, [*metric_entities(metrics, time_ms, step=0), *self._curve(key, CURVE, points)])
        status = "FINISHED" if record["is_complete"] else "KILLED"
        for name, run_id in self._contenders.items():
            metrics = record["contenders"].get(name, {})
            points = () if run_id in self._have_curves else record["contender_curves"].get(name, ())
            curve = [item for step, y in points for item in metric_entities({CURVE: y}, time_ms, step=step)]
            self._log(run_id, [*metric_entities(metrics, time_ms, step=0), *curve])
            charged_ms = round(1000 * sum(self._charged_s.get(name, {}).values()))
            self.client.set_terminated(run_id, status, end_time=self._start_ms + charged_ms)
        counts = {"num_cells_finished": float(len(self._cells)), "num_strategies": float(len(self._contenders))}
        tags = {"is_complete": str(record["is_complete"]).lower()}
        if record["notes"]:
            tags[NOTE_TAG] = record["notes"]
        self._log(self.run_id, metric_entities(counts, time_ms, step=0), tags=tags)
        self.client.set_terminated(self.run_id, status, end_time=time_ms)
        names = dict.fromkeys(name for metrics in record["contenders"].values() for name in metrics)
        StudyExperiment(self.client, self.destination).conclude(
            self.experiment_id, self._started, strategies=self._contenders, metrics=tuple(names)
        )

    def _curve(self, key: str, name: str, points: Sequence[Sequence[float]]) -> list[Any]:
        """A curve over evaluations; its times are the search's own clock, s charged for evaluations."""
        seconds, start_ms = self._seconds.get(key, ()), self._cell_start_ms(key)
        curve: list[Any] = []
        for step, value in points:
            spent_s = seconds[int(step) - 1] if int(step) <= len(seconds) else 0.0
            curve += metric_entities({name: value}, start_ms + round(1000 * spent_s), step=int(step))
        return curve

    def _cell_start_ms(self, key: str) -> int:
        return self._start_ms - FIRST_CELL_MS - self._indices.get(key, 0)

    def _create(self, name: str, start_ms: int, tags: Mapping[str, str]) -> str:
        identity = {
            ATTEMPT_TAG: self.attempt,
            "mlflow.source.name": "phaze-opt study",
            "mlflow.source.type": "LOCAL",
        }
        cut = {key: str(value)[:MAX_TAG_LENGTH] for key, value in tags.items()}
        run = self.client.create_run(self.experiment_id, start_ms, tags={**identity, **cut}, run_name=name)
        return str(run.info.run_id)

    def _log(
        self,
        run_id: str,
        metrics: Sequence[Any] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        log_batches(self.client, run_id, (metrics, param_entities(params or {}), tag_entities(tags or {})))
