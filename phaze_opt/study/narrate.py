"""Telling observers of a study what is on disk, in the order of the plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.events import Observer, Observers
from phaze_opt.search.result import rank
from phaze_opt.study.config import Cell, StudyConfig
from phaze_opt.study.directory import StudyDirectory, read_cell
from phaze_opt.study.events import CellFinished, StudyEvent, StudyFinished, StudyStarted
from phaze_opt.study.judging.contender_scores import PERCENT, cell_metrics, contender_metrics
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.scores import StudySummary
from phaze_opt.study.stores.store import LocalStore
from phaze_opt.study.summary import summarise

Describe = Callable[[StudyResult, StudySummary], Sequence[str]]
"""Puts what a study found into sentences, such as `report.study.findings.describe_findings`."""


@dataclass(slots=True)
class Narrator:
    """Raises the events of a study.

    Attributes:
        observers: told in order.
        directory: of the study.
        cells: planned searches.
        store: evaluations of the directory.
        describe: for the notes of the last event.
    """

    observers: Sequence[Observer[StudyEvent]]
    directory: StudyDirectory
    cells: Sequence[Cell]
    store: LocalStore
    describe: Describe = lambda *_: ()
    _num_told: int = 0
    _told: Observers = field(init=False)

    def __post_init__(self) -> None:
        """Nobody was told anything yet."""
        self._told = Observers(self.observers, what="study")

    def start(self, config: StudyConfig, plan: Mapping[str, object]) -> None:
        """The study begins or resumes."""
        self._told.notify(
            StudyStarted(
                study_id=self.directory.study_id,
                name=config.name,
                description=config.description,
                num_cells=len(self.cells),
                config=plan,
                directory=self.directory.path,
            )
        )

    def tell_finished(self) -> None:
        """Tell of searches that are finished and whose predecessors in the plan were told of."""
        if not self.observers:
            return
        while self._num_told < len(self.cells):
            cell = self.cells[self._num_told]
            result = read_cell(self.directory.cell(cell), cell)
            if result is None and not self.directory.failure(cell).exists():
                return
            if result is not None:
                self._tell(result)
            self._num_told += 1

    def finish(self, result: StudyResult) -> None:
        """The study has ended; searches that come after an unfinished one in the plan are told of first."""
        if not self.observers:
            return
        self.tell_rest()
        self._told.notify(_finished_event(result, self.describe))

    def tell_rest(self) -> None:
        """Tell of all searches that are finished, also of those that come after an unfinished one in the plan."""
        self.tell_finished()
        for cell in self.cells[self._num_told :]:
            result = read_cell(self.directory.cell(cell), cell)
            if result is not None:
                self._tell(result)
        self._num_told = len(self.cells)

    def _tell(self, result: CellResult) -> None:
        """Raise the event of one search."""
        digest = result.cell.condition.evaluations_digest
        known: dict[DesignPoint, Evaluation] = {}
        for trial in result.trials:
            if trial.point not in known:
                found = self.store.known(digest, trial.point)
                if found is None:
                    message = (
                        f"no evaluation is kept of {trial.point}; remove this file and run the study with --resume"
                    )
                    raise InputError(message, source=str(self.directory.cell(result.cell)))
                known[trial.point] = found.evaluation
        self._told.notify(
            CellFinished(
                study_id=self.directory.study_id,
                result=result,
                evaluations=tuple(known[trial.point] for trial in result.trials),
                best_number=best_number(result, known),
            )
        )


def best_number(result: CellResult, evaluations: Mapping[DesignPoint, Evaluation]) -> int:
    """The best trial as a search ranks them; -1 if none is feasible."""
    feasible = (trial for trial in result.trials if trial.values and not trial.is_repeat)
    records = [trial.with_evaluation(evaluations[trial.point]) for trial in feasible]
    return min(records, key=rank).number if records else -1


def _finished_event(result: StudyResult, describe: Describe) -> StudyFinished:
    """The closing event, with the metrics of the summary once there is something to judge."""
    if not result.cells:
        return StudyFinished(study_id=result.study_id, is_complete=result.is_complete)
    summary = summarise(result)
    return StudyFinished(
        study_id=result.study_id,
        is_complete=result.is_complete,
        contender_metrics=contender_metrics(summary),
        cell_metrics=cell_metrics(summary),
        notes="\n".join(f"- {finding}" for finding in describe(result, summary)),
        cell_regrets_pct={score.key: tuple((PERCENT * score.curve).tolist()) for score in summary.cells},
    )
