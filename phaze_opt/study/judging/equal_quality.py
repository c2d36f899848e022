"""Two contenders of a study at equal quality: the figure behind claims such as "30 times fewer evaluations"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from phaze_opt.study.config import StudyConfig
from phaze_opt.study.judging.statistics.equal_quality import Curves, equal_quality_ratio, evaluations_at_equal_quality
from phaze_opt.study.scores import CellScore, StudySummary


@dataclass(frozen=True, slots=True)
class EqualQuality:
    """What one contender needs to do as well as another one ends.

    Attributes:
        first, second: contenders; half of the second one's searches end with the quality that both are measured at, in
            every condition for itself.
        num_conditions: conditions that both have searches in.
        num_reached: of these, those in which half of the searches of ``first`` get there.
        ratio: evaluations of second over those of first, weighted geometric mean over conditions; 0 if ``first`` does
            not get there in all of them.
        low, high: bootstrap interval over seeds.
        first_evaluations, second_evaluations, regret: of a single condition; 0 for several.
    """

    first: str
    second: str
    num_conditions: int
    num_reached: int
    ratio: float
    low: float
    high: float
    first_evaluations: float = 0.0
    second_evaluations: float = 0.0
    regret: float = 0.0


def equal_quality(summary: StudySummary, config: StudyConfig, first: str, second: str) -> EqualQuality | None:
    """Compare the evaluations of two contenders at equal quality; None if they share no condition.

    Args:
        summary: of the study.
        config: of the study.
        first: name of the contender that is asked to do as well.
        second: name of the contender whose median end sets the quality.
    """
    mine, yours = _curves(summary.cells, first), _curves(summary.cells, second)
    shared = [key for key in mine if key in yours]
    if not shared:
        return None
    weights = {workload.name: workload.weight for workload in config.workloads}
    ratio, low, high = equal_quality_ratio(
        [mine[key] for key in shared],
        [yours[key] for key in shared],
        [weights[workload] for _, workload in shared],
        confidence=config.judgement.confidence,
        num_resamples=config.judgement.num_bootstrap,
    )
    each = [evaluations_at_equal_quality(mine[key], yours[key]) for key in shared]
    num_reached = sum(needed < float("inf") for needed, _, _ in each)
    one = each[0] if len(each) == 1 and num_reached else (0.0, 0.0, 0.0)
    return EqualQuality(first, second, len(shared), num_reached, ratio, low, high, *one)


def _curves(cells: Sequence[CellScore], contender: str) -> dict[tuple[str, str], Curves]:
    """Regret curves of a contender's searches, by setting and workload."""
    keys = dict.fromkeys((cell.setting, cell.workload) for cell in cells if cell.contender == contender)
    return {
        key: [cell.curve for cell in cells if cell.contender == contender and (cell.setting, cell.workload) == key]
        for key in keys
    }
