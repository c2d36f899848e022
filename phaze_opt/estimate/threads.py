"""Threads for compiled kernels that release the interpreter lock; small work stays on the calling thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_ResultT = TypeVar("_ResultT")

MIN_CELLS = 250_000
"""Accelerators x operators below which starting threads costs more than it saves (experiments/estimator)."""
_MAX_THREADS = 8


def num_threads(num_cells: int) -> int:
    """Threads worth starting for a table of ``num_cells`` entries: one, or one for every core this process may use."""
    if num_cells < MIN_CELLS:
        return 1
    is_limited = hasattr(os, "sched_getaffinity")
    return min(_MAX_THREADS, len(os.sched_getaffinity(0)) if is_limited else os.cpu_count() or 1)


def run_all(tasks: Sequence[Callable[[], _ResultT]]) -> list[_ResultT]:
    """Results of all tasks in order, one thread each; exceptions propagate."""
    if len(tasks) == 1:
        return [tasks[0]()]
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]
