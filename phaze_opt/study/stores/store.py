"""Where the evaluations of a study are kept and shared by all of its searches, in this process and elsewhere."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.evaluators import Evaluator, PendingEvaluation
from phaze_opt.search.result import KnownEvaluation

WAIT_S = 0.02


class EvaluationStore(Protocol):
    """Evaluations by digest (`Condition.evaluations_digest`) and point, each done once by whoever claims it first.

    Workers are symmetric: each runs the deterministic loops of searches and claims single evaluations. What a search
    is told does not depend on who evaluated, so a store changes the time of a study and nothing else. A claim must not
    outlive its worker: whoever dies with one gives it up.
    """

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point and the time it took when it was done, if it is finished."""
        ...

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Take an evaluation on; False while somebody else has it. May be tried again and again."""
        ...

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Keep a finished evaluation and give its claim up.

        Returns:
            The one that counts: an earlier one, should there be one, as every evaluation counts once.
        """
        ...

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up without a result."""
        ...

    def close(self) -> None:
        """Nothing more comes; claims are given up."""
        ...


@dataclass(frozen=True, slots=True)
class MirroredStore:
    """A study's own store with a shared one behind it, of which claims are made; both keep what anybody finishes.

    Reports are rebuilt from the directory, so it must hold every evaluation that its searches were told.

    Attributes:
        local: of the study's directory.
        shared: of all machines.
    """

    local: EvaluationStore
    shared: EvaluationStore

    def known(self, digest: str, point: DesignPoint) -> KnownEvaluation | None:
        """From the directory, else from the shared store, which is then copied."""
        here = self.local.known(digest, point)
        if here is not None:
            return here
        elsewhere = self.shared.known(digest, point)
        return None if elsewhere is None else self.local.complete(digest, point, elsewhere)

    def claim(self, digest: str, point: DesignPoint) -> bool:
        """Claim a point of the shared store."""
        return self.shared.claim(digest, point)

    def complete(self, digest: str, point: DesignPoint, evaluation: KnownEvaluation) -> KnownEvaluation:
        """Keep an evaluation in both; the shared store's counts.

        Should the shared store fail, the directory keeps what was evaluated, and the failure goes on.
        """
        try:
            evaluation = self.shared.complete(digest, point, evaluation)
        finally:
            evaluation = self.local.complete(digest, point, evaluation)
        return evaluation

    def release(self, digest: str, point: DesignPoint) -> None:
        """Give a claim up."""
        self.shared.release(digest, point)

    def close(self) -> None:
        """Close both."""
        self.shared.close()
        self.local.close()


@dataclass(slots=True)
class StoreEvaluator:
    """Asks an evaluator for what nobody else has taken on; the rest comes from the store when others finish it.

    What is claimed is handed over at once, before anything is waited for, so that workers that come to the same batch
    share it among them.

    Attributes:
        store: of the study.
        digest: `Condition.evaluations_digest`.
        evaluator: of the condition's points: this process, or a cluster.
        under_way: points handed over by any search that shares this evaluator, so that two do not ask twice.
    """

    store: EvaluationStore
    digest: str
    evaluator: Evaluator
    under_way: dict[DesignPoint, PendingEvaluation] = field(default_factory=dict)

    def submit(self, points: Sequence[DesignPoint]) -> "tuple[SharedEvaluation, ...]":
        """Hand over what is free; what this process evaluates is done on return."""
        pending = tuple(SharedEvaluation(self, point) for point in points)
        for entry in pending:
            entry.advance()
        return pending

    def attempt(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if it can be had now; None while somebody else has it or it is under way."""
        known = self.store.known(self.digest, point)
        if known is not None:
            return known
        if point not in self.under_way:
            if not self.store.claim(self.digest, point):
                return self.store.known(self.digest, point)
            if (finished := self.store.known(self.digest, point)) is not None:
                # It was finished between the look and the claim.
                self.store.release(self.digest, point)
                return finished
        try:
            if point not in self.under_way:
                (self.under_way[point],) = self.evaluator.submit((point,))
            if self.under_way[point].is_waiting:
                return None
            evaluation, wall_s = self.under_way.pop(point).result()
        except BaseException:
            self.under_way.pop(point, None)
            self.store.release(self.digest, point)
            raise
        return self.store.complete(self.digest, point, KnownEvaluation(evaluation, wall_s))


@dataclass(slots=True)
class SharedEvaluation:
    """An evaluation asked of a store.

    Attributes:
        evaluator: that asks.
        point: to evaluate.
        outcome: once it is known.
    """

    evaluator: StoreEvaluator
    point: DesignPoint
    outcome: KnownEvaluation | None = None

    def advance(self) -> None:
        """Look whether it is finished, or do it if it is free."""
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
        """Whether somebody else has it; takes it on if they have given it up."""
        self.advance()
        return self.outcome is None
