"""What a study leaves behind, as it is read back from its directory: the only source of tables, figures and runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.search.result import Trial
from phaze_opt.study.config import Cell, Condition, StudyConfig

COUNTS = ("probes", "pruned", "ilp_solves", "placements")
"""What a search counts beside its trials."""
ROUNDING = 1e-9
"""Relative difference up to which a value that beats a truth only shows rounding."""


@dataclass(frozen=True, slots=True)
class CellResult:
    """One finished search, charged as if it had been alone.

    Attributes:
        cell: which one.
        trials: by number.
        probes, pruned, ilp_solves, placements: as in `SearchResult`, of the distinct evaluations of this cell.
        overhead_s: spent in strategy and pruner, s.
        is_exhausted: it ended before its budget because nothing was left to propose.
        search_id: name of its search in events.
    """

    cell: Cell
    trials: tuple[Trial[None], ...]
    probes: int
    pruned: int
    ilp_solves: int
    placements: int
    overhead_s: float
    is_exhausted: bool
    search_id: str = ""

    @property
    def evaluations(self) -> int:
        """Trials, repeats included."""
        return len(self.trials)

    @property
    def distinct_evaluations(self) -> int:
        """Distinct points."""
        return sum(not trial.is_repeat for trial in self.trials)

    @property
    def charged_s(self) -> float:
        """Evaluations plus overhead: the time of the search alone on one core, s."""
        return self.overhead_s + sum(trial.wall_s for trial in self.trials)


@dataclass(frozen=True, slots=True)
class FailedSearch:
    """A search that a fault in its contender's code ended.

    Attributes:
        cell: which one.
        error: in one line.
        traceback: where it was raised.
        file: that keeps it.
    """

    cell: Cell
    error: str
    traceback: str
    file: Path


class TruthKind(StrEnum):
    """How the best value of a condition is known."""

    CERTIFIED = "certified"
    ENUMERATED = "enumerated"
    BEST_KNOWN = "best known"

    @property
    def is_proved(self) -> bool:
        """Whether nothing better exists, by proof or by looking at every point."""
        return self is not TruthKind.BEST_KNOWN


@dataclass(frozen=True, slots=True)
class Truth:
    """The best value of a condition's single objective; of several objectives a certified front.

    Enumerated: the largest of all evaluations, exactly; an evaluation whose schedules leave a gap
    (`Evaluation.schedule_gap`) is itself exact up to that gap only.

    Attributes:
        kind: how it is known.
        value: of the objective.
        point: a point that attains it.
        gap: certified: no point exceeds ``value`` by more than this, relatively; 0 otherwise.
        front: of several objectives their values at every design on the front, in the order of the goal's objectives;
            ``value`` and ``point`` are then those of the design best in the first.
    """

    kind: TruthKind
    value: float
    point: DesignPoint
    gap: float = 0.0
    front: tuple[tuple[float, ...], ...] = ()

    def is_above(self, other: "Truth") -> bool:
        """Whether this value is more than rounding above all that another truth allows."""
        return self.value > other.value * (1.0 + other.gap) * (1.0 + ROUNDING)

    def raised_to(self, value: float, point: DesignPoint) -> "Truth":
        """The same proof with a better attained value: what it allows above shrinks accordingly."""
        gap = max(0.0, self.value * (1.0 + self.gap) / value - 1.0)
        return Truth(self.kind, value, point, gap=gap)


@dataclass(frozen=True, slots=True)
class TruthRecord:
    """What is kept of an enumeration or a certificate.

    Attributes:
        problem_digest: of the condition.
        truth: None if no point of the space is feasible.
        num_points: of the space.
        num_evaluated: points evaluated, or solved for a certificate.
        schedule_gap: largest relative gap that the schedules of the optimum leave.
        package_version: that it was computed with.
        wall_s: how long it took, s.
    """

    problem_digest: str
    truth: Truth | None
    num_points: int
    num_evaluated: int
    schedule_gap: float
    package_version: str
    wall_s: float


@dataclass(frozen=True, slots=True)
class ChipTable:
    """Every candidate chip on every model of one setting: the price matrix before it is a price.

    Attributes:
        setting: its name.
        models: names of the single-model workloads, in the study's order.
        weights: of the workloads.
        chips: candidate chips that can matter (points of micro-batch 1: the micro-batch is each model's own choice).
        values: ``values[model][chip]``: the setting's objective at the model's best micro-batch; 0 if infeasible.
        micro_batches: ``micro_batches[model][chip]``: that micro-batch; 0 if infeasible.
        num_candidates: chips considered; those not in ``chips`` are proved to be matched by one that is.
    """

    setting: str
    models: tuple[str, ...]
    weights: tuple[float, ...]
    chips: tuple[DesignPoint, ...]
    values: tuple[tuple[float, ...], ...]
    micro_batches: tuple[tuple[int, ...], ...]
    num_candidates: int = 0


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A study, finished or not.

    Attributes:
        config: its plan.
        study_id: ``<name>-<digest>``: its directory, its experiment's tag.
        directory: where it is kept.
        conditions: settings x workloads, in the study's order.
        cells: finished cells, in the study's order.
        num_cells: planned.
        truths: by key of the condition; none for several objectives.
        references: evaluations of the reference machines and expert placements, by key of the condition and name.
        chip_tables: of the generality question, by setting; empty if it was not asked.
        provenance: versions and machine, for people.
        failures: searches that faults in their contenders' code ended, in the study's order.
        is_interrupted: the run that returned it was ended by Ctrl-C; never of a study read from its directory.
    """

    config: StudyConfig
    study_id: str
    directory: Path
    conditions: tuple[Condition, ...]
    cells: tuple[CellResult, ...]
    num_cells: int
    truths: Mapping[str, Truth] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, Evaluation]] = field(default_factory=dict)
    chip_tables: tuple[ChipTable, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    failures: tuple[FailedSearch, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether every planned cell is finished."""
        return len(self.cells) == self.num_cells

    @property
    def has_ended(self) -> bool:
        """Whether every planned cell is finished or has failed."""
        return len(self.cells) + len(self.failures) == self.num_cells

    @property
    def unranked(self) -> tuple[str, ...]:
        """Contenders with a failed search, in the study's order: what is left of them is no fair sample."""
        failed = {failure.cell.contender.name for failure in self.failures}
        return tuple(contender.name for contender in self.config.contenders if contender.name in failed)

    @property
    def ranked_cells(self) -> tuple[CellResult, ...]:
        """Finished searches of contenders that are ranked."""
        unranked = self.unranked
        return tuple(cell for cell in self.cells if cell.cell.contender.name not in unranked)
