"""What a study runs on: how objectives, bounds, evaluators and the store of evaluations are made in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import Evaluator, PointObjective, SerialEvaluator
from phaze_opt.search.probe import PointBounder
from phaze_opt.study.config import Condition
from phaze_opt.study.stores.store import EvaluationStore, LocalStore, StoreEvaluator

if TYPE_CHECKING:
    from distributed import Client


def build_objective(condition: Condition) -> PointObjective:
    """The objective of a condition."""
    from phaze_opt.objective.evaluate import Objective

    return Objective(condition.scenario, constants=condition.constants)


def build_bounder(condition: Condition, objective: PointObjective) -> PointBounder:  # noqa: ARG001
    """Bounds that share the compiled graphs of the objective."""
    from phaze_opt.objective.evaluate import Objective
    from phaze_opt.search.objective_bounder import ObjectiveBounder

    assert isinstance(objective, Objective)
    return ObjectiveBounder(objective)


def find_references(condition: Condition) -> Mapping[str, Evaluation]:
    """The reference machines at their best micro-batch."""
    from phaze_opt.objective.reference_machines import evaluate_references

    return evaluate_references(condition.scenario, condition.space.axes.micro_batch, constants=condition.constants)


@dataclass(frozen=True, slots=True)
class StudyEngine:
    """Functions that a study's processes call; picklable, as workers are spawned.

    Attributes:
        build_objective: makes the objective of a condition.
        build_bounder: makes what strategies and pruners probe; None where nothing bounds the objective.
        open_store: opens the store of evaluations, given its directory in the study's.
        is_shared: other machines use the same store, so every worker starts at another search.
        dask: Dask cluster that evaluates (``tcp://host:port`` or ``local``); empty for none.
        find_references: evaluates the reference machines of a condition; None for none.
    """

    build_objective: Callable[[Condition], PointObjective] = build_objective
    build_bounder: Callable[[Condition, PointObjective], PointBounder] | None = build_bounder
    open_store: Callable[[Path], EvaluationStore] = LocalStore
    is_shared: bool = False
    dask: str = ""
    find_references: Callable[[Condition], Mapping[str, Evaluation]] | None = find_references


def shared_engine(*, storage: str = "", dask: str = "") -> StudyEngine:
    """The package's own engine, beyond one process.

    Args:
        storage: address of an Optuna RDB storage that workers on many machines share; empty for none.
        dask: address of a Dask cluster, or ``local``; empty for none.

    Raises:
        PluginError: the driver of the database is missing.
        InputError: the address is wrong, or the database does not answer; no message holds a secret.
    """
    if not storage:
        return StudyEngine(dask=dask)
    from phaze_opt.record.address import parse_address
    from phaze_opt.study.stores.optuna_store import open_mirrored_store
    from phaze_opt.study.stores.rdb_storage import open_rdb_storage

    address = parse_address(storage, source="--storage")
    # Tables are made here, once, before worker processes come at the same time.
    open_rdb_storage(address).engine.dispose()
    return StudyEngine(open_store=partial(open_mirrored_store, address=address), is_shared=True, dask=dask)


MAX_KEPT = 8
"""Conditions whose compiled graphs are kept; searches come in the order of conditions."""


@dataclass(slots=True)
class CompiledConditions:
    """Compiled graphs by `Condition.evaluations_digest`: conditions that differ in goal or space alone share them.

    Sharing changes speed, never a result.

    Attributes:
        engine: makes objectives and bounds.
    """

    engine: StudyEngine
    _objectives: dict[str, PointObjective] = field(default_factory=dict)
    _bounders: dict[str, PointBounder] = field(default_factory=dict)

    def objective(self, digest: str, condition: Condition) -> PointObjective:
        """The objective of a condition, by its digest."""
        if digest not in self._objectives:
            while len(self._objectives) >= MAX_KEPT:
                oldest = next(iter(self._objectives))
                del self._objectives[oldest]
                self._bounders.pop(oldest, None)
            self._objectives[digest] = self.engine.build_objective(condition)
        return self._objectives[digest]

    def bounder(self, digest: str, condition: Condition) -> PointBounder:
        """Its bounds, on the same compiled graphs; the engine must have some."""
        assert self.engine.build_bounder is not None
        if digest not in self._bounders:
            self._bounders[digest] = self.engine.build_bounder(condition, self.objective(digest, condition))
        return self._bounders[digest]


@dataclass(slots=True)
class EvaluatorSource:
    """Who evaluates for the searches of a process: the process itself, or a Dask cluster that it hands points to.

    Attributes:
        client: of the cluster; None evaluates here.
        build_objective: makes the objective of a condition on a worker of the cluster.
    """

    client: Client | None = None
    build_objective: Callable[[Condition], PointObjective] = build_objective
    _made: dict[str, StoreEvaluator] = field(default_factory=dict)

    def evaluator(self, store: EvaluationStore, condition: Condition, build: Callable[[], PointObjective]) -> Evaluator:
        """An evaluator that takes on what the store has not and nobody else does.

        Of a cluster one a condition, so that its searches do not ask for a point twice.

        Args:
            store: of the study.
            condition: the problem.
            build: makes its objective in this process, kept for all of its searches.
        """
        digest = condition.evaluations_digest
        if self.client is None:
            return StoreEvaluator(store, digest, SerialEvaluator(build))
        if digest not in self._made:
            from phaze_opt.search.evaluators import DaskEvaluator

            cluster = DaskEvaluator(self.client, partial(self.build_objective, condition))
            self._made[digest] = StoreEvaluator(store, digest, cluster)
        return self._made[digest]


@contextmanager
def open_evaluator_source(
    dask: str, build_objective: Callable[[Condition], PointObjective], *, num_workers: int
) -> Iterator[EvaluatorSource]:
    """This process, or the Dask cluster of an address (`search.evaluators.open_dask_client`).

    Raises:
        PluginError: the package for Dask is missing.
        InputError: no scheduler answers there.
    """
    if not dask:
        yield EvaluatorSource()
        return
    from phaze_opt.search.evaluators import open_dask_client

    with open_dask_client(dask, num_workers=num_workers) as client:
        yield EvaluatorSource(client, build_objective)
