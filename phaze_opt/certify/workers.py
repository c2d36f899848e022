"""Doing many pieces of one proof's work, here or in worker processes; which of them never changes a result."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from phaze_opt.record.workers import Bench, WorkerPool

QUICK_S = 4.0
"""Work that takes no longer than this is done here, whatever the number of jobs."""


@dataclass(slots=True)
class Workers:
    """Does work in order: in this process for one job, in others for more; a context that ends them.

    Attributes:
        build: makes the bench of another process; picklable.
        jobs: processes.
        here: the bench of this process.
    """

    build: Callable[[], Bench]
    jobs: int
    here: Bench
    _pool: WorkerPool = field(init=False)
    _is_pool_used: bool = False
    _busy_s: float = 0.0

    def __post_init__(self) -> None:
        """Nothing starts before the first work."""
        self._pool = WorkerPool(self.build, self.jobs)

    def map(self, works: Sequence[object]) -> Iterator[Any]:
        """Results in the order of the works, each as soon as it and those before it are done.

        Raises:
            SolverError: two workers ended in the middle of one piece of work.
        """
        left = deque(works)
        while left and (self.jobs == 1 or len(left) == 1 or self._is_quick()):
            started_s = time.perf_counter()
            result = self.here.do(left.popleft(), lambda _: None)
            self._busy_s += time.perf_counter() - started_s
            yield result
        if left:
            self._is_pool_used = True
            yield from self._pool.map(tuple(left))

    def __enter__(self) -> Workers:
        """The workers."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._pool.close()

    def _is_quick(self) -> bool:
        """Whether the work so far was too little for processes, which take seconds to start."""
        return not self._is_pool_used and self._busy_s < QUICK_S
