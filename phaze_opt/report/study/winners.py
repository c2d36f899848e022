"""The best trial of a condition and the front of several objectives, each with the search that found it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phaze_opt.hardware.template import DesignPoint
from phaze_opt.objective.goals import front_indices, goal_directions
from phaze_opt.report.study.inputs import ReportInputs
from phaze_opt.study.plan import Condition

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
        found,
        key=lambda item: (-item.values[0], places.get(item.contender, last), seeds[item.cell_key], item.number),
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
