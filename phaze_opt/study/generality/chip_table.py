"""The chip table: every candidate chip that can matter on every model of a setting, evaluated exactly."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from phaze_opt.errors import InputError
from phaze_opt.hardware.chip_template import DesignPoint
from phaze_opt.objective.evaluation import Evaluation
from phaze_opt.objective.goals import goal_directions, goal_values
from phaze_opt.record.arrays import Floats, Ints
from phaze_opt.search.probe import PointBound, architecture_of, bound_values
from phaze_opt.study.config import Condition
from phaze_opt.study.result import CellResult, ChipTable

BATCH = 8
"""Chips evaluated at a time, whatever the number of workers: the table must not depend on it."""
ROUNDING = 1e-9
"""Relative allowance by which a bound may fall short of the value it bounds, as both are rounded."""

EvaluatePoints = Callable[[Condition, Sequence[DesignPoint]], Sequence[Evaluation]]
"""Evaluations of points in a condition, in order."""
BoundPoints = Callable[[Condition, Sequence[DesignPoint]], Sequence[PointBound]]
"""Upper bounds of points in a condition, in order, as of `PointBounder.bound`."""


def candidate_chips(cells: Iterable[CellResult], setting: str) -> tuple[DesignPoint, ...]:
    """Distinct chips (points of micro-batch 1) that any search of a setting found feasible, in ascending order."""
    mine = (cell for cell in cells if cell.cell.condition.setting.name == setting)
    return tuple(sorted({architecture_of(trial.point) for cell in mine for trial in cell.trials if trial.values}))


def build_chip_table(
    conditions: Sequence[Condition], chips: Sequence[DesignPoint], *, evaluate: EvaluatePoints, bound: BoundPoints
) -> ChipTable:
    """Each model's value on each candidate chip, at the best micro-batch of its space.

    Chips that cannot matter are left out. A chip is dropped only if some evaluated chip reaches, for every model, at
    least what bounds allow the dropped one: whatever set of chips the dropped one is in, the other one can take its
    place without a loss to any model. So each model's own best value and the best set of k chips by any mean that
    rises with the shares, for every k, are those of all candidates. Micro-batches that a bound rules out are skipped.

    Args:
        conditions: of the single-model workloads of one setting, in the study's order; one goal, one objective.
        chips: candidates; micro-batches are ignored, duplicates removed.
        evaluate: prices points; called with the same points in the same order whatever computes them.
        bound: bounds points; infinite bounds are allowed and rule nothing out.

    Raises:
        InputError: the goal has several objectives.
    """
    first = conditions[0]
    if len(goal_directions(first.goal)) > 1:
        message = (
            f"setting '{first.setting.name}' has the goal '{first.goal}', and designs for one and for many models are "
            "compared by one objective; give it the goal throughput or throughput_per_tdp"
        )
        raise InputError(message, key="generality")
    candidates = tuple(sorted({architecture_of(chip) for chip in chips}))
    pricing = _Pricing(conditions, candidates, evaluate, [_bounds(one, candidates, bound) for one in conditions])
    kept = _relevant(pricing)
    return ChipTable(
        setting=first.setting.name,
        models=tuple(one.workload.name for one in conditions),
        weights=tuple(one.workload.weight for one in conditions),
        chips=tuple(candidates[chip] for chip in kept),
        values=tuple(tuple(float(pricing.lower[row, chip]) for chip in kept) for row in range(len(conditions))),
        micro_batches=tuple(
            tuple(int(pricing.micro_batch[row, chip]) for chip in kept) for row in range(len(conditions))
        ),
        num_candidates=len(candidates),
    )


def _bounds(condition: Condition, chips: Sequence[DesignPoint], bound: BoundPoints) -> Floats:
    """Upper bounds on the objective, shape (num_chips, num_micro_batches); 0 where certainly infeasible."""
    micro_batches = condition.space.axes.micro_batch
    points = [replace(chip, micro_batch=size) for chip in chips for size in micro_batches]
    values = [bound_values(condition.goal, one) for one in bound(condition, points)] if points else []
    bounds = np.array([value[0] if value else 0.0 for value in values], dtype=np.float64)
    return bounds.reshape(len(chips), len(micro_batches)) * (1.0 + ROUNDING)


class _Pricing:
    """What is known of every model on every chip: brackets that evaluations close."""

    def __init__(
        self,
        conditions: Sequence[Condition],
        chips: Sequence[DesignPoint],
        evaluate: EvaluatePoints,
        bounds: Sequence[Floats],
    ) -> None:
        """Nothing is evaluated yet.

        Args:
            conditions: one per model.
            chips: candidates.
            evaluate: prices points.
            bounds: of each model, shape (num_chips, its num_micro_batches).
        """
        self._conditions, self._chips, self._evaluate = conditions, chips, evaluate
        self._open = [one.copy() for one in bounds]
        shape = (len(conditions), len(chips))
        self.lower: Floats = np.zeros(shape)
        self.micro_batch: Ints = np.zeros(shape, dtype=np.int64)

    @property
    def upper(self) -> Floats:
        """What each model can still reach on each chip, shape (num_models, num_chips)."""
        still_open = np.array([one.max(axis=1, initial=0.0) for one in self._open])
        upper: Floats = np.maximum(still_open.reshape(self.lower.shape), self.lower)
        return upper

    def settle(self, row: int, chips: Sequence[int]) -> None:
        """Evaluate a model on chips until no micro-batch left can beat the best one found, highest bound first."""
        condition, bounds = self._conditions[row], self._open[row]
        sizes = condition.space.axes.micro_batch
        while asked := [chip for chip in chips if bounds[chip].max(initial=0.0) > self.lower[row, chip]]:
            choices = [int(np.argmax(bounds[chip])) for chip in asked]
            points = [
                replace(self._chips[chip], micro_batch=sizes[choice])
                for chip, choice in zip(asked, choices, strict=True)
            ]
            for chip, choice, evaluation in zip(asked, choices, self._evaluate(condition, points), strict=True):
                bounds[chip, choice] = 0.0
                values = goal_values(condition.goal, evaluation)
                if values and values[0] > self.lower[row, chip]:
                    self.lower[row, chip] = values[0]
                    self.micro_batch[row, chip] = evaluation.micro_batch if evaluation.is_planned else sizes[choice]
        for chip in chips:
            bounds[chip] = 0.0


def _relevant(pricing: _Pricing) -> list[int]:
    """Chips that are evaluated on every model, ascending; all others are beaten by one of these everywhere.

    The most promising chips (by mean bound over the best bound of each model) are settled first, a model at a time, so
    that a chip that proves bad for one model need not be evaluated on the next.
    """
    num_models, num_chips = pricing.lower.shape
    upper = np.where(np.isfinite(pricing.upper), pricing.upper, 0.0)
    # Promise decides the order of the work alone: whatever it is, a chip is dropped only if a settled one beats it.
    best = np.maximum(upper.max(axis=1, initial=0.0), np.finfo(np.float64).tiny)
    promise = (upper / best[:, None]).mean(axis=0)
    waiting = [int(chip) for chip in np.argsort(-promise, kind="stable")]
    settled: list[int] = []
    while waiting := _undominated(pricing, waiting, settled):
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        for row in range(num_models):
            batch = _undominated(pricing, batch, settled)
            pricing.settle(row, batch)
        settled += batch
    return sorted(chip for chip in settled if pricing.lower[:, chip].any()) if num_chips else []


def _undominated(pricing: _Pricing, chips: Sequence[int], settled: Sequence[int]) -> list[int]:
    """Chips that no settled one is sure to equal or beat on every model."""
    if not settled or not chips:
        return list(chips)
    upper = pricing.upper[:, list(chips)]
    reached = pricing.lower[:, list(settled)]
    is_beaten = np.any(np.all(reached[:, None, :] >= upper[:, :, None], axis=0), axis=1)
    return [chip for chip, beaten in zip(chips, is_beaten.tolist(), strict=True) if not beaten]
