"""Running searches of a study: side by side in one process, wherever one waits for others, or in worker processes."""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

from phaze_opt.errors import PluginFaultError, SolverError
from phaze_opt.plugins import PluginGroup, plugin_code
from phaze_opt.record.progress import Progress
from phaze_opt.record.worker_process import FIRST_AT_EXIT
from phaze_opt.record.workers import MAX_ATTEMPTS, Tell, WorkerPool
from phaze_opt.search.run import prepare_loop
from phaze_opt.study.config import Cell, Condition, StudyConfig, search_config
from phaze_opt.study.disk.cell_log import CellLog, cell_result, write_cell, write_failure
from phaze_opt.study.disk.directory import StudyDirectory
from phaze_opt.study.execution.engine import CompiledConditions, EvaluatorSource, StudyEngine
from phaze_opt.study.files.resolve import plan_cells
from phaze_opt.study.stores.store import WAIT_S, EvaluationStore

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
