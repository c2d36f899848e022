"""Running a study: every contender on every condition, once per seed, from wherever it stands to its end."""

import os
import socket
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from phaze_opt.errors import InputError
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.progress import OnProgress, Progress
from phaze_opt.record.suggestions import suggest
from phaze_opt.search.events import Observer
from phaze_opt.study.config import Cell, Condition, StudyConfig
from phaze_opt.study.disk.cell_log import read_cell
from phaze_opt.study.disk.directory import StudyDirectory, open_study_directory, study_id
from phaze_opt.study.disk.plan_file import refuse_changed_code, write_plan
from phaze_opt.study.events import StudyEvent, StudyStage
from phaze_opt.study.execution.cell_runner import CellRunner, run_in_workers
from phaze_opt.study.execution.conclude import StudyCompletion
from phaze_opt.study.execution.engine import StudyEngine, open_evaluator_source
from phaze_opt.study.execution.narrate import Describe, Narrator
from phaze_opt.study.files.resolve import plan_cells, resolve_study
from phaze_opt.study.load import load_study
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.stores.local_store import LocalStore

MAX_JOBS = 1024


def run_study(
    config: StudyConfig,
    *,
    work_dir: Path = Path(),
    jobs: int = 1,
    is_resumed: bool = False,
    observers: Sequence[Observer[StudyEvent]] = (),
    on_progress: OnProgress | None = None,
    engine: StudyEngine | None = None,
    is_worker: bool = False,
    restart: Sequence[str] = (),
    describe: Describe = lambda *_: (),
) -> StudyResult:
    """Run a study to its end or until Ctrl-C; everything finished is kept and returned.

    A fault in the code of a contender (its strategy or its pruner) fails the search, not the study: the failure is kept
    with its traceback, and the contender is not ranked.

    The same plan gives the same trials for any number of jobs, in any order, and also after an interruption and
    ``is_resumed``: strategies are replayed from their seeds, and evaluations come from the directory instead.

    Args:
        config: the plan.
        work_dir: holds ``phaze-opt-studies/<study id>/``.
        jobs: worker processes; 1 runs in this process.
        is_resumed: continue what the working directory holds of this study, or start it; without it the study is
            started afresh, and what is there is put aside under a number.
        observers: told of every finished search, in the order of the plan.
        on_progress: called after every trial of any search.
        engine: what it runs on; the package's own objective, bounds and local files unless given.
        is_worker: run the searches only, and leave references, true optima and chip tables to another machine.
        restart: contenders whose searches are all run again, as after a change of their code; implies ``is_resumed``.
        describe: puts what was found into the sentences that observers are told at the end
            (`report.study.findings.describe_findings`); none unless given.

    Raises:
        InputError: the plan is faulty (nothing is written then), the directory cannot be written, or the code of a
            contender is not that of its finished searches.
        PluginError: a strategy or pruner is unknown or fails to load (nothing is written then).
        SolverError: a worker process died twice in the same search; the other searches are kept.
    """
    _check_jobs(jobs)
    engine = StudyEngine() if engine is None else engine
    _check_restart(config, restart)
    conditions = resolve_study(config)
    identity = study_id(config, conditions)
    is_resumed = is_resumed or bool(restart)
    with (
        open_study_directory(work_dir, identity, is_resumed=is_resumed, is_alone=bool(restart)) as directory,
        closing(LocalStore(directory.evaluations)) as evaluations,
    ):
        run = _Run(config, conditions, directory, engine, jobs, on_progress, evaluations)
        refuse_changed_code(config, directory, [cell for cell in run.cells if cell.contender.name not in restart])
        _drop_searches(directory, run.cells, restart)
        plan = write_plan(directory, config, conditions)
        narrator = Narrator(observers, directory, run.cells, evaluations, describe)
        narrator.start(config, plan)
        is_interrupted = False
        try:
            with kernels_interruptible():
                for _ in run.search():
                    narrator.tell_finished()
                if not is_worker:
                    run.conclude()
        except KeyboardInterrupt:
            is_interrupted = True
        result = replace(load_study(directory.path), is_interrupted=is_interrupted)
        narrator.finish(result)
        return result


def _check_jobs(jobs: int) -> None:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= MAX_JOBS:
        message = f"{jobs!r} must be an integer from 1 to {MAX_JOBS}"
        raise InputError(message, key="jobs")


