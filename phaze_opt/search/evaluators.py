"""Where evaluations happen: in this process, in workers, or on a cluster (`dask_evaluator`).

Results come in the order asked for, whoever computed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.workers import Task, Tell, WorkerPool


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
def open_evaluator(
    factory: ObjectiveFactory, scenario: object, *, jobs: int, batch: int, dask: str = ""
) -> Iterator[Evaluator]:
    """An evaluator with at most one process per point of a batch; nothing of it is left afterwards.

    Args:
        factory: makes the objective.
        scenario: what it is made of.
        jobs: processes; 1 evaluates in this process.
        batch: points asked for at a time.
        dask: a Dask cluster to evaluate on instead (`dask_evaluator.open_dask_client`); empty for none.

    Raises:
        PluginError: the package for Dask is missing.
        InputError: no scheduler answers there.
    """
    if dask:
        from phaze_opt.search.dask_evaluator import open_dask_evaluator

        with open_dask_evaluator(factory, scenario, address=dask, num_workers=jobs) as on_cluster:
            yield on_cluster
        return
    workers = min(jobs, batch)
    if workers == 1:
        yield SerialEvaluator(partial(factory, scenario))
        return
    with WorkerPool(partial(_build_bench, factory, scenario), num_workers=workers) as pool:
        yield ProcessEvaluator(pool)


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
        return timed_evaluation(self.objective, self.point)


def timed_evaluation(objective: PointObjective, point: DesignPoint) -> tuple[Evaluation, float]:
    """The evaluation of a point and the time it took, s."""
    started = time.perf_counter()
    evaluation = objective.evaluate(point)
    return evaluation, time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class ObjectiveBench:
    """An objective in a worker.

    Attributes:
        objective: made there.
    """

    objective: PointObjective

    def do(self, work: DesignPoint, tell: Tell, /) -> tuple[Evaluation, float]:  # noqa: ARG002
        """Evaluate a point."""
        return timed_evaluation(self.objective, work)


def _build_bench(factory: ObjectiveFactory, scenario: object) -> ObjectiveBench:
    return ObjectiveBench(factory(scenario))


@dataclass(frozen=True, slots=True)
class ProcessEvaluator:
    """Hands every point to a pool of workers.

    Attributes:
        pool: its benches are `ObjectiveBench`.
    """

    pool: WorkerPool

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Hand the points to the workers."""
        return tuple(_Submitted(self.pool.submit(point)) for point in points)


@dataclass(frozen=True, slots=True)
class _Submitted:
    """An evaluation under way in a worker."""

    task: Task
    is_waiting: bool = False

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it."""
        answer: tuple[Evaluation, float] = self.task.result()
        return answer

    @property
    def is_done(self) -> bool:
        """Whether it ended with a result."""
        return self.task.is_done
