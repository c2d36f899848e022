"""Where a running search finds what is known already and leaves what it finishes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.result import TrialRecord
from phaze_opt.space.point import DesignPoint


@dataclass(frozen=True, slots=True)
class KnownEvaluation:
    """The evaluation of one point and the time it took when it was done, s."""

    evaluation: Evaluation
    wall_s: float


class TrialLog(Protocol):
    """A journal of one search, or a study's share of its evaluations."""

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if it was done before: by this search earlier, or by another one."""
        ...

    def has_trial(self, number: int, point: DesignPoint) -> bool:
        """Whether this very trial was recorded by an earlier run."""
        ...

    def append(self, record: TrialRecord) -> None:
        """Record a finished trial."""
        ...
