"""One condition judged: every contender's searches on one problem, and what counts as an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phaze_opt.study.judging.scoring import (
    Yardstick,
    are_one_search,
    by_condition_and_contender,
    score_cell,
    yardstick_of,
)
from phaze_opt.study.plan import Condition
from phaze_opt.study.result import CellResult, StudyResult
from phaze_opt.study.scores import CellScore


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The searches of one contender in one condition.

    Attributes:
        scores: of every finished search, seeds in the study's order.
        regrets: the observations, shape (num_observations,): of every search, or a single one if several seeds all
            gave the same search.
    """

    scores: tuple[CellScore, ...]
    regrets: NDArray[np.float64]

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
    return Sample(tuple(scores.values()), np.array(regrets[:1] if are_one_search(cells) else regrets, dtype=np.float64))


def budget_of(result: StudyResult, cells: Sequence[CellResult]) -> int:
    """Evaluations over which curves are averaged: the budget, or with one in seconds the longest search."""
    if result.config.budget.seconds is None:
        return result.config.budget.evaluations
    return max((cell.evaluations for cell in cells), default=0)
