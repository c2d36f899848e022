"""Doing many pieces of one proof's work, here or in spawned processes; which of them never changes a result."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextvars import ContextVar
from typing import Protocol

from phaze_opt.errors import SolverError
from phaze_opt.record.worker_process import interrupts_blocked, prepare_worker

QUICK_S = 4.0
"""Work that takes no longer than this is done here, whatever the number of jobs."""


class Bench(Protocol):
    """What is made once in each process and then does one piece of work after the other."""

    def do(self, work: object) -> object:
        """One piece of work; its result depends on nothing but the work."""


class Workers:
    """Does work in order: in this process for one job, in spawned ones for more."""

    def __init__(self, build: Callable[[], Bench], *, jobs: int, here: Bench) -> None:
        """Nothing starts before the first work.

        Args:
            build: makes the bench of another process; picklable.
            jobs: processes.
            here: the bench of this process.
        """
        self._build = build
        self._jobs = jobs
        self._here = here
        self._executor: ProcessPoolExecutor | None = None
        self._busy_s = 0.0

    def map(self, works: Sequence[object]) -> Iterator[object]:
        """Results in the order of the works, each as soon as it and those before it are done.

        Raises:
            SolverError: a worker ended in the middle of its work.
        """
        left = deque(works)
        while left and (self._jobs == 1 or len(left) == 1 or self._is_quick()):
            started_s = time.perf_counter()
            result = self._here.do(left.popleft())
            self._busy_s += time.perf_counter() - started_s
            yield result
        try:
            if left:
                with interrupts_blocked():
                    results = self._started().map(_do, left)
                yield from results
        except BrokenProcessPool as error:
            message = (
                "a worker process ended in the middle of its work, perhaps for lack of memory; what is finished is "
                "kept: use fewer --jobs and --resume"
            )
            raise SolverError(message) from error

    def close(self, *, is_hurried: bool = False) -> None:
        """End the processes.

        Args:
            is_hurried: whether in the middle of what they do.
        """
        executor, self._executor = self._executor, None
        if executor is None:
            return
        if is_hurried:
            for process in tuple((executor._processes or {}).values()):
                process.terminate()
        executor.shutdown(wait=True, cancel_futures=True)

    def _is_quick(self) -> bool:
        """Whether the work so far was too little for processes, which take seconds to start."""
        return self._executor is None and self._busy_s < QUICK_S

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._executor = ProcessPoolExecutor(
                max_workers=self._jobs,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(self._build,),
            )
        return self._executor


_BENCH: ContextVar[Bench] = ContextVar("bench")
_BUILD: ContextVar[Callable[[], Bench]] = ContextVar("build")
"""Of a worker process: its bench, made at the first work so that errors reach the parent, and how to make it."""


def _start_worker(build: Callable[[], Bench]) -> None:
    """Prepare a worker, and tell it how to make its bench."""
    prepare_worker()
    _BUILD.set(build)


def _do(work: object) -> object:
    """One piece of work in a worker."""
    bench = _BENCH.get(None)
    if bench is None:
        bench = _BUILD.get()()
        _BENCH.set(bench)
    return bench.do(work)
