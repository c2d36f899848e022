"""Evaluating for a store on a Dask cluster: claimed here, computed there, kept here."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import Evaluator, PendingEvaluation
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint
from phaze_opt.study.stores.store import WAIT_S, EvaluationStore


@dataclass(slots=True)
class ClusterStoreEvaluator:
    """Hands what nobody else has taken on to a cluster, and keeps what comes back.

    Attributes:
        store: of the study.
        digest: `Condition.evaluations_digest`.
        cluster: evaluates the condition's points.
        under_way: points handed over by any search of the condition, so that two searches do not ask twice.
    """

    store: EvaluationStore
    digest: str
    cluster: Evaluator
    under_way: dict[DesignPoint, PendingEvaluation] = field(default_factory=dict)

    def submit(self, points: Sequence[DesignPoint]) -> tuple[ClusterEvaluation, ...]:
        """Hand over what is free."""
        pending = tuple(ClusterEvaluation(self, point) for point in points)
        for entry in pending:
            entry.advance()
        return pending

    def attempt(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if it is known or has come back; hands it over if nobody has it."""
        known = self.store.known(self.digest, point)
        if known is not None:
            return known
        if point in self.under_way:
            if self.under_way[point].is_waiting:
                return None
            try:
                evaluation, wall_s = self.under_way.pop(point).result()
            except BaseException:
                self.store.release(self.digest, point)
                raise
            return self.store.complete(self.digest, point, KnownEvaluation(evaluation, wall_s))
        if not self.store.claim(self.digest, point):
            return None
        # Between the look and the claim somebody may have finished it.
        known = self.store.known(self.digest, point)
        if known is not None:
            self.store.release(self.digest, point)
            return known
        try:
            (self.under_way[point],) = self.cluster.submit((point,))
        except BaseException:
            self.store.release(self.digest, point)
            raise
        return None


@dataclass(slots=True)
class ClusterEvaluation:
    """An evaluation asked of a cluster through a store."""

    evaluator: ClusterStoreEvaluator
    point: DesignPoint
    outcome: KnownEvaluation | None = None

    def advance(self) -> None:
        """Look whether it has come back."""
        if self.outcome is None:
            self.outcome = self.evaluator.attempt(self.point)

    def result(self) -> tuple[Evaluation, float]:
        """Wait for it."""
        while self.outcome is None:
            self.advance()
            if self.outcome is None:
                time.sleep(WAIT_S)
        return self.outcome.evaluation, self.outcome.wall_s

    @property
    def is_done(self) -> bool:
        """Whether `result` returns at once."""
        return self.outcome is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it is still away."""
        self.advance()
        return self.outcome is None
