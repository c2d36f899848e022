"""Running a study: every contender on every condition, once per seed, from wherever it stands to its end."""

import os
import socket
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

from phaze_opt.errors import InputError, PluginFaultError, SolverError
from phaze_opt.plugins import PluginGroup, plugin_code
from phaze_opt.record.interrupts import kernels_interruptible
from phaze_opt.record.progress import OnProgress, Progress
from phaze_opt.record.suggestions import suggest
from phaze_opt.record.worker_process import FIRST_AT_EXIT
from phaze_opt.record.workers import MAX_ATTEMPTS, Tell, WorkerPool
from phaze_opt.search.events import Observer
from phaze_opt.search.run import prepare_loop
from phaze_opt.study.conclude import StudyCompletion
from phaze_opt.study.config import Cell, Condition, StudyConfig, search_config
from phaze_opt.study.directory import (
    CellLog,
    StudyDirectory,
    cell_result,
    open_study_directory,
    read_cell,
    study_id,
    write_cell,
    write_failure,
)
from phaze_opt.study.engine import CompiledConditions, EvaluatorSource, StudyEngine, open_evaluator_source
from phaze_opt.study.events import StudyEvent, StudyStage
from phaze_opt.study.files.resolve import plan_cells, resolve_study
from phaze_opt.study.load import load_study
from phaze_opt.study.narrate import Describe, Narrator
from phaze_opt.study.plan_file import refuse_changed_code, write_plan
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.stores.store import WAIT_S, EvaluationStore, LocalStore

MAX_SIDE_BY_SIDE = 16
"""Searches that one process keeps open at a time."""


@dataclass(slots=True)
class CellRunner:
    """Runs searches of a study and writes each when it is finished, or what ended it if its contender's code failed.

    Attributes:
        config: of the study.
        directory: of the study.
        engine: makes objectives and bounds.
        store: of evaluations.
        on_trial: told of every trial, with the cell and the number of its trials so far.
        source: who evaluates.
    """

    config: StudyConfig
    directory: StudyDirectory
    engine: StudyEngine
    store: EvaluationStore
    on_trial: Callable[[Cell, int], None] | None = None
    source: EvaluatorSource = field(default_factory=EvaluatorSource)
    _compiled: CompiledConditions = field(init=False)

    def __post_init__(self) -> None:
        """Nothing is compiled yet."""
        self._compiled = CompiledConditions(self.engine)

    def run(self, cell: Cell) -> None:
        """Run one search to its end."""
        for _ in self.run_all((cell,)):
            pass

    def run_all(self, cells: Iterable[Cell]) -> Iterator[Cell]:
        """Run searches, yielding each when it is finished or has failed, and is written.

        A search that waits for evaluations of other workers lets the next one go on.
        """
        waiting = iter(cells)
        open_searches: list[tuple[Cell, Iterator[None]]] = []
        while True:
            while len(open_searches) < MAX_SIDE_BY_SIDE and (cell := next(waiting, None)) is not None:
                open_searches.append((cell, self._steps(cell)))
                # A search that never waits is finished by its first step, before the next one is opened.
                if (done := self._step(open_searches[-1])) is not None:
                    open_searches.pop()
                    yield done
            if not open_searches:
                return
            finished = [done for search in tuple(open_searches) if (done := self._step(search)) is not None]
            open_searches = [search for search in open_searches if search[0] not in finished]
            yield from finished
            if not finished:
                time.sleep(WAIT_S)

    def _steps(self, cell: Cell) -> Iterator[None]:
        """The steps of one search, its file written after the last."""
        condition = cell.condition
        digest = condition.evaluations_digest
        build = partial(self._compiled.objective, digest, condition)
        bounds = None if self.engine.build_bounder is None else partial(self._compiled.bounder, digest, condition)
        identity = f"{self.directory.study_id}.{cell.key}"
        with plugin_code(PluginGroup.STRATEGIES, cell.contender.strategy):
            config = search_config(self.config, cell)
            open_loop = prepare_loop(config, identity, space=condition.space, build_bounder=bounds)
            loop = open_loop(log=CellLog(self.store, digest), on_progress=partial(self._note, cell))
        started = time.perf_counter()
        yield from loop.steps(self.source.evaluator(self.store, condition, build))
        result = loop.result(wall_s=time.perf_counter() - started)
        write_cell(self.directory.cell(cell), cell_result(cell, result))

    def _step(self, search: tuple[Cell, Iterator[None]]) -> Cell | None:
        """Let a search go on until it waits; the cell if it has ended."""
        cell, steps = search
        try:
            for _ in steps:
                return None
        except PluginFaultError as fault:
            if fault.group not in (PluginGroup.STRATEGIES, PluginGroup.PRUNERS):
                raise
            write_failure(self.directory.failure(cell), cell, fault.__cause__ or fault)
        return cell

    def _note(self, cell: Cell, progress: Progress) -> None:
        """Pass progress on."""
        if self.on_trial is not None:
            self.on_trial(cell, progress.num_done)


@dataclass(frozen=True, slots=True)
class SearchBench:
    """Runs searches of a study in a worker process.

    Attributes:
        runner: runs them.
        cells: of the study; a piece of work is an index of one.
    """

    runner: CellRunner
    cells: Sequence[Cell]

    def do(self, index: int, tell: Tell) -> None:
        """Run a search to its end and tell the number of its trials so far."""
        self.runner.on_trial = lambda _, number: tell(number)
        self.runner.run(self.cells[index])


def build_bench(
    config: StudyConfig, conditions: tuple[Condition, ...], engine: StudyEngine, directory: Path
) -> SearchBench:
    """The bench of one worker, with a store of its own that is closed when the worker ends in order."""
    study = StudyDirectory(directory)
    store = engine.open_store(study.evaluations)
    Finalize(None, store.close, exitpriority=FIRST_AT_EXIT)
    return SearchBench(CellRunner(config, study, engine, store), plan_cells(config, conditions))


def run_in_workers(
    config: StudyConfig,
    conditions: tuple[Condition, ...],
    engine: StudyEngine,
    directory: StudyDirectory,
    *,
    cells: Sequence[Cell],
    num_workers: int,
    on_trial: Callable[[Cell, int], None],
) -> Generator[Cell]:
    """Run searches in worker processes, yielding each when it has ended and is written.

    Raises:
        PhazeOptError: what a search raised, at once.
        SolverError: workers died twice in one search; every other search is finished before.
    """
    places = {cell.key: index for index, cell in enumerate(plan_cells(config, conditions))}
    lost = []
    with WorkerPool(partial(build_bench, config, conditions, engine, directory.path), num_workers) as pool:
        cell_of = {pool.submit(places[cell.key], partial(_tell, on_trial, cell)): cell for cell in cells}
        for task in pool.ended(tuple(cell_of)):
            if task.num_deaths >= MAX_ATTEMPTS:
                lost.append(cell_of[task].key)
                continue
            task.result()
            yield cell_of[task]
    if lost:
        message = (
            f"worker processes died {MAX_ATTEMPTS} times in {', '.join(lost[:3])}, perhaps for lack of memory; "
            "the other searches are kept: use fewer --jobs and --resume"
        )
        raise SolverError(message)


def _tell(on_trial: Callable[[Cell, int], None], cell: Cell, number: object) -> None:
    """Pass a word of progress on."""
    assert isinstance(number, int)
    on_trial(cell, number)


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