@dataclass(slots=True)
class _Run:
    """A study that runs."""

    config: StudyConfig
    conditions: tuple[Condition, ...]
    directory: StudyDirectory
    engine: StudyEngine
    jobs: int
    on_progress: OnProgress | None
    evaluations: LocalStore
    cells: tuple[Cell, ...] = ()
    _num_trials: dict[str, int] = field(default_factory=dict)
    _num_all_trials: int = 0
    _num_finished: int = 0

    def __post_init__(self) -> None:
        """Lay out the searches."""
        self.cells = plan_cells(self.config, self.conditions)

    def search(self) -> Iterator[Cell]:
        """Run what is not finished; yields once for what was, then after every search that is finished or failed."""
        missing = []
        for cell in self.cells:
            found = read_cell(self.directory.cell(cell), cell)
            if found is None or not self._has_evaluations(found):
                # A search that failed is tried again, and one that lost an evaluation is not finished.
                self.directory.failure(cell).unlink(missing_ok=True)
                self.directory.cell(cell).unlink(missing_ok=True)
                missing.append(cell)
            else:
                self._count(cell, len(found.trials))
                self._num_finished += 1
        self._report(StudyStage.SEARCHES, "")
        if self._num_finished:
            yield self.cells[0]
        if self.engine.is_shared:
            missing = _rotate(missing)
        workers = 1 if self.engine.dask else min(self.jobs, len(missing))
        for cell in self._run_here(missing) if workers < 2 else self._run_elsewhere(missing, workers):
            self._num_finished += 1
            self._report(StudyStage.SEARCHES, cell.key)
            yield cell

    def conclude(self) -> None:
        """Add references, true optima and the generality question."""
        StudyCompletion(self.config, self.conditions, self.directory, self.engine, self._report, self.jobs).add_all()

    def _run_here(self, cells: Sequence[Cell]) -> Iterator[Cell]:
        """In this process."""
        with (
            closing(self.engine.open_store(self.directory.evaluations)) as store,
            open_evaluator_source(self.engine.dask, self.engine.build_objective, num_workers=self.jobs) as source,
        ):
            runner = CellRunner(self.config, self.directory, self.engine, store, self._note_trial, source)
            yield from runner.run_all(cells)

    def _run_elsewhere(self, cells: Sequence[Cell], workers: int) -> Iterator[Cell]:
        """In worker processes."""
        ended = run_in_workers(
            self.config,
            self.conditions,
            self.engine,
            self.directory,
            cells=cells,
            num_workers=workers,
            on_trial=self._note_trial,
        )
        with closing(ended):
            yield from ended

    def _has_evaluations(self, result: CellResult) -> bool:
        """Whether no evaluation of a finished search was lost; else it is run again, and evaluates what is missing."""
        digest = result.cell.condition.evaluations_digest
        return all(self.evaluations.has(digest, trial.point) for trial in result.trials if not trial.is_repeat)

    def _count(self, cell: Cell, number: int) -> None:
        """Note how many trials a search has."""
        self._num_all_trials += number - self._num_trials.get(cell.key, 0)
        self._num_trials[cell.key] = number

    def _note_trial(self, cell: Cell, number: int) -> None:
        self._count(cell, number)
        self._report(StudyStage.SEARCHES, cell.key)

    def _report(self, stage: StudyStage, what: str, num_done: int = 0, num_items: int = 0) -> None:
        """Tell how far the study is: its trials, those of earlier runs included, and a later stage."""
        if self.on_progress is None:
            return
        is_searching = stage is StudyStage.SEARCHES
        num_trials = len(self.cells) * self.config.budget.evaluations if is_searching else self._num_all_trials
        searches = f"{self._num_finished} of {len(self.cells)} searches finished"
        self.on_progress(Progress(StudyStage.SEARCHES, self._num_all_trials, num_trials, searches))
        if not is_searching:
            self.on_progress(Progress(stage, num_done, num_items, what))


def _rotate(cells: Sequence[Cell]) -> list[Cell]:
    """The same searches from another one on, so that workers on many machines meet seldom; changes times only."""
    start = zlib.crc32(f"{socket.gethostname()}-{os.getpid()}".encode()) % max(1, len(cells))
    return [*cells[start:], *cells[:start]]


def _check_restart(config: StudyConfig, restart: Sequence[str]) -> None:
    """Refuse to restart what is no contender.

    Raises:
        InputError: a name is unknown.
    """
    names = [contender.name for contender in config.contenders]
    for name in restart:
        if name not in names:
            message = f"the study has no strategy '{name}'; {suggest(name, names)}"
            raise InputError(message, source="--restart")


def _drop_searches(directory: StudyDirectory, cells: Sequence[Cell], restart: Sequence[str]) -> None:
    """Remove the searches of contenders that are run again; evaluations stay, as they do not depend on who asked."""
    for cell in cells:
        if cell.contender.name in restart:
            directory.cell(cell).unlink(missing_ok=True)
            directory.failure(cell).unlink(missing_ok=True)
