"""A finished trial: the one record that searches, journals, events, studies and trackers share."""

from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus

_E_co = TypeVar("_E_co", bound=Evaluation | None, covariant=True)
_Other = TypeVar("_Other", bound=Evaluation | None)


@dataclass(frozen=True, slots=True)
class Trial(Generic[_E_co]):
    """One finished trial: `Trial[Evaluation]`, or `Trial[None]` where evaluations are kept elsewhere, as by a study.

    Attributes:
        number: from 0, in the order of proposals.
        point: what was evaluated.
        values: objectives in the order of the goal's directions; empty if infeasible.
        status: of the evaluation.
        wall_s: time its evaluation took when it was done, by this search or another one; 0 for a repeat, s.
        is_repeat: an earlier trial of this search had the same point.
        evaluation: what the point is worth.
        is_resumed: taken from the journal of an earlier run.
    """

    number: int
    point: DesignPoint
    values: tuple[float, ...]
    status: EvaluationStatus
    wall_s: float
    is_repeat: bool
    evaluation: _E_co
    is_resumed: bool = False

    def with_evaluation(self, evaluation: _Other) -> "Trial[_Other]":
        """The same trial with its evaluation, or without."""
        same: Trial[Any] = self
        return replace(same, evaluation=evaluation)


def rank(trial: Trial[Evaluation]) -> tuple[float, float, float, int]:
    """Order of feasible trials, best first: first objective, then least area, least TDP, earliest."""
    return -trial.values[0], trial.evaluation.area_mm2, trial.evaluation.tdp_w, trial.number


@dataclass(frozen=True, slots=True)
class KnownEvaluation:
    """The evaluation of one point, whichever trial it was of, and the time it took when it was done, s."""

    evaluation: Evaluation
    wall_s: float


class TrialLog(Protocol):
    """Where a running search finds what is known already and leaves what it finishes: a journal, or a study's share."""

    def known(self, point: DesignPoint) -> KnownEvaluation | None:
        """The evaluation of a point, if it was done before: by this search earlier, or by another one."""
        ...

    def has_trial(self, number: int, point: DesignPoint) -> bool:
        """Whether this very trial was recorded by an earlier run."""
        ...

    def append(self, trial: Trial[Evaluation]) -> None:
        """Record a finished trial."""
        ...
