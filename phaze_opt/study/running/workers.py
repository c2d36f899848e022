"""Worker processes of a study: each runs whole searches; one that dies costs its unfinished evaluation only."""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from phaze_opt.errors import PhazeOptError, SolverError
from phaze_opt.record.worker_process import end_in_order, interrupts_blocked, prepare_worker
from phaze_opt.study.config import StudyConfig
from phaze_opt.study.disk.directory import StudyDirectory
from phaze_opt.study.files.resolve import plan_cells
from phaze_opt.study.plan import Cell, Condition
from phaze_opt.study.running.cell_runner import CellRunner
from phaze_opt.study.running.engine import StudyEngine

MAX_ATTEMPTS = 2
"""How often a search is begun; a worker that dies in it gives it one more."""
PATIENCE_S = 3.0
"""How long workers may take to clean up when they are told to end."""
ASK_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class _Task:
    """What a worker is started with."""

    config: StudyConfig
    conditions: tuple[Condition, ...]
    engine: StudyEngine
    directory: Path


@dataclass(frozen=True, slots=True)
class _Started:
    """A worker is ready for searches."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """A worker has finished a trial; ``number`` of them so far in its search."""

    number: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """A worker has ended a search: finished and written, or failed for a reason that would come again."""

    error: PhazeOptError | None = None


@dataclass(slots=True)
class _Worker:
    """A worker process and the search it has."""

    process: BaseProcess
    channel: Connection
    index: int = -1
    is_started: bool = False


@dataclass(slots=True)
class WorkerPool:
    """Runs searches in spawned processes that ignore Ctrl-C and end with this one.

    Attributes:
        config, conditions, engine, directory: of the study.
        num_workers: processes at most.
        on_trial: told of every trial.
    """

    config: StudyConfig
    conditions: tuple[Condition, ...]
    engine: StudyEngine
    directory: StudyDirectory
    num_workers: int
    on_trial: Callable[[Cell, int], None] | None = None
    _workers: list[_Worker] = field(default_factory=list)
    _deaths: dict[int, int] = field(default_factory=dict)
    _num_stillborn: int = 0

    def run_all(self, cells: Sequence[Cell]) -> Generator[Cell]:
        """Run searches, yielding each when it is finished and written; all workers are gone afterwards.

        Raises:
            PhazeOptError: what a search raised, at once.
            SolverError: workers died twice in one search; every other search is finished before.
        """
        every = plan_cells(self.config, self.conditions)
        places = {cell.key: index for index, cell in enumerate(every)}
        queue = deque(places[cell.key] for cell in cells)
        try:
            for index in self._run_queue(queue, every):
                yield every[index]
        finally:
            self._end_workers()
        lost = [every[index].key for index, count in self._deaths.items() if count >= MAX_ATTEMPTS]
        if lost:
            message = (
                f"worker processes died {MAX_ATTEMPTS} times in {', '.join(lost[:3])}, perhaps for lack of memory; "
                "the other searches are kept: use fewer --jobs and --resume"
            )
            raise SolverError(message)

    def _run_queue(self, queue: deque[int], every: Sequence[Cell]) -> Iterator[int]:
        """Hand out searches until all have ended."""
        while queue or any(worker.index >= 0 for worker in self._workers):
            self._hand_out(queue)
            for worker in self._ready():
                try:
                    message = worker.channel.recv()
                except (EOFError, OSError):
                    self._bury(worker, queue)
                    continue
                if isinstance(message, _Started):
                    worker.is_started = True
                elif isinstance(message, _Trial):
                    if self.on_trial is not None:
                        self.on_trial(every[worker.index], message.number)
                elif message.error is not None:
                    raise message.error
                else:
                    index, worker.index = worker.index, -1
                    yield index

    def _hand_out(self, queue: deque[int]) -> None:
        """Give every idle worker a search, and start workers while there are searches for them."""
        for worker in self._workers:
            if queue and worker.index < 0:
                self._give(worker, queue)
        while queue and len(self._workers) < self.num_workers:
            worker = self._start()
            self._workers.append(worker)
            self._give(worker, queue)

    def _give(self, worker: _Worker, queue: deque[int]) -> None:
        """Send a search; a worker that has died since is found out when it is listened to."""
        worker.index = queue.popleft()
        try:
            worker.channel.send(worker.index)
        except OSError:
            return

    def _ready(self) -> list[_Worker]:
        """Workers that have something to say, or have died."""
        busy = {worker.channel: worker for worker in self._workers if worker.index >= 0}
        return [busy[channel] for channel in connection.wait(list(busy)) if isinstance(channel, Connection)]

    def _bury(self, worker: _Worker, queue: deque[int]) -> None:
        """Give the search of a dead worker to another one, once.

        Raises:
            SolverError: workers do not even start.
        """
        self._workers.remove(worker)
        worker.channel.close()
        worker.process.join()
        if worker.is_started:
            self._deaths[worker.index] = self._deaths.get(worker.index, 0) + 1
        else:
            self._num_stillborn += 1
            if self._num_stillborn >= MAX_ATTEMPTS:
                message = f"worker processes end as they start (exit code {worker.process.exitcode}); use --jobs 1"
                raise SolverError(message)
        if self._deaths.get(worker.index, 0) < MAX_ATTEMPTS:
            queue.appendleft(worker.index)

    def _start(self) -> _Worker:
        """Start a worker."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        task = _Task(self.config, self.conditions, self.engine, self.directory.path)
        process = context.Process(target=_work, args=(theirs, task), daemon=True)
        with interrupts_blocked():
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def _end_workers(self) -> None:
        """Tell idle workers that nothing comes, and end the others: asked first, to clean up, then by force."""
        for worker in self._workers:
            if worker.index >= 0:
                worker.process.terminate()
            worker.channel.close()
        deadline = time.monotonic() + PATIENCE_S
        while (alive := [w.process for w in self._workers if w.process.is_alive()]) and time.monotonic() < deadline:
            connection.wait([process.sentinel for process in alive], timeout=ASK_AGAIN_S)
        for process in alive:
            process.kill()
        for worker in self._workers:
            worker.process.join()
        self._workers = []


def _work(channel: Connection, task: _Task) -> None:
    """Run the searches that come, until nothing more comes."""
    prepare_worker()
    end_in_order()
    every = plan_cells(task.config, task.conditions)
    directory = StudyDirectory(task.directory)
    with closing(task.engine.open_store(directory.evaluations)) as store:
        runner = CellRunner(task.config, directory, task.engine, store)
        runner.on_trial = lambda _, number: channel.send(_Trial(number))
        channel.send(_Started())
        while True:
            try:
                index = channel.recv()
            except (EOFError, OSError):
                return
            channel.send(_try_run(runner, every[index]))


def _try_run(runner: CellRunner, cell: Cell) -> _Ended:
    """Run one search; its error is an answer, as it would come again."""
    try:
        runner.run(cell)
    except PhazeOptError as error:
        return _Ended(error)
    except Exception as error:
        text = "".join(traceback.format_exception(error)).strip()
        return _Ended(PhazeOptError(f"the search {cell.key} failed: {text}"))
    return _Ended()
