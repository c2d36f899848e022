"""Where evaluations happen: in this process, in workers, or on a Dask cluster.

Results come in the order asked for, whoever computed them.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from phaze_opt.errors import InputError, PluginError, SolverError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.record.worker_process import CHILD_ENVIRONMENT, starting_workers
from phaze_opt.record.workers import Task, Tell, WorkerPool

if TYPE_CHECKING:
    from distributed import Client, Future

LOCAL = "local"
"""In place of an address: processes of this machine."""
NUM_RETRIES = 1
"""How often Dask begins a failed or lost evaluation again."""
CONNECT_S = 10.0


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
        dask: a Dask cluster to evaluate on instead (`open_dask_client`); empty for none.

    Raises:
        PluginError: the package for Dask is missing.
        InputError: no scheduler answers there.
    """
    if dask:
        with open_dask_client(dask, num_workers=jobs) as client:
            yield DaskEvaluator(client, partial(factory, scenario))
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


@contextmanager
def open_dask_client(address: str, *, num_workers: int) -> Iterator[Client]:
    """A client of a Dask cluster; a local one is closed with it.

    Whoever reaches a port of a cluster runs code there. Those of a local one ask for a certificate that is made now and
    never leaves the memory of its processes.

    Args:
        address: ``tcp://host:port`` of a scheduler, or ``local``.
        num_workers: processes of a local cluster.

    Raises:
        PluginError: the package ``distributed`` or ``cryptography`` is missing.
        InputError: no scheduler answers at the address.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        security = Security.temporary() if address == LOCAL else None
    except ImportError as error:
        message = f"--dask needs the packages distributed and cryptography ({error}); install phaze-opt[dask]"
        raise PluginError(message) from error
    if address == LOCAL:
        with dask.config.set(_of_this_machine()):
            with starting_workers():
                cluster = LocalCluster(
                    n_workers=num_workers, threads_per_worker=1, dashboard_address=None, security=security
                )
            with cluster, Client(cluster) as client:
                client.run_on_scheduler(close_pages)
                client.run(close_pages)
                yield client
        return
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        message = f"no Dask scheduler answers ({error}); start one with `dask scheduler` or give {LOCAL}"
        raise InputError(message, source=f"--dask {address}") from error
    with client:
        yield client


def _of_this_machine() -> dict[str, Any]:
    """Settings of a cluster on this machine: it serves no pages, and its processes are as all that this one starts."""
    return {
        "distributed.scheduler.allowed-failures": NUM_RETRIES,
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        **{f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in CHILD_ENVIRONMENT.items()},
    }


def close_pages(dask_scheduler: Any = None, dask_worker: Any = None) -> None:
    """In a scheduler or worker of this machine: close the port of its pages.

    A worker ignores Ctrl-C too: it reaches all processes of a terminal, and the command ends its workers.
    """
    (dask_scheduler or dask_worker).http_server.stop()
    if dask_scheduler is None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(slots=True)
class DaskEvaluator:
    """Submits every point as a task; a task whose worker dies is begun once more.

    Each worker makes the objective once: the factory travels as one scattered value, and the worker keeps what it made
    under that value's key.

    Attributes:
        client: of the cluster.
        build: makes the objective.
    """

    client: Client
    build: Callable[[], PointObjective]
    _scattered: list[Any] = field(default_factory=list)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[PendingEvaluation, ...]:
        """Hand the points to the cluster."""
        if not self._scattered:
            self._scattered.append(self.client.scatter(self.build, broadcast=True, hash=False))
        build = self._scattered[0]
        futures = [
            self.client.submit(_evaluate, build, build.key, point, pure=False, retries=NUM_RETRIES) for point in points
        ]
        return tuple(_Task(future) for future in futures)


@dataclass(frozen=True, slots=True)
class _Task:
    """An evaluation somewhere on the cluster."""

    future: Future

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it."""
        from distributed import KilledWorker

        try:
            answer: tuple[Evaluation, float] = self.future.result()
        except KilledWorker as error:
            message = (
                "a Dask worker ended in the middle of an evaluation, twice, perhaps for lack of memory; "
                "finished trials are kept: mend the cluster and --resume"
            )
            raise SolverError(message) from error
        return answer

    @property
    def is_done(self) -> bool:
        """Whether it ended with a result."""
        return str(self.future.status) == "finished"

    @property
    def is_waiting(self) -> bool:
        """Whether the cluster is still at it."""
        return not self.future.done()


def _evaluate(build: Callable[[], PointObjective], key: str, point: DesignPoint) -> tuple[Evaluation, float]:
    """Evaluate on a worker, which keeps the objective it has made."""
    from distributed import get_worker

    worker = get_worker()
    kept: dict[str, PointObjective] = worker.__dict__.setdefault("phaze_opt_objectives", {})
    if key not in kept:
        kept[key] = build()
    return timed_evaluation(kept[key], point)
