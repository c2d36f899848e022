"""From finished searches to scores: what they are measured against, their curves, and all searches of a condition."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phaze_opt.objective.goals import Goal, goal_directions
from phaze_opt.record.arrays import Floats
from phaze_opt.search.result import Trial
from phaze_opt.study.config import Condition
from phaze_opt.study.judging.statistics import (
    area_under_curve,
    evaluations_to,
    hypervolume,
    hypervolume_curve,
    normalise_gains,
    regret_curve,
)
from phaze_opt.study.result import ROUNDING, CellResult, StudyResult, Truth, TruthKind
from phaze_opt.study.scores import COSTS, CellScore


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """What several objectives are measured in: the box between the worst and the best known value of each.

    Attributes:
        worst, best: over all feasible trials and the certified front, if there is one; shape (num_objectives,).
        hypervolume: share of the box that the non-dominated ones of all of them dominate.
    """

    worst: Floats
    best: Floats
    hypervolume: float


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What the regret of one condition is against; both None if nothing feasible is known.

    Attributes:
        goal: of the condition.
        truth: of a single objective, or the certified front of several.
        box: of several objectives.
        beaten_truth: the truth handed in, if a search did better: then it was none, and the best known counts.
    """

    goal: Goal
    truth: Truth | None = None
    box: Box | None = None
    beaten_truth: Truth | None = None


def yardstick_of(goal: Goal, cells: Iterable[CellResult], truth: Truth | None) -> Yardstick:
    """What cells of one condition are measured against.

    A search may do better than a certificate's incumbent within the certificate's gap: then regret is against that
    search, and the certificate still bounds what is above it.

    Args:
        goal: of the condition.
        cells: all finished searches of the condition, of one study or of several that share the problem.
        truth: certified or enumerated best value, if there is one; a best known one counts for nothing, as what is
            known is what these cells found.
    """
    feasible = [trial for cell in cells for trial in cell.trials if trial.values]
    if len(goal_directions(goal)) > 1:
        values = [trial.values for trial in feasible]
        front = truth if truth is not None and truth.front else None
        values += front.front if front is not None else ()
        return Yardstick(goal, truth=front, box=box_of(goal, values)) if values else Yardstick(goal)
    found = max(feasible, key=lambda trial: trial.values[0], default=None)
    if truth is not None and truth.kind is TruthKind.BEST_KNOWN:
        truth = None
    if found is None or (truth is not None and found.values[0] <= truth.value * (1.0 + ROUNDING)):
        return Yardstick(goal, truth=truth)
    best_known = Truth(TruthKind.BEST_KNOWN, found.values[0], found.point)
    if truth is not None and not best_known.is_above(truth):
        return Yardstick(goal, truth=truth.raised_to(found.values[0], found.point))
    return Yardstick(goal, truth=best_known, beaten_truth=truth)


def front_regret(goal: Goal, found: Sequence[tuple[float, ...]], front: Sequence[tuple[float, ...]]) -> float:
    """Share of the hypervolume of a front, and of what was found, that what was found misses.

    Args:
        goal: of several objectives.
        found: values of feasible trials.
        front: values of a front that is known.
    """
    box = box_of(goal, [*found, *front])
    gains = normalise_gains(np.array(found, dtype=np.float64), worst=box.worst, best=box.best)
    missing = 1.0 - hypervolume(gains) / box.hypervolume if box.hypervolume > 0.0 else 0.0
    return missing if missing > ROUNDING else 0.0


def box_of(goal: Goal, rows: Sequence[tuple[float, ...]]) -> Box:
    """The box of values of several objectives."""
    values = np.array(rows, dtype=np.float64)
    is_up = np.array([direction == "maximize" for direction in goal_directions(goal)])
    low, high = values.min(axis=0), values.max(axis=0)
    worst, best = np.where(is_up, low, high), np.where(is_up, high, low)
    return Box(worst, best, hypervolume(np.unique(normalise_gains(values, worst=worst, best=best), axis=0)))


def score_cell(cell: CellResult, yardstick: Yardstick, *, budget: int, targets: Sequence[float]) -> CellScore:
    """Judge one search.

    Args:
        cell: the search.
        yardstick: of its condition.
        budget: evaluations over which the area under the curve is taken.
        targets: relative regrets.
    """
    curve, volume = _curve(cell.trials, yardstick)
    needed = {target: count for target in targets if (count := evaluations_to(curve, target)) is not None}
    spent_s = charged_until_s(cell)
    condition = cell.cell.condition
    return CellScore(
        key=cell.cell.key,
        setting=condition.setting.name,
        workload=condition.workload.name,
        contender=cell.cell.contender.name,
        seed=cell.cell.seed,
        curve=curve,
        regret=float(curve[-1]) if len(curve) else 1.0,
        area_under_curve=area_under_curve(curve, budget),
        evaluations_to=needed,
        seconds_to={target: float(spent_s[count - 1]) for target, count in needed.items()},
        hypervolume=volume,
        **{name: getattr(cell, name) for name in COSTS},
    )


