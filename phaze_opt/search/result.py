"""What a search returns."""

from dataclasses import dataclass

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.trial import Trial


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """Where a search stands after a trial; ``best_values`` is empty as long as nothing feasible was found."""

    num_finished: int
    num_trials: int
    latest: Trial[Evaluation]
    best: Trial[Evaluation] | None


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
