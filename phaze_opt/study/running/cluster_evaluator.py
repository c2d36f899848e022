"""Evaluating for a store on a Dask cluster: claimed here, computed there, kept here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from phaze_opt.search.evaluators import Evaluator, PendingEvaluation
from phaze_opt.search.trial_log import KnownEvaluation
from phaze_opt.space.point import DesignPoint
from phaze_opt.study.stores.store import EvaluationStore, SharedEvaluation


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

    def submit(self, points: Sequence[DesignPoint]) -> tuple[SharedEvaluation, ...]:
        """Hand over what is free."""
        pending = tuple(SharedEvaluation(self, point) for point in points)
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
