"""Writes a search, a proof or a study into MLflow, with a run per trial, never one run twice.

Every write is idempotent: runs are found by their tags before they are made, metrics carry fixed times. A trial's run
is ended only when the parent has its metrics too, so one that has ended needs nothing more. One that has not is written
again with the time it was made with: the store drops exact duplicates of metrics.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from phaze_opt.objective.evaluation import THROUGHPUT
from phaze_opt.objective.goals import Goal
from phaze_opt.track.destination import Destination
from phaze_opt.track.pending_delivery import Record
from phaze_opt.track.records import RecordKind
from phaze_opt.track.runs import Role, RunTree, Tag, TrialRun, find_experiment, metric_entities
from phaze_opt.track.study_views import CURVE, StudyExperiment, describe_searches

if TYPE_CHECKING:
    from mlflow import MlflowClient

RATES = (THROUGHPUT, Goal.THROUGHPUT_PER_TDP.value)
"""Figures whose best so far a search has as curves."""
EXPANDED = {"mlflow.runType": "evaluation"}
"""MLflow's list opens the parent of runs of this type."""
COLOUR_TAG = "mlflow.runColor"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#332288", "#882255", "#999933")
"""One for each strategy and all its runs, in the order of the study; Okabe and Ito's, then Tol's."""
FIRST_CELL_MS = 1000


def open_writer(
    client: MlflowClient, destination: Destination, attempt: str, started: Record
) -> RunWriter | StudyWriter:
    """Find the run that a record begins, with what is below it, or make it."""
    if started["kind"] == RecordKind.STUDY_STARTED:
        experiment = StudyExperiment(client, destination)
        runs = RunTree(client, experiment.open(started), attempt, "phaze-opt study")
        return StudyWriter(runs, experiment, started)
    is_proof = started["kind"] == RecordKind.PROOF_STARTED
    runs = RunTree(
        client,
        find_experiment(client, str(started["experiment"]), destination=destination),
        attempt,
        "phaze-opt certify" if is_proof else "phaze-opt search",
        {} if is_proof else {Tag.SEARCH: str(started["search_id"])},
    )
    return RunWriter(runs, started, role=Role.PROOF if is_proof else Role.SEARCH)


def trial_name(number: int) -> str:
    """Of a trial's run: lists cut names short, and show the search above."""
    return f"trial {number:04d}"


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
class RunWriter:
    """Writes the records of one search or proof, in order; the parent shows trials after `flush`.

    Attributes:
        runs: of the search.
        run_id: its own.
    """

    def __init__(self, runs: RunTree, started: Record, *, role: str) -> None:
        """Find the run with its children, or make it."""
        self.runs = runs
        name = str(started.get("name", ""))
        found = runs.find(Tag.ROLE, role)
        self.run_id = found[0].info.run_id if found else runs.create(name, started["time_ms"], {Tag.ROLE: role})
        self._trials = runs.trials(self.run_id) if found else {}
        self._best = BestSoFar()
        self._history: list[Any] = []
        self._ends: dict[int, int] = {}

    def write(self, record: Record) -> None:
        """Write the next record."""
        match record.get("kind"):
            case RecordKind.TRIAL:
                self._write_trial(record)
            case RecordKind.STARTED | RecordKind.PROOF_STARTED as kind:
                self.runs.begin(self.run_id, record)
                if kind == RecordKind.STARTED:
                    goal = str(record["params"].get("goal", ""))
                    describe_searches(self.runs.client, self.runs.experiment_id, self.runs.attempt, goal)
            case RecordKind.PROOF_MOVED:
                self._history += metric_entities(record["metrics"], record["time_ms"], step=record["step"])
            case RecordKind.FINISHED | RecordKind.PROOF_FINISHED:
                self._write_finished(record)
            case RecordKind.CLOSED:
                self.runs.end(self.run_id, record["time_ms"], is_whole=False)

    def _write_trial(self, record: Record) -> None:
        """Write a trial's run, to be ended when the parent shows it."""
        self._best.update(record)
        number = record["number"]
        if number in self._trials and self._trials[number].is_done:
            return
        start_ms = record["time_ms"] - round(1000 * record["wall_s"])
        tags = {Tag.PARENT: self.run_id}
        end_ms = self.runs.fill_trial(record, self._trials, name=trial_name(number), start_ms=start_ms, tags=tags)
        self._history += metric_entities(self._best.metrics(), end_ms, step=number)
        self._ends[number] = end_ms

    def flush(self) -> None:
        """Write what the parent shows, then the ends of its trials."""
        self.runs.log(self.run_id, self._history)
        for number, end_ms in self._ends.items():
            self.runs.end_trial(self._trials, number, end_ms)
        self._history, self._ends = [], {}

    def _write_finished(self, record: Record) -> None:
        tags = {**record["tags"]}
        if "statement" in tags:
            tags[Tag.NOTE] = tags.pop("statement")
        elif "best_trial" in tags:
            tags[Tag.NOTE] = f"Best design, trial {tags['best_trial']}: {tags['best_architecture']}"
        metrics = metric_entities(record["metrics"], record["time_ms"], step=record.get("step", 0))
        self.runs.log(self.run_id, metrics, tags=tags)
        self.runs.end(self.run_id, record["time_ms"], is_whole=not record["is_interrupted"])


