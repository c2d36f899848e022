"""Evaluating points in this process or in others; results come in the order asked for, whoever computed them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import connection, resource_tracker
from multiprocessing.util import Finalize
from typing import Any, Protocol

from phaze_opt.errors import SolverError
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.space.point import DesignPoint

PATIENCE_S = 3.0
"""How long interrupted workers may take to clean up."""
ASK_AGAIN_S = 0.05


class PointObjective(Protocol):
    """Prices design points; pure, so that who evaluates and in what order does not matter."""

    def evaluate(self, point: DesignPoint, /) -> Evaluation:
        """The evaluation of one point."""
        ...


ObjectiveFactory = Callable[[Any], PointObjective]
"""Makes the objective of a scenario; picklable, as worker processes call it."""


class PendingEvaluation(Protocol):
    """An evaluation asked for."""

    def result(self) -> tuple[Evaluation, float]:
        """The evaluation and the time it took, s; waits for it, or computes it now."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        ...

    @property
    def is_waiting(self) -> bool:
        """Whether somebody beyond this process's workers computes it, so that the time may be used otherwise."""
        ...


class Evaluator(Protocol):
    """Where evaluations happen."""

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Ask for the evaluation of points."""
        ...


@contextmanager
def open_evaluator(factory: ObjectiveFactory, scenario: object, *, jobs: int, batch: int) -> Iterator[Evaluator]:
    """An evaluator with at most one process per point of a batch; nothing of it is left afterwards."""
    workers = min(jobs, batch)
    if workers == 1:
        yield SerialEvaluator(partial(factory, scenario))
        return
    evaluator = ProcessEvaluator(partial(factory, scenario), num_workers=workers)
    try:
        yield evaluator
    except BaseException:
        evaluator.kill()
        raise
    finally:
        evaluator.close()


@dataclass(slots=True)
class SerialEvaluator:
    """Evaluates in this process, each point when its result is asked for."""

    build: Callable[[], PointObjective]
    _objective: PointObjective | None = None

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Note the points."""
        if self._objective is None:
            self._objective = self.build()
        return tuple(_Deferred(self._objective, point) for point in points)


@dataclass(slots=True)
class _Deferred:
    """An evaluation that happens when its result is asked for."""

    objective: PointObjective
    point: DesignPoint
    is_done: bool = False
    is_waiting: bool = False

    def result(self) -> tuple[Evaluation, float]:
        """Evaluate now."""
        return _timed(self.objective, self.point)


@dataclass(slots=True)
class ProcessEvaluator:
    """Evaluates in spawned processes that ignore Ctrl-C and end with this one, however it ends."""

    build: Callable[[], PointObjective]
    num_workers: int
    _executor: ProcessPoolExecutor | None = None
    _workers: list[multiprocessing.process.BaseProcess] = field(default_factory=list)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Hand the points to the workers."""
        try:
            if self._executor is None:
                return self._start(points)
            return tuple(_Submitted(self._executor.submit(_evaluate, point)) for point in points)
        except BrokenProcessPool as error:
            raise _worker_died() from error

    def _start(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Start the workers with the first points; executors start them on the first submit."""
        self._executor = ProcessPoolExecutor(
            max_workers=self.num_workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self.build,),
        )
        others = set(multiprocessing.active_children())
        with _interrupts_blocked():
            pending = tuple(_Submitted(self._executor.submit(_evaluate, point)) for point in points)
        self._workers = [child for child in multiprocessing.active_children() if child not in others]
        return pending

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


@dataclass(frozen=True, slots=True)
class _Submitted:
    """An evaluation under way in a worker."""

    future: Future[tuple[Evaluation, float]]

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it."""
        try:
            return self.future.result()
        except BrokenProcessPool as error:
            raise _worker_died() from error

    @property
    def is_done(self) -> bool:
        """Whether it ended with a result."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None

    @property
    def is_waiting(self) -> bool:
        """Never: `result` waits for this process's own workers."""
        return False


def _worker_died() -> SolverError:
    """The error of a pool whose worker was killed from outside, as by the kernel when memory runs out."""
    return SolverError(
        "a worker process ended in the middle of an evaluation, perhaps for lack of memory; "
        "finished trials are kept: use fewer --jobs and --resume"
    )


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block SIGINT here and in the processes started inside; one that comes meanwhile is delivered afterwards.

    The resource tracker would unblock SIGINT when it starts, so it is started first.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


FIRST_AT_EXIT = 1000
"""Priority among what multiprocessing does when a worker ends; higher goes first."""
_BUILD: ContextVar[Callable[[], PointObjective]] = ContextVar("build")
"""Of a worker process: how to make its objective; set once, when it starts."""


def _start_worker(build: Callable[[], PointObjective]) -> None:
    """Prepare a worker: deaf to Ctrl-C, watching its parent, its objective made at the first evaluation.

    SIGTERM ends it through Python, so that locks of its libraries are given back rather than reported as leaked. A
    further SIGTERM must not raise inside the last callbacks of a worker that is ending.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Finalize(None, signal.signal, args=(signal.SIGTERM, signal.SIG_IGN), exitpriority=FIRST_AT_EXIT)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _BUILD.set(build)


def _end_with_parent() -> None:
    """End this process when its parent has ended, as it would wait for work forever otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@cache
def _worker_objective() -> PointObjective:
    """The objective of this worker; made once, inside an evaluation so that its errors reach the parent."""
    return _BUILD.get()()


def _evaluate(point: DesignPoint) -> tuple[Evaluation, float]:
    """Evaluate in a worker."""
    return _timed(_worker_objective(), point)


def _timed(objective: PointObjective, point: DesignPoint) -> tuple[Evaluation, float]:
    """The evaluation of a point and the time it took, s."""
    started = time.perf_counter()
    evaluation = objective.evaluate(point)
    return evaluation, time.perf_counter() - started
