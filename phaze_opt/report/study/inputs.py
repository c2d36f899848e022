"""What a report of a study is made from: persisted results, their judgement, and the best designs among them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import Goal, front_indices, goal_directions
from phaze_opt.study.config import Condition
from phaze_opt.study.load import open_evaluations
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.scores import ContenderScore, StudySummary
from phaze_opt.study.summary import summarise


@dataclass(frozen=True, slots=True, eq=False)
class ReportInputs:
    """A study, its judgement, and the evaluations of what it tried.

    Attributes:
        result: read back from the study's directory.
        summary: of the same result.
        evaluations: by key of the condition and point; those that are not kept may be absent.
        run_ids: runs of the tracker by key of the cell, where they are known.
    """

    result: StudyResult
    summary: StudySummary
    evaluations: Mapping[str, Mapping[DesignPoint, Evaluation]] = field(default_factory=dict)
    run_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def contenders(self) -> tuple[str, ...]:
        """Names in the study's order: the place in it is a contender's look in every figure."""
        return tuple(contender.name for contender in self.result.config.contenders)

    @property
    def budget(self) -> int:
        """Evaluations that each search was granted."""
        return self.result.config.budget.evaluations

    @property
    def is_multi_objective(self) -> bool:
        """Whether any condition has several objectives."""
        return any(condition.goal is Goal.PARETO for condition in self.result.conditions)

    def cells_of(self, condition: Condition) -> tuple[CellResult, ...]:
        """Finished searches of a condition."""
        return tuple(cell for cell in self.result.cells if cell.cell.condition.key == condition.key)

    def scores_of(self, condition: Condition) -> tuple[ContenderScore, ...]:
        """Contenders in a condition, best first."""
        return tuple(score for score in self.summary.by_condition if score.condition == condition.key)

    def describe_run(self, cell_key: str, number: int) -> str:
        """Where a trial is to be found: its cell, its number, and its run where known."""
        text = f"{cell_key} trial {number}"
        run_id = self.run_ids.get(cell_key, "")
        return f"{text} (run {run_id})" if run_id else text


PART = 500
"""Trials whose front is found at a time: the time of all at once grows with the square of their number."""


@dataclass(frozen=True, slots=True)
class FoundDesign:
    """One trial worth showing, and where it comes from.

    Attributes:
        cell_key: of the search.
        contender: that searched.
        number: of the trial.
        point: evaluated.
        values: objectives.
        also_found_by: other contenders with the same values.
    """

    cell_key: str
    contender: str
    number: int
    point: DesignPoint
    values: tuple[float, ...]
    also_found_by: tuple[str, ...] = ()


def best_of(inputs: ReportInputs, condition: Condition) -> FoundDesign | None:
    """The trial with the greatest first objective; of equals the better contender's, lowest seed, earliest trial."""
    places = {score.contender: place for place, score in enumerate(inputs.scores_of(condition))}
    found = list(_feasible(inputs, condition))
    if not found:
        return None
    seeds = {cell.cell.key: cell.cell.seed for cell in inputs.cells_of(condition)}
    last = len(places)
    best = min(
        found, key=lambda item: (-item.values[0], places.get(item.contender, last), seeds[item.cell_key], item.number)
    )
    others = dict.fromkeys(
        item.contender for item in found if item.values == best.values and item.contender != best.contender
    )
    return FoundDesign(best.cell_key, best.contender, best.number, best.point, best.values, tuple(others))


def front_of(inputs: ReportInputs, condition: Condition) -> tuple[FoundDesign, ...]:
    """Trials of all searches that no other trial dominates, by falling first objective; of equals the first."""
    found = list({item.values: item for item in reversed(list(_feasible(inputs, condition)))}.values())
    parts = (found[start : start + PART] for start in range(0, len(found), PART))
    kept = _front([item for part in parts for item in _front(part, condition)], condition)
    return tuple(sorted(kept, key=lambda item: (-item.values[0], *item.values[1:])))


def _front(found: Sequence[FoundDesign], condition: Condition) -> list[FoundDesign]:
    kept = front_indices([item.values for item in found], goal_directions(condition.goal))
    return [found[index] for index in kept]


def all_of(inputs: ReportInputs, condition: Condition) -> tuple[FoundDesign, ...]:
    """One trial of every distinct feasible point of a condition."""
    return tuple({item.point: item for item in reversed(list(_feasible(inputs, condition)))}.values())


def _feasible(inputs: ReportInputs, condition: Condition) -> Iterator[FoundDesign]:
    for cell in inputs.cells_of(condition):
        for trial in cell.trials:
            if trial.values and not trial.is_repeat:
                yield FoundDesign(cell.cell.key, cell.cell.contender.name, trial.number, trial.point, trial.values)


def read_inputs(result: StudyResult, *, run_ids: Mapping[str, str] | None = None) -> ReportInputs:
    """Judge a study and read the evaluation of the best design of each condition, where it is kept.

    Args:
        result: of `load_study`.
        run_ids: runs of the tracker by key of the cell, where they are known.
    """
    inputs = ReportInputs(result, summarise(result), run_ids=run_ids or {})
    evaluations = {}
    for condition in result.conditions:
        best = best_of(inputs, condition)
        if best is None:
            continue
        read = open_evaluations(result, condition)
        try:
            evaluations[condition.key] = {best.point: read(best.point)}
        except InputError:  # kept elsewhere: the report says that it has no card
            continue
    return replace(inputs, evaluations=evaluations)
