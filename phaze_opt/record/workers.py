"""A pool of worker processes, with one way to lose a worker and to begin its work again.

Workers are spawned, ignore Ctrl-C, and end with this process, however it ends. Each has one piece of work at a time.
A worker that dies costs the piece that it had, which another begins once more; a piece that cost two workers fails.
"""

import multiprocessing
import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Protocol

from phaze_opt.errors import PhazeOptError, SolverError
from phaze_opt.record.worker_process import end_in_order, prepare_worker, starting_workers

MAX_ATTEMPTS = 2
"""How often a piece of work is begun; a worker that dies in it gives it one more."""
PATIENCE_S = 3.0
"""How long workers may take to clean up when they are told to end."""
ASK_AGAIN_S = 0.05
Tell = Callable[[object], None]


class Bench(Protocol):
    """What is made once in each process and then does one piece of work after the other."""

    def do(self, work: Any, tell: Tell, /) -> Any:
        """One piece of work; its result depends on nothing but the work.

        Args:
            work: the piece.
            tell: sends word of progress to the process that asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Started:
    """A worker is ready."""


@dataclass(frozen=True, slots=True)
class _Told:
    """Word of progress."""

    message: object


@dataclass(frozen=True, slots=True)
class _Ended:
    """What a piece of work gave."""

    value: object = None
    error: BaseException | None = None


@dataclass(slots=True, eq=False)
class Task:
    """A piece of work that was handed in.

    Attributes:
        work: the piece.
        on_told: called with each word of progress.
        num_deaths: workers that died in it.
    """

    work: object
    _pool: "WorkerPool"
    on_told: Tell | None = None
    num_deaths: int = 0
    _ended: _Ended | None = None
    _waiting: "deque[Task] | None" = None

    @property
    def is_ended(self) -> bool:
        """Whether `result` returns at once."""
        if self._ended is None:
            self._pool.listen(timeout_s=0)
        return self._ended is not None

    @property
    def is_done(self) -> bool:
        """Whether it ended with a result."""
        return self.is_ended and self._ended is not None and self._ended.error is None

    def result(self) -> Any:
        """Wait for it.

        Raises:
            SolverError: two workers died in it, or workers do not even start.
            BaseException: what the work raised.
        """
        while self._ended is None:
            self._pool.listen()
        if self._ended.error is not None:
            raise self._ended.error
        return self._ended.value


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker process and the piece of work that it has."""

    process: BaseProcess
    channel: Connection
    task: Task | None = None
    is_started: bool = False


