"""Where a running study stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What a study is at."""

    SEARCHES = "searches"
    REFERENCES = "references"
    TRUTHS = "true optima"
    CHIPS = "designs on every model"


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """Where a study stands.

    Attributes:
        stage: what it is at.
        num_cells: planned.
        num_finished: finished, those of earlier runs included.
        num_trials: trials finished, those of earlier runs included.
        max_trials: trials if every search spends its whole budget.
        what: the search, condition or setting at hand.
        num_done, num_items: of later stages.
    """

    stage: Stage
    num_cells: int
    num_finished: int
    num_trials: int
    max_trials: int
    what: str = ""
    num_done: int = 0
    num_items: int = 0
