"""Handing evaluations of a store to a cluster: claims are given up whatever goes wrong, nothing is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from phaze_opt.errors import SolverError
from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.trial import KnownEvaluation
from phaze_opt.study.stores.local_store import LocalStore
from phaze_opt.study.stores.store import StoreEvaluator
from phaze_opt.testing.toy_search import ToyObjective, ToyScenario

POINT = DesignPoint(4, 64, 32, 32, 32, 1 << 24, 1 << 35, 2)
KNOWN = KnownEvaluation(ToyObjective(ToyScenario()).evaluate(POINT), 1.5)


@dataclass(slots=True)
class Answer:
    """Comes back at once, or says that its worker died."""

    error: Exception | None
    is_waiting: bool = False
    is_done: bool = True

    def result(self) -> tuple[Evaluation, float]:
        if self.error is not None:
            raise self.error
        return KNOWN.evaluation, KNOWN.wall_s


@dataclass(slots=True)
class FakeCluster:
    error: Exception | None = None
    refusal: Exception | None = None
    asked: list[DesignPoint] = field(default_factory=list)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[Answer, ...]:
        if self.refusal is not None:
            raise self.refusal
        self.asked += points
        return tuple(Answer(self.error) for _ in points)


@dataclass(slots=True)
class FakeStore:
    """Somebody else finishes the point between the look and the claim, if told so."""

    is_finished_meanwhile: bool = False
    num_looks: int = 0
    claims: set[DesignPoint] = field(default_factory=set)

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:  # noqa: ARG002
        self.num_looks += 1
        return KNOWN if self.is_finished_meanwhile and self.num_looks > 1 else None

    def claim(self, digest: str, point: DesignPoint) -> bool:  # noqa: ARG002
        self.claims.add(point)
        return True

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:  # noqa: ARG002
        self.claims.discard(point)
        return evaluation

    def release(self, digest: str, point: DesignPoint) -> None:  # noqa: ARG002
        self.claims.discard(point)

    def close(self) -> None:
        """Nothing is open."""


def test_what_comes_back_is_kept(tmp_path: Path) -> None:
    store, cluster = LocalStore(tmp_path), FakeCluster()
    (pending,) = StoreEvaluator(store, "a", cluster).submit((POINT,))
    assert pending.result() == (KNOWN.evaluation, KNOWN.wall_s)
    assert store.known("a", POINT) == KNOWN
    assert cluster.asked == [POINT]


def test_what_another_process_finished_meanwhile_is_not_asked_again() -> None:
    store, cluster = FakeStore(is_finished_meanwhile=True), FakeCluster()
    (pending,) = StoreEvaluator(store, "a", cluster).submit((POINT,))
    assert pending.result()[0] == KNOWN.evaluation
    assert cluster.asked == []
    assert store.claims == set()


@pytest.mark.parametrize("where", ["error", "refusal"])
def test_a_cluster_that_fails_leaves_no_claim(where: str) -> None:
    store = FakeStore()
    cluster = FakeCluster(**{where: SolverError("the worker died")})
    with pytest.raises(SolverError):
        StoreEvaluator(store, "a", cluster).submit((POINT,))[0].result()
    assert store.claims == set()
