"""What a study runs on: how objectives, bounds and the store of evaluations are made in every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import PointObjective
from phaze_opt.search.probe import PointBounder
from phaze_opt.study.plan import Condition
from phaze_opt.study.stores.store import EvaluationStore


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


def open_local_store(directory: Path) -> EvaluationStore:
    """Evaluations in files of the study's directory."""
    from phaze_opt.study.stores.local_store import LocalStore

    return LocalStore(directory)


def find_references(condition: Condition) -> Mapping[str, Evaluation]:
    """The reference machines at their best micro-batch."""
    from phaze_opt.objective.references import evaluate_references

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
    open_store: Callable[[Path], EvaluationStore] = open_local_store
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
