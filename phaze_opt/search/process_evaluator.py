"""Evaluating points in worker processes; a killed one costs them once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.workers import Task, Tell, WorkerPool
from phaze_opt.search.evaluators import PendingEvaluation, PointObjective, timed_evaluation
from phaze_opt.space.point import DesignPoint


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


@dataclass(frozen=True, slots=True)
class BuildBench:
    """Makes the bench of a worker; picklable."""

    build: Callable[[], PointObjective]

    def __call__(self) -> ObjectiveBench:
        """The bench."""
        return ObjectiveBench(self.build())


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