def _curve(trials: Sequence[Trial[None]], yardstick: Yardstick) -> tuple[Floats, float]:
    """The regret curve and the final hypervolume (0 for a single objective)."""
    box = yardstick.box
    if box is None:
        best = yardstick.truth.value if yardstick.truth is not None else 0.0
        is_single = len(goal_directions(yardstick.goal)) == 1
        return regret_curve([trial.values[0] if trial.values and is_single else None for trial in trials], best), 0.0
    gains = [
        normalise_gains(np.array(trial.values, dtype=np.float64), worst=box.worst, best=box.best)
        if trial.values
        else None
        for trial in trials
    ]
    volumes = hypervolume_curve(gains, num_objectives=len(box.worst))
    if box.hypervolume > 0.0:
        curve = np.clip(1.0 - volumes / box.hypervolume, 0.0, 1.0)
    else:
        curve = 1.0 - np.maximum.accumulate(np.array([gain is not None for gain in gains], dtype=np.float64))
    curve[curve < ROUNDING] = 0.0
    return curve, float(volumes[-1]) if len(volumes) else 0.0


def charged_until_s(cell: CellResult) -> Floats:
    """Time charged up to each trial, s: its evaluations, and of the overhead an equal part a trial."""
    num_trials = len(cell.trials)
    evaluated_s = np.cumsum([trial.wall_s for trial in cell.trials])
    overhead_s: Floats = cell.overhead_s * np.arange(1, num_trials + 1) / max(1, num_trials)
    return evaluated_s + overhead_s


def by_condition_and_contender(cells: Iterable[CellResult]) -> Mapping[str, Mapping[str, Sequence[CellResult]]]:
    """Cells by key of the condition and name of the contender, both in the order in which they come."""
    grouped: dict[str, dict[str, list[CellResult]]] = {}
    for cell in cells:
        grouped.setdefault(cell.cell.condition.key, {}).setdefault(cell.cell.contender.name, []).append(cell)
    return grouped


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The searches of one contender in one condition.

    Attributes:
        scores: of every finished search, seeds in the study's order.
        regrets: the observations, shape (num_observations,): of every search, or a single one if several seeds all
            gave the same search.
    """

    scores: tuple[CellScore, ...]
    regrets: Floats

    @property
    def is_deterministic(self) -> bool:
        """Whether several seeds gave one and the same search."""
        return len(self.scores) > 1 and len(self.regrets) == 1

    @property
    def median_regret(self) -> float:
        """Median over seeds."""
        return float(np.median([score.regret for score in self.scores]))


@dataclass(frozen=True, slots=True, eq=False)
class JudgedCondition:
    """All contenders on one problem.

    Attributes:
        condition: the problem.
        yardstick: what regret is against.
        samples: by contender, in the study's order; contenders without a finished search, and those that are not
            ranked (`StudyResult.unranked`), are absent.
    """

    condition: Condition
    yardstick: Yardstick
    samples: Mapping[str, Sample]

    @property
    def key(self) -> str:
        """Of the condition."""
        return self.condition.key

    @property
    def weight(self) -> float:
        """Of its workload."""
        return self.condition.workload.weight


def judge_conditions(result: StudyResult) -> tuple[JudgedCondition, ...]:
    """Every condition with a finished search of a ranked contender, in the study's order."""
    grouped = by_condition_and_contender(result.cells)
    judged = (
        _judge(condition, grouped[condition.key], result) for condition in result.conditions if condition.key in grouped
    )
    return tuple(one for one in judged if one.samples)


def _judge(
    condition: Condition, contenders: Mapping[str, Sequence[CellResult]], result: StudyResult
) -> JudgedCondition:
    cells = [cell for group in contenders.values() for cell in group]
    yardstick = yardstick_of(condition.goal, cells, result.truths.get(condition.key))
    budget = budget_of(result, cells)
    unranked = result.unranked
    names = [contender.name for contender in result.config.contenders if contender.name not in unranked]
    samples = {
        name: judge_sample(contenders[name], yardstick, budget=budget, targets=result.config.judgement.targets)
        for name in names
        if name in contenders
    }
    return JudgedCondition(condition, yardstick, samples)


def judge_sample(cells: Sequence[CellResult], yardstick: Yardstick, *, budget: int, targets: Sequence[float]) -> Sample:
    """The searches of one contender against a yardstick."""
    scores = {cell.cell.key: score_cell(cell, yardstick, budget=budget, targets=targets) for cell in cells}
    regrets = [score.regret for score in scores.values()]
    # Searches that evaluated the same points in the same order are one observation, not many.
    if len({tuple(trial.point for trial in cell.trials) for cell in cells}) == 1:
        regrets = regrets[:1]
    return Sample(tuple(scores.values()), np.array(regrets, dtype=np.float64))


def budget_of(result: StudyResult, cells: Sequence[CellResult]) -> int:
    """Evaluations over which curves are averaged: the budget, or with one in seconds the longest search."""
    if result.config.budget.seconds is None:
        return result.config.budget.evaluations
    return max((cell.evaluations for cell in cells), default=0)