@dataclass(slots=True)
class WorkerPool:
    """Spawned worker processes; a context that ends them, in the middle of what they do when it is left by an error.

    Attributes:
        build: makes the bench of a worker; picklable, and called in the worker, so that its errors are answers.
        num_workers: processes at most; they are started when there is work for them.
        remedy: what a user does about workers that die; the end of a sentence.
    """

    build: Callable[[], Bench]
    num_workers: int
    remedy: str = "what is finished is kept: use fewer --jobs and --resume"
    _workers: list[_Worker] = field(default_factory=list)
    _queue: deque[Task] = field(default_factory=deque)
    _num_stillborn: int = 0

    def submit(self, work: object, on_told: Tell | None = None) -> Task:
        """Hand in a piece of work; it begins as soon as a worker is free."""
        task = Task(work, self, on_told)
        self._queue.append(task)
        self._hand_out()
        return task

    def map(self, works: Sequence[object]) -> Iterator[Any]:
        """Results in the order of the works, each as soon as it and those before it have ended.

        Raises:
            BaseException: as `Task.result`.
        """
        for task in [self.submit(work) for work in works]:
            yield task.result()

    def ended(self, tasks: Sequence[Task]) -> Iterator[Task]:
        """Tasks in the order in which they end.

        Raises:
            SolverError: workers do not even start.
        """
        ended = deque(task for task in tasks if task._ended is not None)
        for task in tasks:
            task._waiting = ended
        for _ in tasks:
            while not ended:
                self.listen()
            yield ended.popleft()

    def listen(self, *, timeout_s: float | None = None) -> None:
        """Take in what workers have to say.

        Args:
            timeout_s: how long to wait for the first to speak; None waits for ever.

        Raises:
            SolverError: workers do not even start.
        """
        busy = {worker.channel: worker for worker in self._workers if worker.task is not None}
        for channel in connection.wait(list(busy), timeout=timeout_s):
            assert isinstance(channel, Connection)
            self._hear(busy[channel])
        self._hand_out()

    def _hear(self, worker: _Worker) -> None:
        """Take in one message of a worker, or its death."""
        assert worker.task is not None
        try:
            message = worker.channel.recv()
        except (EOFError, OSError):
            self._bury(worker)
            return
        if isinstance(message, _Started):
            worker.is_started = True
        elif isinstance(message, _Told):
            if worker.task.on_told is not None:
                worker.task.on_told(message.message)
        else:
            task, worker.task = worker.task, None
            self._end(task, message)

    def _end(self, task: Task, ended: _Ended) -> None:
        task._ended = ended
        if task._waiting is not None:
            task._waiting.append(task)

    def _bury(self, worker: _Worker, *, has_begun: bool = True) -> None:
        """Give the work of a dead worker to another one, once if it had begun it.

        Raises:
            SolverError: workers do not even start.
        """
        self._workers.remove(worker)
        worker.channel.close()
        worker.process.join()
        task = worker.task
        assert task is not None
        if not worker.is_started:
            self._num_stillborn += 1
            if self._num_stillborn >= MAX_ATTEMPTS:
                message = f"worker processes end as they start (exit code {worker.process.exitcode}); use --jobs 1"
                raise SolverError(message)
        elif has_begun:
            task.num_deaths += 1
        if task.num_deaths < MAX_ATTEMPTS:
            self._queue.appendleft(task)
            return
        message = (
            "a worker process ended in the middle of its work, twice in the same piece, perhaps for lack of memory; "
            f"{self.remedy}"
        )
        self._end(task, _Ended(error=SolverError(message)))

    def _hand_out(self) -> None:
        """Give every idle worker a piece, and start workers while there are pieces for them."""
        for worker in tuple(self._workers):
            if self._queue and worker.task is None:
                self._give(worker)
        while self._queue and len(self._workers) < self.num_workers:
            worker = self._start()
            self._workers.append(worker)
            self._give(worker)

    def _give(self, worker: _Worker) -> None:
        """Send a piece; a worker that has died since its last one is replaced."""
        worker.task = self._queue.popleft()
        try:
            worker.channel.send(worker.task.work)
        except OSError:
            self._bury(worker, has_begun=False)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, bytes(ForkingPickler.dumps(self.build))), daemon=True)
        with starting_workers():
            process.start()
        theirs.close()
        return _Worker(process, ours)

    def close(self) -> None:
        """End the workers: those at work are asked first, so that they clean up, and then forced."""
        for worker in self._workers:
            if worker.task is not None:
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
        self._queue.clear()

    def __enter__(self) -> "WorkerPool":
        """The pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the workers."""
        self.close()


def _work(channel: Connection, pickled: bytes) -> None:
    """Do the pieces of work that come, until nothing more comes; reading what builds the bench imports most of all."""
    prepare_worker()
    build: Callable[[], Bench] = pickle.loads(pickled)
    end_in_order()
    channel.send(_Started())
    bench: Bench | None = None
    while True:
        try:
            work = channel.recv()
        except (EOFError, OSError):
            return
        try:
            bench = bench or build()
            ended = _Ended(bench.do(work, lambda message: channel.send(_Told(message))))
        except Exception as error:
            ended = _Ended(error=_portable(error))
        channel.send(ended)


def _portable(error: Exception) -> Exception:
    """An error that travels whole, with the traceback of its worker as a note."""
    text = "".join(traceback.format_exception(error)).strip()
    try:
        error.add_note(f"in a worker process: {text}")
        pickle.loads(pickle.dumps(error))
    except Exception:
        return PhazeOptError(f"{type(error).__name__} in a worker process: {text}")
    return error
