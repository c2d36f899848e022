"""Who evaluates for the searches of a process: the process itself, or a Dask cluster that it hands points to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from phaze_opt.search.evaluators import Evaluator, PointObjective, SerialEvaluator
from phaze_opt.study.plan import Condition
from phaze_opt.study.stores.store import EvaluationStore, StoreEvaluator

if TYPE_CHECKING:
    from distributed import Client


class EvaluatorSource(Protocol):
    """Gives the searches of one condition their evaluator."""

    def evaluator(self, store: EvaluationStore, condition: Condition, build: Callable[[], PointObjective]) -> Evaluator:
        """An evaluator that takes on what the store has not and nobody else does.

        Args:
            store: of the study.
            condition: the problem.
            build: makes its objective in this process, kept for all of its searches.
        """
        ...


@dataclass(frozen=True, slots=True)
class ThisProcess:
    """Evaluates here."""

    def evaluator(self, store: EvaluationStore, condition: Condition, build: Callable[[], PointObjective]) -> Evaluator:
        """An evaluator with this process's objective."""
        return StoreEvaluator(store, condition.evaluations_digest, SerialEvaluator(build))


@dataclass(slots=True)
class Cluster:
    """Evaluates on a Dask cluster; one evaluator a condition, so that its searches do not ask for a point twice.

    Attributes:
        client: of the cluster.
        build_objective: makes the objective of a condition on a worker.
    """

    client: Client
    build_objective: Callable[[Condition], PointObjective]
    _made: dict[str, StoreEvaluator] = field(default_factory=dict)

    def evaluator(self, store: EvaluationStore, condition: Condition, build: Callable[[], PointObjective]) -> Evaluator:  # noqa: ARG002
        """An evaluator whose workers make their own objective."""
        from phaze_opt.search.dask_evaluator import DaskEvaluator

        digest = condition.evaluations_digest
        if digest not in self._made:
            cluster = DaskEvaluator(self.client, partial(self.build_objective, condition))
            self._made[digest] = StoreEvaluator(store, digest, cluster)
        return self._made[digest]


@contextmanager
def open_evaluator_source(
    dask: str, build_objective: Callable[[Condition], PointObjective], *, num_workers: int
) -> Iterator[EvaluatorSource]:
    """This process, or the Dask cluster of an address (`search.dask_evaluator.open_dask_client`).

    Raises:
        PluginError: the package for Dask is missing.
        InputError: no scheduler answers there.
    """
    if not dask:
        yield ThisProcess()
        return
    from phaze_opt.search.dask_evaluator import open_dask_client

    with open_dask_client(dask, num_workers=num_workers) as client:
        yield Cluster(client, build_objective)
