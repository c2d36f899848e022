"""Evaluating points in spawned processes that end with this one, however it ends; a killed one costs them once."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import connection

from phaze_opt.errors import SolverError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.worker_process import end_in_order, interrupts_blocked, prepare_worker
from phaze_opt.search.evaluators import PendingEvaluation, PointObjective, timed_evaluation
from phaze_opt.space.point import DesignPoint

PATIENCE_S = 3.0
"""How long interrupted workers may take to clean up."""
ASK_AGAIN_S = 0.05
MAX_ATTEMPTS = 2
"""How often an evaluation is begun; a worker that was killed in it gives it one more."""


@dataclass(slots=True)
class ProcessEvaluator:
    """Evaluates in spawned processes that ignore Ctrl-C and end with this one, however it ends."""

    build: Callable[[], PointObjective]
    num_workers: int
    _executor: ProcessPoolExecutor | None = None
    _workers: list[multiprocessing.process.BaseProcess] = field(default_factory=list)
    _pending: list[_Submitted] = field(default_factory=list)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Hand the points to the workers."""
        self._pending = [entry for entry in self._pending if not entry.is_done]
        new = [_Submitted(self, point) for point in points]
        self._pending += new
        self._hand_over(new)
        return tuple(new)

    def begin_again(self, executor: ProcessPoolExecutor) -> None:
        """Hand what a broken pool of workers left unfinished to a new one.

        Raises:
            SolverError: an evaluation was under way in two pools that broke.
        """
        if executor is not self._executor:
            return
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None
        unfinished = [entry for entry in self._pending if not entry.is_done]
        if any(entry.num_attempts >= MAX_ATTEMPTS for entry in unfinished):
            raise _worker_died()
        self._hand_over(unfinished)

    def _hand_over(self, entries: Sequence[_Submitted]) -> None:
        """Submit entries to the workers, and again should the pool turn out to be broken."""
        executor = self._executor
        try:
            if executor is None:
                self._start(entries)
                return
            for entry in entries:
                entry.submit_to(executor)
        except BrokenProcessPool:
            assert executor is not None
            self.begin_again(executor)

    def _start(self, entries: Sequence[_Submitted]) -> None:
        """Start the workers with the first points; executors start them on the first submit."""
        self._executor = ProcessPoolExecutor(
            max_workers=self.num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self.build,),
        )
        others = set(multiprocessing.active_children())
        with interrupts_blocked():
            for entry in entries:
                entry.submit_to(self._executor)
        self._workers = [child for child in multiprocessing.active_children() if child not in others]

    def kill(self) -> None:
        """End the workers in the middle of what they do: asked first, so that they clean up, then by force.

        Asked again and again, as the pool's own loop in a worker takes what ends an evaluation for its result.
        """
        deadline = time.monotonic() + PATIENCE_S
        while (alive := [worker for worker in self._workers if worker.is_alive()]) and time.monotonic() < deadline:
            for worker in alive:
                worker.terminate()
            connection.wait([worker.sentinel for worker in alive], timeout=ASK_AGAIN_S)
        for worker in alive:
            worker.kill()

    def close(self) -> None:
        """Wait until no worker is left."""
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None


@dataclass(slots=True, eq=False)
class _Submitted:
    """An evaluation under way in a worker."""

    evaluator: ProcessEvaluator
    point: DesignPoint
    num_attempts: int = 0
    _future: Future[tuple[Evaluation, float]] | None = None
    _executor: ProcessPoolExecutor | None = None
    is_waiting: bool = False

    def submit_to(self, executor: ProcessPoolExecutor) -> None:
        """Begin the evaluation."""
        self._executor = executor
        self._future = executor.submit(_evaluate, self.point)
        self.num_attempts += 1

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it; should its worker die, once more."""
        while True:
            assert self._future is not None
            assert self._executor is not None
            try:
                return self._future.result()
            except BrokenProcessPool:
                self.evaluator.begin_again(self._executor)

    @property
    def is_done(self) -> bool:
        """Whether it ended with a result."""
        future = self._future
        return future is not None and future.done() and not future.cancelled() and future.exception() is None


def _worker_died() -> SolverError:
    """The error of a pool whose worker was killed from outside, as by the kernel when memory runs out."""
    return SolverError(
        "a worker process ended in the middle of an evaluation, twice, perhaps for lack of memory; "
        "finished trials are kept: use fewer --jobs and --resume"
    )


_BUILD: ContextVar[Callable[[], PointObjective]] = ContextVar("build")
"""Of a worker process: how to make its objective; set once, when it starts."""


def _start_worker(build: Callable[[], PointObjective]) -> None:
    """Prepare a worker: deaf to Ctrl-C, watching its parent, its objective made at the first evaluation."""
    prepare_worker()
    _BUILD.set(build)


@cache
def _worker_objective() -> PointObjective:
    """The objective of this worker; made once, inside an evaluation so that its errors reach the parent."""
    end_in_order()
    return _BUILD.get()()


def _evaluate(point: DesignPoint) -> tuple[Evaluation, float]:
    """Evaluate in a worker."""
    return timed_evaluation(_worker_objective(), point)