@final
@dataclass(slots=True)
class StudyWriter:
    """Writes the records of one study, in order: study > strategy > search > trial.

    MLflow lists a page of a hundred runs, latest start first, and shows a run below its parent only if both are on the
    page. So runs are given starts that list the study first, then its strategies, its searches and its trials; a start
    is the study's, less milliseconds. Ends give the duration that a search is charged, as if it had run alone.

    Attributes:
        runs: of the study.
        experiment: the study's.
        started: the record that begins it.
        run_id: of the study itself.
    """

    runs: RunTree
    experiment: StudyExperiment
    started: Record
    run_id: str = ""
    _start_ms: int = 0
    _is_known: bool = False
    _have_curves: set[str] = field(default_factory=set)
    _contenders: dict[str, str] = field(default_factory=dict)
    _colours: dict[str, str] = field(default_factory=dict)
    _cells: dict[str, str] = field(default_factory=dict)
    _indices: dict[str, int] = field(default_factory=dict)
    _seconds: dict[str, Sequence[float]] = field(default_factory=dict)
    _charged_s: dict[str, dict[str, float]] = field(default_factory=dict)
    _trials: dict[str, dict[int, TrialRun]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the study's run with what is below it, or make it."""
        found = self.runs.find(Tag.ROLE, Role.STUDY)
        self._is_known = bool(found)
        if not found:
            self._start_ms = self.started["time_ms"]
            tags = {Tag.ROLE: Role.STUDY, **self.started["tags"]}
            self.run_id = self.runs.create(self.started["name"], self._start_ms, tags)
            return
        self.run_id, self._start_ms = found[0].info.run_id, found[0].info.start_time
        below = ((Role.CONTENDER, Tag.CONTENDER, self._contenders), (Role.CELL, Tag.CELL, self._cells))
        for role, tag, known in below:
            for run in self.runs.find(Tag.ROLE, role):
                known[run.data.tags[tag]] = run.info.run_id
                # The store cannot replace points of a curve, so a curve is written once.
                if CURVE in run.data.metrics:
                    self._have_curves.add(run.info.run_id)

    def write(self, record: Record) -> None:
        """Write the next record."""
        steps = {
            RecordKind.STUDY_STARTED: self._write_started,
            RecordKind.CELL: self._write_cell,
            RecordKind.CELL_TRIAL: self._write_trial,
            RecordKind.CELL_FINISHED: self._write_cell_finished,
            RecordKind.STUDY_FINISHED: self._write_finished,
            RecordKind.CLOSED: self._write_closed,
        }
        steps[record["kind"]](record)

    def flush(self) -> None:
        """Nothing waits: every record is written at once."""

    def _write_started(self, record: Record) -> None:
        self.runs.begin(self.run_id, record)
        for run_id in self._contenders.values():
            self.runs.client.update_run(run_id, status="RUNNING")

    def _write_cell(self, record: Record) -> None:
        key, contender = record["key"], record["contender"]
        name = contender["name"]
        self._indices[key] = record["index"]
        self._charged_s.setdefault(name, {})[key] = record["charged_s"]
        self._colours[key] = COLOURS[list(self._charged_s).index(name) % len(COLOURS)]
        colour = {COLOUR_TAG: self._colours[key]}
        if name not in self._contenders:
            start_ms = self._start_ms - 1 - len(self._contenders)
            tags = {Tag.PARENT: self.run_id, Tag.ROLE: Role.CONTENDER, Tag.CONTENDER: name, **EXPANDED}
            self._contenders[name] = self.runs.create(name, start_ms, {**tags, **contender["tags"], **colour})
        self.runs.log(self._contenders[name], params=contender["params"])
        if key not in self._cells:
            tags = {Tag.PARENT: self._contenders[name], Tag.ROLE: Role.CELL, Tag.CELL: key, **record["tags"], **colour}
            self._cells[key] = self.runs.create(record["name"], self._cell_start_ms(key), tags)
        self.runs.log(self._cells[key], params=record["params"])

    def _write_trial(self, record: Record) -> None:
        key, number = record["key"], record["number"]
        if key not in self._trials:  # those that the store has are looked up once, if it can have any
            self._trials[key] = self.runs.trials(self._cells[key]) if self._is_known else {}
        trials = self._trials[key]
        if number in trials and trials[number].is_done:
            return
        start_ms = self._start_ms - FIRST_CELL_MS - self.started["num_cells"] - 1 - number
        tags = {Tag.PARENT: self._cells[key], Tag.CELL: key, COLOUR_TAG: self._colours[key]}
        end_ms = self.runs.fill_trial(record, trials, name=trial_name(number), start_ms=start_ms, tags=tags)
        self.runs.end_trial(trials, number, end_ms)

    def _write_cell_finished(self, record: Record) -> None:
        key = record["key"]
        self._seconds[key] = record["seconds"]
        run_id, end_ms = self._cells[key], self._cell_start_ms(key) + round(1000 * record["charged_s"])
        metrics = metric_entities(record["metrics"], end_ms, step=0)
        for name, points in record["curves"].items():
            metrics += self._curve(key, name, points)
        self.runs.log(run_id, metrics, tags=record["tags"])
        self.runs.end(run_id, end_ms)

    def _write_finished(self, record: Record) -> None:
        time_ms, is_whole = record["time_ms"], record["is_complete"]
        for key, metrics in record["cells"].items():
            if key in self._cells:
                run_id = self._cells[key]
                points = () if run_id in self._have_curves else record["cell_curves"].get(key, ())
                self.runs.log(run_id, [*metric_entities(metrics, time_ms, step=0), *self._curve(key, CURVE, points)])
        for name, run_id in self._contenders.items():
            metrics = record["contenders"].get(name, {})
            points = () if run_id in self._have_curves else record["contender_curves"].get(name, ())
            curve = [item for step, y in points for item in metric_entities({CURVE: y}, time_ms, step=step)]
            self.runs.log(run_id, [*metric_entities(metrics, time_ms, step=0), *curve])
            charged_ms = round(1000 * sum(self._charged_s.get(name, {}).values()))
            self.runs.end(run_id, self._start_ms + charged_ms, is_whole=is_whole)
        counts = {"num_cells_finished": float(len(self._cells)), "num_strategies": float(len(self._contenders))}
        tags = {"is_complete": str(is_whole).lower()} | ({Tag.NOTE: record["notes"]} if record["notes"] else {})
        self.runs.log(self.run_id, metric_entities(counts, time_ms, step=0), tags=tags)
        self.runs.end(self.run_id, time_ms, is_whole=is_whole)
        names = dict.fromkeys(name for metrics in record["contenders"].values() for name in metrics)
        self.experiment.describe(
            self.runs.experiment_id, self.started, run_ids=tuple(self._contenders.values()), metrics=tuple(names)
        )

    def _write_closed(self, record: Record) -> None:
        for run_id in (*self._contenders.values(), self.run_id):
            self.runs.end(run_id, record["time_ms"], is_whole=False)

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
