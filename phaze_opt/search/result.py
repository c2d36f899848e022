"""Finished trials, the one record that searches, journals, studies and trackers share; what a search returns."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation, EvaluationStatus
from phaze_opt.objective.goals import Goal

_E_co = TypeVar("_E_co", bound=Evaluation | None, covariant=True)
_Other = TypeVar("_Other", bound=Evaluation | None)


SEARCH_COUNTS = ("evaluations", "distinct_evaluations", "probes", "ilp_solves", "placements", "pruned")
"""Of a search or all of a study's, as JSON has them."""


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


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The outcome of a search; all but times (``wall_s``, the trials' own, ``overhead_s``) is the same for any jobs.

    Attributes:
        search_id: directory of its journal in the working directory.
        best: best feasible evaluation by the first objective (throughput for the goal ``pareto``), of equals the one of
            least area, then of least TDP, then the earliest; None if nothing feasible was found.
        best_number: its trial, -1 if there is none.
        pareto_front: trials that no other dominates, largest first objective first; of one for a single objective.
        evaluations: trials finished, repeats included.
        distinct_evaluations: distinct points among them.
        probes: architectures that the strategy and the pruner looked at through a probe.
        ilp_solves: ordering MIPs solved for the distinct evaluations.
        placements: placement problems solved for them.
        pruned: distinct points that the pruner dropped.
        is_pruning_safe: the pruner, if there was one, drops nothing that could be the best.
        open_gap: by how much open schedules of a trial's design leave it better than the front, relative to it;
            infinite where they leave open what plan its value is of.
        wall_s: of this run, s.
        overhead_s: of it in the strategy and the pruner, s.
        is_interrupted: ended by Ctrl-C.
        is_exhausted: ended because the strategy had no point left to propose, or none that the pruner kept.
        trials: by number.
    """

    search_id: str
    best: Evaluation | None
    best_number: int
    pareto_front: tuple[Trial[Evaluation], ...]
    evaluations: int
    distinct_evaluations: int
    probes: int
    ilp_solves: int
    placements: int
    pruned: int
    wall_s: float
    overhead_s: float
    is_interrupted: bool
    is_exhausted: bool
    trials: tuple[Trial[Evaluation], ...]
    is_pruning_safe: bool = True
    open_gap: float = 0.0


def open_gap_of(goal: Goal, front: Sequence[Trial[Evaluation]], trials: Sequence[Trial[Evaluation]]) -> float:
    """`SearchResult.open_gap`, as values but those per joule go with throughput.

    Args:
        goal: of the values, throughput or a ratio of it first, what is minimised behind.
        front: trials that no other dominates.
        trials: all of them.
    """
    found = 0.0
    for trial in trials:
        if not trial.values or not trial.evaluation.rate_gap:
            continue
        if goal is Goal.THROUGHPUT_PER_JOULE:
            return math.inf
        most = trial.values[0] / (1.0 - trial.evaluation.rate_gap)
        near = (each for each in front if all(a <= b for a, b in zip(each.values[1:], trial.values[1:], strict=True)))
        found = max(found, most / max(each.values[0] for each in near) - 1.0)
    return found


@dataclass(frozen=True, slots=True)
class OwnBest:
    """What a model gets from a common design, and from the best chip that was found for it alone.

    Attributes:
        common: on the common design.
        point: its own chip.
        own: on its own chip.
        share: value of the goal on the common design over that on its own chip.
        wall_s: time of the search for it alone, beside that of the common one, s.
    """

    common: Evaluation
    point: DesignPoint
    own: Evaluation
    share: float
    wall_s: float
