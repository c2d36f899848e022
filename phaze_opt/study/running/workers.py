"""Worker processes of a study: each runs whole searches; one that dies costs its unfinished evaluation only."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

from phaze_opt.errors import SolverError
from phaze_opt.record.worker_process import FIRST_AT_EXIT
from phaze_opt.record.workers import MAX_ATTEMPTS, Tell, WorkerPool
from phaze_opt.study.config import StudyConfig
from phaze_opt.study.disk.directory import StudyDirectory
from phaze_opt.study.files.resolve import plan_cells
from phaze_opt.study.plan import Cell, Condition
from phaze_opt.study.running.cell_runner import CellRunner
from phaze_opt.study.running.engine import StudyEngine


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
